// Weights of 4 bits against the float64 reference: few rows of x (tokens) from plain rows, and the ends of scales and zero points.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny_w4/skinny_w4.h"
#include "numbers/bfloat16.h"
#include "support/cpu_levels.h"
#include "support/executors.h"
#include "support/operation_problems.h"
#include "support/operation_runs.h"

namespace gemmtune::cpu::four_bit_kernels_test {
namespace {

using namespace testing_levels;
using namespace testing_problems;
using namespace testing_runs;

using RowsOfOrders = std::map<std::string, std::vector<std::byte>>;

class FourBitKernels : public KernelsOfALevel {
 protected:
  /// A config is right, and a row of y has the same bits on one thread and on two, in every kernel of one order of sums (`rows`), and
  /// alone: `one` is the problem of the first row, `first` holds its operands.
  void check_rows(const KernelFamily& family, const Config& config, const Problem& problem,
                  const Truth& truth, const Problem& one, const Truth& first, RowsOfOrders& rows) {
    SCOPED_TRACE(print(problem) + " " + config.text());
    const auto kernel = family.build(problem, config);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    const auto y = run_kernel(**kernel, problem, truth, serial_);
    ASSERT_EQ(verdict(problem, truth, y), "");
    TwoThreadExecutor two;
    ASSERT_EQ(run_kernel(**kernel, problem, truth, two), y);
    const std::string order = family.sum_order(problem, config);
    ASSERT_NE(order, "");
    ASSERT_EQ(rows.try_emplace(order, y).first->second, y);
    const auto alone = family.build(one, config);
    ASSERT_TRUE(alone.ok()) << alone.message();
    const auto row = run_kernel(**alone, one, first, serial_);
    ASSERT_TRUE(std::equal(row.begin(), row.end(), y.begin()));
    ASSERT_EQ(family.sum_order(one, config), order);
    ++runs_;
  }
};

constexpr Shape few_rows_shapes[] = {{1, 1, 2},     {1, 70, 130},  {2, 33, 64},    {3, 65, 384},
                                     {5, 129, 129}, {8, 80, 1030}, {13, 49, 160},  {16, 130, 96},
                                     {17, 33, 600}, {64, 67, 256}, {150, 37, 1090}};

/// Levels without AVX2 take nothing.
TEST_P(FourBitKernels, FewRowsOfFourBitWeightsAreRight) {
  const auto family = make_skinny_w4_family(GetParam().set, 3);
  for (const Shape& shape : few_rows_shapes)
    for (const Problem& problem : dense_problems(shape)) {
      if (!family->accepts(problem).ok()) continue;
      check_some(*family, problem, truth_of(problem), 5);
    }
  EXPECT_EQ(runs_ > 300, GetParam().set.level >= Isa::avx2) << runs_;
}

/// Every register tile. A row of y has the same bits on one thread and on two, and whatever rows stand beside it: also those of
/// other panels and blocks of rows, beyond what is decoded at once.
TEST_P(FourBitKernels, RowsOfFourBitWeightsDoNotDependOnTheBatch) {
  const auto family = make_skinny_w4_family(GetParam().set, 2);
  for (const Shape& shape : {Shape{21, 71, 700}, {133, 35, 1100}}) {
    std::vector<Problem> problems = weight_format_problems(shape);
    problems.push_back(problem_of(Operation::a16w4, DataType::bf16, {shape.m, shape.n, shape.k / 32 * 32}));
    for (const Problem& problem : problems) {
      if (!family->accepts(problem).ok()) continue;
      Problem one = problem;
      one.m = 1;
      const Truth truth = truth_of(problem);
      Truth first = truth_of(one);
      first.host = truth.host;
      first.host.x.resize(static_cast<std::size_t>(operand_shapes(one).x.bytes()));
      first.host.x_scale.resize(static_cast<std::size_t>(operand_shapes(one).x.scale_bytes()));
      RowsOfOrders rows;
      for (const Config& config : family->space(problem).enumerate()) {
        if (config.number("pf") != 8192) continue;
        check_rows(*family, config, problem, truth, one, first, rows);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(runs_ > 40, GetParam().set.level >= Isa::avx2) << runs_;
}

/// Zero, the smallest and the largest of e4m3 and 16-bit scales, zero points at both ends; x with the largest elements.
TEST_P(FourBitKernels, TheEndsOfScalesAndZeroPointsOfWeightFormatsAreRight) {
  const auto quantized = make_quantized_family(GetParam().set, 1);
  const auto skinny = make_skinny_w4_family(GetParam().set, 1);
  for (const Problem& plain : weight_format_problems({5, 37, 380}))
    for (const auto layout : {WeightLayout::plain, WeightLayout::panel16}) {
      Problem problem = plain;
      if (!in_layout(problem, layout)) continue;
      const Truth truth = truth_of_all_scales(problem);
      for (const KernelFamily* family : {quantized.get(), skinny.get()})
        check_some(*family, problem, truth, 4);
    }
  const auto moe = make_moe_family(GetParam().set, 1);
  for (const Problem& problem : mixtures_of_weight_formats({5, 37, 380}))
    check_some(*moe, problem, truth_of_all_scales(problem), 4);
  EXPECT_TRUE(runs_ > 40 || GetParam().name == "emulated_amx") << runs_;
}

/// The NaN codes of e4m3 and e8m0, for their rows or columns and no others; a global scale that is NaN is everyone's.
TEST_P(FourBitKernels, NanScalesOfFp4WeightsAreNan) {
  const auto quantized = make_quantized_family(GetParam().set, 1);
  const auto skinny = make_skinny_w4_family(GetParam().set, 1);
  for (const OperationForm operation :
       {OperationForm(Operation::a4w4_nvfp4), OperationForm(Operation::a16w4)})
    for (const auto layout : {WeightLayout::plain, WeightLayout::panel16}) {
      const bool nvfp4 = operation.operation == Operation::a4w4_nvfp4;
      Problem problem = problem_of(operation, nvfp4 ? DataType::f4_e2m1 : DataType::bf16, {3, 37, 80});
      problem.y_type = DataType::bf16;
      ASSERT_TRUE(in_layout(problem, layout));
      Truth truth = truth_of(problem);
      const auto columns = static_cast<std::size_t>(operand_shapes(problem).w.scale.columns);
      truth.host.w_scale[6 * columns - 1] = nvfp4 ? std::byte{0x7f} : std::byte{0xff};
      if (nvfp4) truth.host.x_scale[2 * columns + 1] = std::byte{0xff};
      // All products are positive: infinity in place of NaN would stay infinity.
      const std::uint16_t one = f32_to_bf16(1);
      for (std::size_t at = 0; !nvfp4 && at < truth.host.x.size(); at += 2)
        std::memcpy(truth.host.x.data() + at, &one, 2);
      if (!nvfp4) std::fill(truth.host.w.begin(), truth.host.w.end(), std::byte{0x22});
      for (const bool everyone : {false, true}) {
        if (everyone && !nvfp4) continue;
        const float nan = std::numeric_limits<float>::quiet_NaN();
        if (everyone) std::memcpy(truth.host.w_global_scale.data(), &nan, sizeof(nan));
        for (const KernelFamily* family : {quantized.get(), skinny.get()}) {
          if (!family->accepts(problem).ok()) continue;
          for (const Config& config : some_configs(*family, problem, 4, random_)) {
            SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
            const auto kernel = family->build(problem, config);
            ASSERT_TRUE(kernel.ok()) << kernel.message();
            const auto y = run_kernel(**kernel, problem, truth, serial_);
            check_nans(problem, y, [&](std::int64_t row, std::int64_t column) {
              return everyone || column == 5 || (nvfp4 && row == 2);
            });
            if (HasFatalFailure()) return;
          }
        }
      }
    }
}

/// 4-bit experts beside x of 16 bits, in each format; k and inter_dim end within a line.
std::vector<Problem> four_bit_mixtures() {
  const Shape shape{9, 70, 1100};
  std::vector<Problem> all = mixtures_of_weight_formats(shape);
  for (Problem& problem : all) problem.moe.shared_experts = 0;
  all.push_back(moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, shape));
  all.back().moe.activation = Activation::swiglu;
  all.back().bias = true;
  all.push_back(moe_problem(DataType::f16, DataType::f4_e2m1, QuantType::per_1x32, shape));
  all.back().moe.gated = false;
  all.push_back(moe_problem(DataType::bf16, DataType::i4, QuantType::per_token, shape));
  all.push_back(moe_problem(DataType::bf16, DataType::i4, QuantType::per_128x128, shape));
  return all;
}

/// Nine tokens whose experts have nine, three, one, no and five of them.
Truth truth_of_uneven_experts(const Problem& problem) {
  Truth truth = truth_of(problem);
  for (std::size_t token = 0; token < 9; ++token) {
    truth.host.topk_ids[2 * token] = 0;
    truth.host.topk_ids[2 * token + 1] = token < 3 ? 1 : token == 3 ? 2 : 4;
  }
  return truth_of(problem, std::move(truth.host));
}

/// Every config. A token has the same bits on one thread and on two, with any tile of one order of sums, and alone.
TEST_P(FourBitKernels, RowsOfFourBitExpertsAreRight) {
  const auto family = make_moe_family(GetParam().set, 2);
  for (Problem& problem : four_bit_mixtures()) {
    problem.moe.topk = 2;
    ASSERT_TRUE(check(problem).ok()) << check(problem).message();
    if (!family->accepts(problem).ok()) continue;
    const Truth truth = truth_of_uneven_experts(problem);
    Problem one = problem;
    one.m = 1;
    Truth first = truth;
    first.host.x.resize(static_cast<std::size_t>(operand_shapes(one).x.bytes()));
    RowsOfOrders rows;
    for (const Config& config : family->space(problem).enumerate()) {
      if (config.number("rows") != 1) continue;
      check_rows(*family, config, problem, truth, one, first, rows);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(runs_ > 30, GetParam().set.level >= Isa::avx2) << runs_;
}

/// x of 8 bits beside 4-bit experts has panels alone; the default reads rows where few tokens meet an expert, by AMX tiles always.
TEST_P(FourBitKernels, RowsOfFourBitExpertsAreForFewTokensOf16Bits) {
  const auto family = make_moe_family(GetParam().set, 2);
  const auto rows_of = [&](const Problem& problem) {
    return family->accepts(problem).ok() ? family->default_config(problem).number("rows") : -1;
  };
  const auto x8 = moe_problem(DataType::f8_e4m3fn, DataType::f4_e2m1, QuantType::per_token, {2, 64, 128});
  for (const Config& config : family->space(x8).enumerate()) EXPECT_EQ(config.number("rows"), 0);
  if (GetParam().set.level < Isa::avx2) return;
  EXPECT_EQ(rows_of(moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {2, 64, 128})), 1);
  EXPECT_EQ(rows_of(moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {200, 64, 128})),
            GetParam().set.level == Isa::amx ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Levels, FourBitKernels, ::testing::ValuesIn(levels()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace gemmtune::cpu::four_bit_kernels_test
