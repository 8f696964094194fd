// Every operation through the C functions, as a program calls them, against the float64 reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "capi/c_support.h"
#include "problem/operands.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;
using OneCall = gemmtune_status (*)(gemmtune_context*, const gemmtune_problem*, const gemmtune_operands*,
                                    void*);

constexpr OneCall one_calls[] = {gemmtune_gemm_a16w16,
                                 gemmtune_gemm_a8w8,
                                 gemmtune_gemm_a8w8_bpreshuffle,
                                 gemmtune_gemm_a8w8_blockscale,
                                 gemmtune_gemm_a8w8_blockscale_bpreshuffle,
                                 gemmtune_gemm_a4w4_blockscale,
                                 gemmtune_gemm_batched_bf16,
                                 gemmtune_gemm_batched_a8w8,
                                 gemmtune_fused_moe};

gemmtune_type type_to_c(DataType type) {
  switch (type) {
    case DataType::f32:
      return GEMMTUNE_F32;
    case DataType::f16:
      return GEMMTUNE_F16;
    case DataType::bf16:
      return GEMMTUNE_BF16;
    case DataType::f8_e4m3fn:
      return GEMMTUNE_F8_E4M3FN;
    case DataType::f8_e4m3fnuz:
      return GEMMTUNE_F8_E4M3FNUZ;
    case DataType::i8:
      return GEMMTUNE_I8;
    default:
      return GEMMTUNE_F4_E2M1;
  }
}

gemmtune_problem to_c(const Problem& problem) {
  gemmtune_problem asked{};
  asked.size = sizeof asked;
  asked.operation = static_cast<gemmtune_operation>(problem.operation);
  asked.x_type = type_to_c(problem.x_type);
  asked.w_type = type_to_c(problem.w_type);
  asked.y_type = type_to_c(problem.y_type);
  asked.m = problem.m;
  asked.n = problem.n;
  asked.k = problem.k;
  asked.bias = problem.bias ? 1 : 0;
  asked.scale_ab = problem.scale_ab ? 1 : 0;
  asked.weight_layout = c::layout_to_c(problem.weight_layout);
  asked.alignment = 1;
  asked.batch = problem.batch;
  asked.experts = problem.moe.experts;
  asked.topk = problem.moe.topk;
  asked.activation = static_cast<gemmtune_activation>(problem.moe.activation);
  asked.quant_type = static_cast<gemmtune_quant_type>(problem.moe.quant_type);
  asked.gated = problem.moe.gated ? 1 : 0;
  asked.doweight_stage1 = problem.moe.doweight_stage1 ? 1 : 0;
  return asked;
}

Problem problem_of(Operation operation, DataType type) {
  Problem p = default_problem(operation);
  p.m = 11;
  p.n = 160;
  p.k = 256;
  p.x_type = p.w_type = type;
  if (p.bpreshuffle) p.weight_layout = WeightLayout::panel16;
  if (operation == Operation::batched_bf16 || operation == Operation::batched_a8w8) p.batch = 3;
  if (operation == Operation::fused_moe) {
    p.moe = {.experts = 6, .topk = 2, .activation = Activation::silu, .gated = true};
    if (bits(type) == 8) p.moe.quant_type = QuantType::per_token;
    if (bits(type) == 4) p.moe.quant_type = QuantType::per_1x32;
  }
  return p;
}

std::vector<Problem> problems() {
  using enum Operation;
  constexpr auto fn = DataType::f8_e4m3fn;
  std::vector<Problem> all{problem_of(a16w16, DataType::bf16),
                           problem_of(a16w16, fn),
                           problem_of(a8w8, DataType::i8),
                           problem_of(a8w8, DataType::f8_e4m3fnuz),
                           problem_of(a8w8_bpreshuffle, DataType::i8),
                           problem_of(a8w8_bpreshuffle, fn),
                           problem_of(a8w8_blockscale, fn),
                           problem_of(a8w8_blockscale_bpreshuffle, fn),
                           problem_of(a4w4_blockscale, DataType::f4_e2m1),
                           problem_of(batched_bf16, DataType::bf16),
                           problem_of(batched_a8w8, DataType::i8),
                           problem_of(fused_moe, DataType::bf16),
                           problem_of(fused_moe, fn),
                           problem_of(fused_moe, DataType::f4_e2m1)};
  all[1].scale_ab = true;
  all[2].bias = true;
  for (const std::size_t shuffled : {5U, 7U}) {
    all.push_back(all[shuffled]);
    all.back().weight_layout = WeightLayout::aiter16x16;
  }
  return all;
}

class Operations : public ::testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = "/none";
    options.backend = "cpu";
    options.threads = 2;
    ASSERT_EQ(gemmtune_context_create(&options, &context_), GEMMTUNE_OK) << gemmtune_last_error();
    auto host = make_inputs(GetParam(), 3);
    ASSERT_TRUE(host.ok()) << host.message();
    host_ = std::move(*host);
    y_.resize(static_cast<std::size_t>(operand_shapes(GetParam()).y.bytes()));
  }
  void TearDown() override { gemmtune_context_destroy(context_); }

  /// The weight in the problem's layout, by the C functions.
  std::vector<std::byte> weight() {
    if (!GetParam().bpreshuffle) return host_.w;
    const gemmtune_problem asked = to_c(GetParam());
    std::size_t bytes = 0;
    EXPECT_EQ(gemmtune_packed_weight_bytes(context_, &asked, asked.weight_layout, &bytes), GEMMTUNE_OK)
        << gemmtune_last_error();
    std::vector<std::byte> packed(bytes);
    EXPECT_EQ(gemmtune_pack_weight(context_, &asked, asked.weight_layout, host_.w.data(), packed.data()),
              GEMMTUNE_OK)
        << gemmtune_last_error();
    std::vector<std::byte> back(host_.w.size());
    EXPECT_EQ(gemmtune_unpack_weight(context_, &asked, asked.weight_layout, packed.data(), back.data()),
              GEMMTUNE_OK);
    EXPECT_EQ(back, host_.w);
    return packed;
  }

  gemmtune_operands operands(const std::vector<std::byte>& w) {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = host_.x.data();
    given.w = w.data();
    given.bias = host_.bias.data();
    given.y = y_.data();
    given.x_scale = host_.x_scale.data();
    given.w_scale = host_.w_scale.data();
    given.w2 = host_.w2.data();
    given.w2_scale = host_.w2_scale.data();
    given.topk_ids = host_.topk_ids.data();
    given.topk_weights = host_.topk_weights.data();
    return given;
  }

  std::string verdict() {
    const auto reference = compute_reference(GetParam(), host_, {});
    EXPECT_TRUE(reference.ok()) << reference.message();
    const auto tolerance = tolerance_for(GetParam(), 0.05);
    return check_output(GetParam(), *reference, y_, output_columns(GetParam()), tolerance).reason;
  }

  gemmtune_context* context_ = nullptr;
  HostOperands host_;
  std::vector<std::byte> y_;
};

TEST_P(Operations, OneCallIsRight) {
  const std::vector<std::byte> w = weight();
  const gemmtune_problem asked = to_c(GetParam());
  const gemmtune_operands given = operands(w);
  const OneCall call = one_calls[asked.operation];
  ASSERT_EQ(call(context_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(verdict(), "");
  const OneCall another = one_calls[(asked.operation + 1) % 9];
  EXPECT_EQ(another(context_, &asked, &given, nullptr), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("expected GEMMTUNE_"));
}

TEST_P(Operations, PlansFallBackToAKernelThatIsNotTheReference) {
  const std::vector<std::byte> w = weight();
  const gemmtune_problem asked = to_c(GetParam());
  gemmtune_plan* plan = nullptr;
  ASSERT_EQ(gemmtune_plan_create(context_, &asked, &plan), GEMMTUNE_OK) << gemmtune_last_error();
  gemmtune_plan_info info{};
  info.size = sizeof info;
  ASSERT_EQ(gemmtune_plan_get_info(plan, &info), GEMMTUNE_OK);
  EXPECT_EQ(info.match, GEMMTUNE_MATCH_UNTUNED);
  EXPECT_STRNE(info.family, "reference");
  std::vector<std::byte> workspace(info.workspace_bytes + 64);
  void* aligned = workspace.data();
  std::size_t space = workspace.size();
  ASSERT_NE(std::align(64, info.workspace_bytes, aligned, space), nullptr);
  const gemmtune_operands given = operands(w);
  EXPECT_EQ(gemmtune_plan_run(plan, &given, info.workspace_bytes > 0 ? aligned : nullptr, nullptr),
            GEMMTUNE_OK)
      << gemmtune_last_error();
  EXPECT_EQ(verdict(), "");
  gemmtune_plan_release(plan);
}

TEST_P(Operations, WhatIsMissingIsNamedAndNothingIsWritten) {
  const std::vector<std::byte> w = weight();
  const gemmtune_problem asked = to_c(GetParam());
  const OperandShapes shapes = operand_shapes(GetParam());
  const auto refused = [&](const gemmtune_operands& given, const std::string& word) {
    EXPECT_NE(one_calls[asked.operation](context_, &asked, &given, nullptr), GEMMTUNE_OK) << word;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(word));
  };
  gemmtune_operands given = operands(w);
  if (shapes.x.scale.type != ScaleType::none) {
    given.x_scale = nullptr;
    refused(given, "x_scale");
    given = operands(w);
    given.w_scale = nullptr;
    refused(given, "w_scale");
  }
  given = operands(w);
  if (GetParam().operation == Operation::fused_moe) {
    given.topk_ids = nullptr;
    refused(given, "topk_ids");
    given = operands(w);
    given.w2 = nullptr;
    refused(given, "w2");
  }
  given = operands(w);
  if (bits(GetParam().x_type) == 4) {
    given.ldx = GetParam().k + 1;
    refused(given, "ldx");
  }
  given = operands(w);
  given.ldy = output_columns(GetParam()) - 1;
  refused(given, "ldy");
  given = operands(w);
  if (GetParam().batch > 1) {
    given.y_batch_stride = 5;
    refused(given, "y_batch_stride");
  }
  EXPECT_EQ(y_, std::vector<std::byte>(y_.size()));
}

INSTANTIATE_TEST_SUITE_P(All, Operations, ::testing::ValuesIn(problems()), [](const auto& test) {
  const Problem& p = test.param;
  return std::string(to_string(p.operation)) + "_" + std::string(to_string(p.x_type)) + "_" +
         std::string(to_string(p.weight_layout));
});

TEST(OperationsOfZeroRows, ReturnAtOnce) {
  for (const Operation operation : all_operations()) {
    Problem p = problem_of(operation, default_problem(operation).x_type);
    p.m = 0;
    const gemmtune_problem asked = to_c(p);
    gemmtune_context* context = nullptr;
    ASSERT_EQ(gemmtune_context_create(nullptr, &context), GEMMTUNE_OK);
    EXPECT_EQ(one_calls[asked.operation](context, &asked, nullptr, nullptr), GEMMTUNE_OK)
        << gemmtune_last_error();
    gemmtune_plan* plan = nullptr;
    EXPECT_EQ(gemmtune_plan_create(context, &asked, &plan), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_operands given{};
    given.size = sizeof given;
    EXPECT_EQ(gemmtune_plan_run(plan, &given, nullptr, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_plan_release(plan);
    gemmtune_context_destroy(context);
  }
}

}  // namespace
}  // namespace gemmtune
