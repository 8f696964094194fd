// Weights of 4 bits against the float64 reference: few rows of x from plain rows, and the ends of scales and zero points.
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

class FourBitKernels : public KernelsOfALevel {};

constexpr Shape few_rows_shapes[] = {{1, 1, 2},     {1, 70, 130},  {2, 33, 64},   {3, 65, 384},
                                     {5, 129, 129}, {8, 80, 1030}, {13, 49, 160}, {16, 130, 96},
                                     {17, 33, 600}, {64, 67, 256}};

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

/// Every register tile. A row of y has the same bits on one thread and on two, and whatever rows stand beside it.
TEST_P(FourBitKernels, RowsOfFourBitWeightsDoNotDependOnTheBatch) {
  const auto family = make_skinny_w4_family(GetParam().set, 2);
  for (const Problem& one : weight_format_problems({1, 71, 700})) {
    if (!family->accepts(one).ok()) continue;
    Problem problem = one;
    problem.m = 21;
    const Truth truth = truth_of(problem);
    Truth first = truth_of(one);
    first.host = truth.host;
    first.host.x.resize(static_cast<std::size_t>(operand_shapes(one).x.bytes()));
    first.host.x_scale.resize(static_cast<std::size_t>(operand_shapes(one).x.scale_bytes()));
    std::map<std::string, std::vector<std::byte>> row_of_order;
    for (const Config& config : family->space(problem).enumerate()) {
      if (config.number("pf") != 512) continue;
      SCOPED_TRACE(print(problem) + " " + config.text());
      const auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const auto y = run_kernel(**kernel, problem, truth, serial_);
      ASSERT_EQ(verdict(problem, truth, y), "");
      TwoThreadExecutor two;
      ASSERT_EQ(run_kernel(**kernel, problem, truth, two), y);
      const auto alone = family->build(one, config);
      ASSERT_TRUE(alone.ok()) << alone.message();
      const auto row = run_kernel(**alone, one, first, serial_);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), y.begin()));
      ASSERT_EQ(family->sum_order(one, config), family->sum_order(problem, config));
      ASSERT_EQ(row_of_order.try_emplace(family->sum_order(problem, config), row).first->second, row);
      ++runs_;
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
  EXPECT_TRUE(runs_ > 40 || GetParam().name == "emulated_amx") << runs_;
}

/// The NaN codes of e4m3, for their rows or columns and no others; a global scale that is NaN is everyone's.
TEST_P(FourBitKernels, NanScalesOfNvfp4AreNan) {
  const auto quantized = make_quantized_family(GetParam().set, 1);
  const auto skinny = make_skinny_w4_family(GetParam().set, 1);
  for (const auto layout : {WeightLayout::plain, WeightLayout::panel16}) {
    Problem problem = problem_of(Operation::a4w4_nvfp4, DataType::f4_e2m1, {3, 37, 80});
    problem.y_type = DataType::bf16;
    ASSERT_TRUE(in_layout(problem, layout));
    Truth truth = truth_of(problem);
    truth.host.w_scale[5 * 5 + 4] = std::byte{0x7f};
    truth.host.x_scale[2 * 5 + 1] = std::byte{0xff};
    for (const bool everyone : {false, true}) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      if (everyone) std::memcpy(truth.host.w_global_scale.data(), &nan, sizeof(nan));
      for (const KernelFamily* family : {quantized.get(), skinny.get()}) {
        if (!family->accepts(problem).ok()) continue;
        for (const Config& config : some_configs(*family, problem, 4, random_)) {
          SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
          const auto kernel = family->build(problem, config);
          ASSERT_TRUE(kernel.ok()) << kernel.message();
          const auto y = run_kernel(**kernel, problem, truth, serial_);
          for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, y.data() + i * 2, 2);
            const bool expected = everyone || i % problem.n == 5 || i / problem.n == 2;
            ASSERT_EQ(std::isnan(bf16_to_f32(bits)), expected) << "element " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, FourBitKernels, ::testing::ValuesIn(levels()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace gemmtune::cpu::four_bit_kernels_test
