// fused_moe through the library on doubles of AMD's libraries: plans by tuned rows and without, weights plain and in AITER's
// layout, capture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/context.h"
#include "formats/aiter/schema.h"
#include "numbers/weight_layout.h"
#include "support/captures.h"
#include "support/operation_problems.h"
#include "support/temporary_folder.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::hip {
namespace {

using testing_problems::moe_problem;

class HipMixtures : public ::testing::Test {
 protected:
  HipMixtures() {
    problem_.moe.experts = 8;
    problem_.moe.topk = 2;
    options_.backend = "hip";
    options_.config_folder = folder_.path();
    options_.capture = true;
  }
  std::unique_ptr<Context> open() const {
    auto context = Context::open(options_);
    EXPECT_TRUE(context.ok()) << context.message();
    return context.ok() ? std::move(*context) : nullptr;
  }
  void write_row(const std::string& kernel) {
    const std::string file = folder_.path() + "/tuned_fmoe.csv";
    std::ofstream(file)
        << "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,"
           "use_g1u1,doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,"
           "run_1stage,xbf16,flat,tflops,bw\n"
           "gfx942,304,8,96,64,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
           "QuantType.No,1,0,16,0,9.0,"
        << kernel << ",0.0%,0,,0.0%,9.0,1,0,0,1,1\n";
    options_.tuned_files = {{OperationForm(Operation::fused_moe), file}};
  }
  static void* copied(Device& device, const void* from, std::size_t bytes,
                      std::vector<std::unique_ptr<Buffer>>& kept) {
    auto buffer = device.allocate(bytes, Placement::plain);
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    EXPECT_TRUE(device.copy_in((*buffer)->data(), from, bytes).ok());
    kept.push_back(std::move(*buffer));
    return kept.back()->data();
  }
  static std::vector<std::byte> shuffled(const MatrixShape& shape, const std::vector<std::byte>& plain) {
    const Tile16 tiles{.n = shape.count * shape.rows, .k = shape.columns, .element_bytes = 2};
    std::vector<std::byte> to(plain.size());
    shuffle_tile16(tiles, plain.data(), to.data());
    return to;
  }
  /// Runs the plan; "", or what is wrong with y.
  static std::string run(Context& context, const Problem& problem, const PlanRef& plan) {
    const auto host = make_inputs(problem, 5);
    const auto reference = compute_reference(problem, *host, {});
    const OperandShapes shapes = operand_shapes(problem);
    Device& device = context.device();
    std::vector<std::unique_ptr<Buffer>> kept;
    const auto put = [&](const std::vector<std::byte>& from) {
      return copied(device, from.data(), from.size(), kept);
    };
    Operands o;
    o.x = put(host->x);
    o.w = put(is_packed(problem) ? shuffled(shapes.w, host->w) : host->w);
    o.w2 = put(is_packed(problem) ? shuffled(shapes.w2, host->w2) : host->w2);
    o.topk_ids = static_cast<const std::int32_t*>(
        copied(device, host->topk_ids.data(), host->topk_ids.size() * 4, kept));
    o.topk_weights = static_cast<const float*>(
        copied(device, host->topk_weights.data(), host->topk_weights.size() * 4, kept));
    std::vector<std::byte> y(static_cast<std::size_t>(shapes.y.bytes()));
    o.y = put(y);
    o.ldx = o.ldy = problem.k;
    const auto workspace = device.allocate(plan->kernel()->workspace_bytes(), Placement::plain);
    EXPECT_TRUE(workspace.ok()) << workspace.message();
    if (const Status ran = plan->run(o, (*workspace)->data(), {}); !ran.ok()) return ran.message();
    EXPECT_TRUE(device.copy_out(y.data(), o.y, y.size()).ok());
    return check_output(problem, *reference, y, problem.k, tolerance_for(problem, 0.05)).reason;
  }

  test::TemporaryFolder folder_;
  ContextOptions options_;
  Problem problem_ = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {8, 64, 96});
};

TEST_F(HipMixtures, ATunedRowAnswersForBothLayoutsOfTheWeights) {
  write_row("mfma_moe_r1_bm16_bn64_bo32_bk64_nw2_mi16_nb2_eu0");
  const auto context = open();
  ASSERT_NE(context, nullptr);
  for (const bool shuffled : {false, true}) {
    Problem problem = problem_;
    if (shuffled) problem.weight_layout = WeightLayout::aiter16x16;
    const auto plan = context->plan(problem);
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ((*plan)->account().match, Match::exact);
    EXPECT_EQ((*plan)->kernel()->weight_layout(), problem.weight_layout);
    EXPECT_EQ(run(*context, problem, *plan), "") << shuffled;
  }
}

TEST_F(HipMixtures, WithoutARowTheMatrixCoresRunAndShapesAreCaptured) {
  auto context = open();
  ASSERT_NE(context, nullptr);
  for (const std::int64_t tokens : {1, 8, 8}) {
    Problem problem = problem_;
    problem.m = tokens;
    const auto plan = context->plan(problem);
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ((*plan)->account().match, Match::untuned);
    EXPECT_EQ((*plan)->account().family, "mfma_moe");
    EXPECT_EQ(run(*context, problem, *plan), "") << tokens;
  }
  context.reset();
  const auto read =
      read_capture(folder_.path() + "/" + untuned_file_name(Operation::fused_moe), Operation::fused_moe);
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->problems.size(), 2U);
  EXPECT_EQ(read->problems[0].problem.moe, problem_.moe);
  EXPECT_EQ(read->problems[1].calls, 2U);
}

}  // namespace
}  // namespace gemmtune::hip
