// The families of scaled, batched and mixed operations against the float64 reference: every operation, every
// level of this machine (and emulated tiles), every layout, awkward shapes, with memory that ends at an
// unreadable page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/moe/moe.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny/skinny.h"
#include "backends/cpu/families/skinny_w4/skinny_w4.h"
#include "backends/cpu/families/streaming/streaming.h"
#include "backends/cpu/families/tiled/tiled.h"
#include "base/random.h"
#include "numbers/bfloat16.h"
#include "support/cpu_levels.h"
#include "support/executors.h"
#include "support/operation_problems.h"
#include "support/operation_runs.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::cpu {
namespace {

using namespace testing_levels;
using namespace testing_problems;
using namespace testing_runs;

class OperationKernels : public KernelsOfALevel {
 protected:
  void check_all(const KernelFamily& family, const Problem& problem, int configs) {
    if (family.accepts(problem).ok()) check_some(family, problem, truth_of(problem), configs);
  }
};

/// The default with each parameter of a range at the range's ends and at values between that no list holds, one after
/// another.
std::vector<Config> configs_of_ranges(const Space& space, const Config& usual) {
  std::vector<Config> configs;
  for (const Parameter& parameter : space.parameters()) {
    if (!parameter.range) continue;
    const NumberRange& range = *parameter.range;
    const std::int64_t steps = (range.last - range.first) / range.step;
    for (const std::int64_t step :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{7}, steps}) {
      Config config = usual;
      const std::int64_t value = range.first + std::min(step, steps) * range.step;
      EXPECT_TRUE(parameter.holds(std::to_string(value))) << parameter.key << " " << value;
      config.set(parameter.key, value);
      if (space.build_refusal(config).empty()) configs.push_back(config);
    }
  }
  return configs;
}

constexpr Shape dense_shapes[] = {{1, 1, 1},    {1, 257, 130}, {2, 16, 32},   {5, 65, 384},   {17, 48, 129},
                                  {33, 80, 64}, {64, 96, 288}, {70, 33, 600}, {13, 144, 1100}};

TEST_P(OperationKernels, DenseOperationsAreRight) {
  const auto quantized = make_quantized_family(GetParam().set, 3);
  const auto batched = make_batched_family(GetParam().set, 3);
  for (const Shape& shape : dense_shapes)
    for (const Problem& plain : dense_problems(shape))
      for (const auto layout : {WeightLayout::plain, WeightLayout::panel16, WeightLayout::aiter16x16}) {
        Problem problem = plain;
        if (!in_layout(problem, layout)) continue;
        ASSERT_TRUE(check(problem).ok()) << check(problem).message();
        check_all(*quantized, problem, 2);
        check_all(*batched, problem, 2);
      }
  EXPECT_GT(runs_, 200);
}

constexpr Shape tiled_shapes[] = {{1, 1, 1},      {1, 257, 130}, {2, 16, 32},    {5, 65, 384},
                                  {17, 48, 129},  {33, 80, 64},  {70, 33, 600},  {13, 144, 1100},
                                  {129, 70, 160}, {301, 31, 97}, {64, 515, 330}, {150, 140, 2100}};

/// int8 of `tiled`; levels that do not multiply bytes take nothing.
TEST_P(OperationKernels, TiledInt8IsRight) {
  const auto family = make_tiled_family(GetParam().set, 3);
  for (const Shape& shape : tiled_shapes)
    for (const bool bias : {false, true})
      for (const auto layout : {WeightLayout::plain, WeightLayout::panel16}) {
        Problem problem = problem_of(Operation::a8w8, DataType::i8, shape);
        problem.bias = bias;
        ASSERT_TRUE(in_layout(problem, layout));
        ASSERT_TRUE(check(problem).ok()) << check(problem).message();
        check_all(*family, problem, 5);
      }
  const bool there = GetParam().set.at(Isa::avx512bf16) != nullptr;
  EXPECT_EQ(runs_ > 100, there) << runs_;
}

/// Every register tile, the blocks of k in one piece and in several, bit for bit on one thread and on two.
TEST_P(OperationKernels, EveryRegisterTileOfTiledInt8IsRight) {
  const auto family = make_tiled_family(GetParam().set, 2);
  for (const std::int64_t m : {1, 2, 4, 6, 8, 12, 14, 16, 29}) {
    Problem problem = problem_of(OperationForm(Operation::a8w8, true), DataType::i8, {m, 71, 300});
    if (!family->accepts(problem).ok()) continue;
    const Truth truth = truth_of(problem);
    const Space space = family->space(problem);
    for (const std::string& mr : space.parameters()[2].values)
      for (const std::string& nr : space.parameters()[3].values)
        for (const std::string kc : {"128", "512"}) {
          Config config;
          const Config standard = family->default_config(problem);
          for (const auto& [key, value] : standard.settings())
            config.set(key, key == "mr" ? mr : key == "nr" ? nr : key == "kc" ? kc : value);
          if (!space.build_refusal(config).empty()) continue;
          const auto kernel = family->build(problem, config);
          ASSERT_TRUE(kernel.ok()) << kernel.message();
          const auto y = run_kernel(**kernel, problem, truth, serial_);
          ASSERT_EQ(verdict(problem, truth, y), "") << print(problem) << " " << config.text();
          TwoThreadExecutor two;
          ASSERT_EQ(run_kernel(**kernel, problem, truth, two), y) << config.text();
          ++runs_;
        }
  }
  EXPECT_EQ(runs_ > 100, GetParam().set.at(Isa::avx512bf16) != nullptr) << runs_;
}

/// The largest products and the deepest k that int32 holds; what wraps on the way wraps back. A bias of −2³¹
/// leaves what an output of 16 bits can show.
TEST_P(OperationKernels, TheLargestSumsOfInt8AreExact) {
  const auto tiled = make_tiled_family(GetParam().set, 1);
  const auto streaming = make_streaming_family(GetParam().set, 1);
  Problem problem = problem_of(OperationForm(Operation::a8w8, true), DataType::i8, {3, 17, tiled_integer_k});
  problem.weight_layout = WeightLayout::panel16;
  problem.bias = true;
  ASSERT_EQ(problem.y_type, DataType::bf16);
  Truth truth = truth_of(problem);
  std::fill(truth.host.x.begin(), truth.host.x.end(), std::byte{0x80});
  std::fill(truth.host.w.begin(), truth.host.w.end(), std::byte{0x80});
  const float one = 1;
  for (auto* scales : {&truth.host.x_scale, &truth.host.w_scale})
    for (std::size_t at = 0; at < scales->size(); at += 4) std::memcpy(scales->data() + at, &one, 4);
  const std::uint16_t bias = f32_to_bf16(-0x1p31F);
  for (std::size_t at = 0; at < truth.host.bias.size(); at += 2)
    std::memcpy(truth.host.bias.data() + at, &bias, 2);
  for (const KernelFamily* family : {tiled.get(), streaming.get()}) {
    if (!family->accepts(problem).ok()) continue;
    const auto kernel = family->build(problem, family->default_config(problem));
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    const auto y = run_kernel(**kernel, problem, truth, serial_);
    for (std::size_t at = 0; at < y.size(); at += 2) {
      std::uint16_t got = 0;
      std::memcpy(&got, y.data() + at, 2);
      ASSERT_EQ(bf16_to_f32(got), -16384.0F) << family->name() << " element " << at / 2;
    }
    ++runs_;
  }
  EXPECT_EQ(runs_ > 0, GetParam().set.at(Isa::avx512bf16) != nullptr);
}

constexpr Shape moe_shapes[] = {{1, 7, 33}, {3, 64, 96}, {29, 40, 160}, {70, 130, 257}};

TEST_P(OperationKernels, MixturesAreRight) {
  const auto family = make_moe_family(GetParam().set, 3);
  for (const Shape& shape : moe_shapes)
    for (const Problem& problem : mixtures(shape)) {
      ASSERT_TRUE(check(problem).ok()) << check(problem).message();
      ASSERT_TRUE(family->accepts(problem).ok() || GetParam().name == "emulated_amx")
          << family->accepts(problem).message();
      check_all(*family, problem, 3);
    }
  EXPECT_GT(runs_, 60);
}

/// Values that a family does not list but can build (--search-space), in problems of several blocks of them.
TEST_P(OperationKernels, ValuesOfRangesAreRight) {
  const std::unique_ptr<KernelFamily> families[] = {
      make_quantized_family(GetParam().set, 3), make_batched_family(GetParam().set, 3),
      make_moe_family(GetParam().set, 3),       make_tiled_family(GetParam().set, 3),
      make_skinny_family(GetParam().set, 3),    make_streaming_family(GetParam().set, 3),
      make_skinny_w4_family(GetParam().set, 3)};
  std::vector<Problem> problems = {
      problem_of(Operation::a16w16, DataType::bf16, {21, 83, 1100}),
      problem_of(OperationForm(Operation::a8w8, true), DataType::i8, {9, 83, 1100}),
      problem_of(Operation::a8w8_blockscale, DataType::f8_e4m3fn, {21, 83, 1100}),
      problem_of(Operation::batched_bf16, DataType::bf16, {21, 83, 700}),
      moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {40, 66, 1100}),
      int4_problem(Operation::a16w4_int4, DataType::bf16, {21, 83, 1100}, 64, true)};
  problems[0].scale_ab = false;
  problems[1].weight_layout = WeightLayout::panel16;
  std::set<std::string_view> families_run;
  for (const Problem& problem : problems) {
    ASSERT_TRUE(check(problem).ok()) << check(problem).message();
    const Truth truth = truth_of(problem);
    for (const auto& family : families) {
      if (!family->accepts(problem).ok()) continue;
      for (const Config& config :
           configs_of_ranges(family->space(problem), family->default_config(problem))) {
        SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
        const auto kernel = family->build(problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        ASSERT_EQ(verdict(problem, truth, run_kernel(**kernel, problem, truth, serial_)), "");
        families_run.insert(family->name());
      }
    }
  }
  for (const char* name : {"quantized", "batched", "moe", "tiled", "skinny"})
    EXPECT_TRUE(families_run.contains(name) || GetParam().name == "emulated_amx") << name;
}

/// Rows of the weight as they lie: k in several pieces, blocks with one row and with several tiles of them.
TEST_P(OperationKernels, EveryConfigOfRowsAsTheyLieIsRight) {
  const auto family = make_moe_family(GetParam().set, 2);
  const Problem problem = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {40, 66, 1100});
  const Truth truth = truth_of(problem);
  for (const Config& config : family->space(problem).enumerate()) {
    if (config.number("rows") != 1) continue;
    const auto kernel = family->build(problem, config);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    const auto y = run_kernel(**kernel, problem, truth, serial_);
    ASSERT_EQ(verdict(problem, truth, y), "") << config.text();
    TwoThreadExecutor two;
    ASSERT_EQ(run_kernel(**kernel, problem, truth, two), y) << config.text();
    ++runs_;
  }
  const bool there = GetParam().set.at(Isa::avx512bf16) != nullptr;
  EXPECT_EQ(runs_ > 10, there) << runs_;
}

/// One scale for all rows is one number, wherever the operation allows it.
TEST_P(OperationKernels, AScaleOfTheWholeTensorIsReadOnce) {
  Problem problem = problem_of(Operation::batched_a8w8, DataType::i8, {9, 40, 70});
  problem.batch = 2;
  Truth truth = truth_of(problem);
  const float x_scale = 0.03F;
  const float w_scale = 0.004F;
  for (std::size_t at = 0; at < truth.host.x_scale.size(); at += 4)
    std::memcpy(truth.host.x_scale.data() + at, &x_scale, 4);
  for (std::size_t at = 0; at < truth.host.w_scale.size(); at += 4)
    std::memcpy(truth.host.w_scale.data() + at, &w_scale, 4);
  const auto reference = compute_reference(problem, truth.host, {});
  const auto batched = make_batched_family(GetParam().set, 2);
  const auto plain = make_reference_family(Isa::scalar);
  for (const KernelFamily* family : {batched.get(), plain.get()}) {
    const auto kernel = family->build(problem, family->default_config(problem));
    ASSERT_TRUE(kernel.ok());
    std::vector<std::byte> y(static_cast<std::size_t>(operand_shapes(problem).y.bytes()));
    std::vector<std::byte> workspace((*kernel)->workspace_bytes() + 64);
    const Operands operands{.x = truth.host.x.data(),
                            .w = truth.host.w.data(),
                            .x_scale = &x_scale,
                            .w_scale = &w_scale,
                            .y = y.data(),
                            .ldx = problem.k,
                            .ldy = problem.n,
                            .x_scale_step = 0,
                            .w_scale_step = 0,
                            .x_batch_stride = problem.m * problem.k,
                            .y_batch_stride = problem.m * problem.n};
    void* aligned = workspace.data();
    std::size_t space = workspace.size();
    std::align(64, (*kernel)->workspace_bytes(), aligned, space);
    ASSERT_TRUE((*kernel)->run(operands, aligned, Stream{&serial_}).ok());
    EXPECT_EQ(verdict(problem, {truth.host, *reference}, y), "") << family->name();
  }
}

TEST_P(OperationKernels, ResultsAreTheSameBitForBitOnOneTwoAndFourThreads) {
  SerialExecutor one(1);
  SerialExecutor four(4);
  TwoThreadExecutor two;
  const Problem problems[] = {problem_of(Operation::a8w8, DataType::i8, {70, 515, 700}),
                              problem_of(Operation::a4w4_blockscale, DataType::f4_e2m1, {9, 515, 700}),
                              moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {40, 150, 300})};
  for (const Problem& problem : problems)
    for (const auto& family :
         {make_quantized_family(GetParam().set, 4), make_moe_family(GetParam().set, 4)}) {
      if (!family->accepts(problem).ok()) continue;
      const Truth truth = truth_of(problem);
      const auto kernel = family->build(problem, family->default_config(problem));
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const auto first = run_kernel(**kernel, problem, truth, one);
      EXPECT_EQ(run_kernel(**kernel, problem, truth, two), first);
      EXPECT_EQ(run_kernel(**kernel, problem, truth, four), first);
    }
}

/// Padded look-ups give a row tuned for one M to smaller ones.
TEST_P(OperationKernels, ConfigsTunedForMoreRowsRunForFewer) {
  const auto quantized = make_quantized_family(GetParam().set, 2);
  const auto moe = make_moe_family(GetParam().set, 2);
  const std::pair<const KernelFamily*, Problem> cases[] = {
      {quantized.get(), problem_of(Operation::a8w8_blockscale, DataType::f8_e4m3fn, {128, 130, 300})},
      {moe.get(), moe_problem(DataType::i8, DataType::i8, QuantType::per_token, {64, 40, 64})}};
  for (const auto& [family, problem] : cases) {
    std::int64_t index = 0;
    for (const Config& config : family->space(problem).enumerate()) {
      Problem fewer = problem;
      fewer.m = 1 + ++index * 7 % problem.m;
      const auto kernel = family->build(fewer, config);
      ASSERT_TRUE(kernel.ok()) << family->name() << " m=" << fewer.m << " " << kernel.message();
      if (index % 9 != 0) continue;
      const Truth truth = truth_of(fewer);
      ASSERT_EQ(verdict(fewer, truth, run_kernel(**kernel, fewer, truth, serial_)), "")
          << print(fewer) << " " << config.text();
    }
    EXPECT_GT(index, 3);
  }
}

constexpr Shape streaming_shapes[] = {{1, 1, 32},    {1, 257, 130},   {2, 16, 32},   {3, 65, 384},
                                      {5, 130, 129}, {8, 80, 64},     {11, 49, 160}, {16, 95, 96},
                                      {17, 33, 600}, {32, 144, 1100}, {301, 70, 160}};

/// Every config, for the kernels differ in their row tiles; levels without them take nothing.
TEST_P(OperationKernels, StreamedWeightsAreRight) {
  const auto family = make_streaming_family(GetParam().set, 3);
  const bool there = GetParam().set.stream_at(Isa::avx512bf16) != nullptr;
  for (const Shape& shape : streaming_shapes)
    for (const Problem& plain : dense_problems(shape)) {
      Problem problem = plain;
      if (!in_layout(problem, WeightLayout::panel16)) continue;
      ASSERT_TRUE(check(problem).ok()) << check(problem).message();
      check_all(*family, problem, 4);
    }
  EXPECT_EQ(runs_ > 300, there) << runs_;
}

TEST_P(OperationKernels, EveryConfigOfStreamedWeightsIsRight) {
  const auto family = make_streaming_family(GetParam().set, 2);
  const std::pair<OperationForm, DataType> cases[] = {
      {OperationForm(Operation::a8w8, true), DataType::i8},
      {OperationForm(Operation::a8w8, true), DataType::f8_e4m3fn},
      {OperationForm(Operation::a8w8, true), DataType::f8_e4m3fnuz},
      {OperationForm(Operation::a8w8_blockscale, true), DataType::f8_e4m3fn},
      {OperationForm(Operation::a4w4_blockscale), DataType::f4_e2m1}};
  for (const auto& [operation, type] : cases)
    for (const std::int64_t m : {2, 6, 13, 29, 125}) {
      Problem problem = problem_of(operation, type, {m, 100, 1088});
      problem.weight_layout = WeightLayout::panel16;
      if (!family->accepts(problem).ok()) continue;
      const Truth truth = truth_of(problem);
      for (const Config& config : family->space(problem).enumerate()) {
        if (config.number("pf") != 512) continue;
        const auto kernel = family->build(problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        const auto y = run_kernel(**kernel, problem, truth, serial_);
        ASSERT_EQ(verdict(problem, truth, y), "") << print(problem) << " " << config.text();
        TwoThreadExecutor two;
        ASSERT_EQ(run_kernel(**kernel, problem, truth, two), y) << config.text();
        ++runs_;
      }
    }
  EXPECT_EQ(runs_ > 40, GetParam().set.stream_at(Isa::avx512bf16) != nullptr) << runs_;
}

/// A slot of -1 adds nothing, whatever its weight; a token of such slots alone is 0, or what its shared experts add.
TEST_P(OperationKernels, EmptySlotsAddNothing) {
  const auto moe = make_moe_family(GetParam().set, 1);
  const auto reference = make_reference_family(Isa::scalar);
  std::vector<Problem> problems{
      moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {6, 36, 70}),
      moe_problem(DataType::i8, DataType::i8, QuantType::per_token, {6, 36, 70}),
      moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {6, 36, 70})};
  problems[1].moe.shared_experts = 1;
  problems[1].moe.doweight_stage1 = true;
  problems[2].bias = true;
  for (const Problem& problem : problems) {
    Truth truth = truth_of(problem);
    const auto slots = static_cast<std::size_t>(problem.moe.routed_topk());
    const auto empty = [&](std::size_t token, std::size_t slot) {
      truth.host.topk_ids[token * slots + slot] = -1;
      truth.host.topk_weights[token * slots + slot] = std::numeric_limits<float>::quiet_NaN();
    };
    empty(0, 0);
    empty(2, slots - 1);
    for (const std::size_t token : {1U, 5U})
      for (std::size_t slot = 0; slot < slots; ++slot) empty(token, slot);
    truth = truth_of(problem, std::move(truth.host));
    for (const KernelFamily* family : {moe.get(), reference.get()}) {
      for (const Config& config : some_configs(*family, problem, 4, random_)) {
        SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
        const auto kernel = family->build(problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        const auto y = run_kernel(**kernel, problem, truth, serial_);
        ASSERT_EQ(verdict(problem, truth, y), "");
        TwoThreadExecutor two;
        ASSERT_EQ(run_kernel(**kernel, problem, truth, two), y);
        if (problem.moe.shared_experts > 0) continue;
        for (const std::int64_t token : {1, 5})
          for (std::int64_t i = token * problem.k * 2; i < (token + 1) * problem.k * 2; ++i)
            ASSERT_EQ(y[static_cast<std::size_t>(i)], std::byte{0}) << token;
      }
    }
  }
}

TEST_P(OperationKernels, NoSlotAtAllIsZero) {
  const auto moe = make_moe_family(GetParam().set, 1);
  const auto reference = make_reference_family(Isa::scalar);
  const Problem problem = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {3, 8, 32});
  Truth truth = truth_of(problem);
  std::fill(truth.host.topk_ids.begin(), truth.host.topk_ids.end(), -1);
  const std::vector<std::byte> zeros(static_cast<std::size_t>(operand_shapes(problem).y.bytes()));
  for (const KernelFamily* family : {moe.get(), reference.get()})
    for (const Config& config : some_configs(*family, problem, 4, random_)) {
      const auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      EXPECT_EQ(run_kernel(**kernel, problem, truth, serial_), zeros) << config.text();
    }
}

/// What a family makes of one element 6 of w with the scale `code`, times x, in each of its configs.
void expect_one_product(const KernelFamily& family, Problem problem, float x, std::uint8_t code,
                        float expected, Random& random, Executor& executor, int& runs) {
  if (!family.accepts(problem).ok()) return;
  Truth truth = truth_of(problem);
  HostOperands& host = truth.host;
  std::fill(host.x.begin(), host.x.end(), std::byte{0});
  std::fill(host.w.begin(), host.w.end(), std::byte{0});
  std::fill(host.w_scale.begin(), host.w_scale.end(), std::byte{127});
  // Row 1 of x, column 3 of w, k = 33.
  const std::uint16_t bits = f32_to_bf16(x);
  std::memcpy(host.x.data() + (problem.k + 33) * 2, &bits, 2);
  host.w[static_cast<std::size_t>(3 * problem.k / 2 + 16)] = std::byte{0x70};
  host.w_scale[static_cast<std::size_t>(3 * problem.k / 32 + 1)] = std::byte{code};
  for (const Config& config : some_configs(family, problem, 6, random)) {
    SCOPED_TRACE(print(problem) + " " + std::string(family.name()) + "_" + config.text());
    const auto kernel = family.build(problem, config);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    const auto y = run_kernel(**kernel, problem, truth, executor);
    for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
      std::uint16_t found = 0;
      std::memcpy(&found, y.data() + i * 2, 2);
      ASSERT_EQ(bf16_to_f32(found), i == problem.n + 3 ? expected : 0.0F) << i << " of code " << int{code};
    }
    ++runs;
  }
}

/// 6 · 2^126 and 6 · 2^127 are more than bf16 and float32 hold, 0.5 · 2^-127 is subnormal: the product with x is neither.
TEST_P(OperationKernels, TheEndsOfMxfp4ScalesAreExactWhereTheProductIs) {
  const auto quantized = make_quantized_family(GetParam().set, 1);
  const auto skinny = make_skinny_w4_family(GetParam().set, 1);
  for (const WeightLayout layout : {WeightLayout::plain, WeightLayout::panel16, WeightLayout::aiter16x16}) {
    Problem problem = problem_of(Operation::a16w4, DataType::bf16, {3, 32, 320});
    problem.y_type = DataType::bf16;
    if (!in_layout(problem, layout)) continue;
    const std::tuple<float, std::uint8_t, float> cases[] = {
        {0x1p-20F, 252, 6 * 0x1p105F}, {0x1p-20F, 253, 6 * 0x1p106F}, {0x1p-20F, 254, 6 * 0x1p107F},
        {0x1p100F, 0, 6 * 0x1p-27F},   {0x1p100F, 1, 6 * 0x1p-26F},   {0x1p100F, 2, 6 * 0x1p-25F}};
    for (const auto& [x, code, expected] : cases)
      for (const KernelFamily* family : {quantized.get(), skinny.get()})
        expect_one_product(*family, problem, x, code, expected, random_, serial_, runs_);
  }
  EXPECT_GT(runs_, 20);
}

/// The same behind float32 scales of 128 elements: as small or as large as the results need.
TEST_P(OperationKernels, TheEndsOfMxfp4ScalesAreExactBesideFloatScalesOfTokens) {
  const auto moe = make_moe_family(GetParam().set, 1);
  Problem problem = moe_problem(DataType::f8_e4m3fn, DataType::f4_e2m1, QuantType::per_1x128, {6, 288, 352});
  problem.y_type = DataType::bf16;
  problem.moe.gated = false;
  const std::tuple<std::uint8_t, float, std::uint8_t> cases[] = {
      {127, 0x1p-30F, 252},  {127, 0x1p-30F, 253},  {127, 0x1p-30F, 254}, {252, 0x1p-126F, 127},
      {254, 0x1p-126F, 127}, {254, 0x1p-126F, 229}, {0, 0x1p110F, 140},   {127, 0x1p30F, 0}};
  for (const auto& [code, x_scale, code2] : cases) {
    Truth truth = truth_of(problem);
    HostOperands& host = truth.host;
    // Every third block is large: the others keep scales near 1, which vanish beside it. All are small.
    for (auto& [scales, all] : {std::pair{&host.w_scale, code}, std::pair{&host.w2_scale, code2}})
      for (std::size_t i = 0; i < scales->size(); i += all == 0 ? 1 : 3) (*scales)[i] = std::byte{all};
    for (std::size_t i = 0; i < host.x_scale.size(); i += 4)
      std::memcpy(host.x_scale.data() + i, &x_scale, sizeof(x_scale));
    truth = truth_of(problem, std::move(host));
    for (const Config& config : some_configs(*moe, problem, 4, random_)) {
      SCOPED_TRACE(std::to_string(code) + " " + std::to_string(code2) + " moe_" + config.text());
      const auto kernel = moe->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const auto y = run_kernel(**kernel, problem, truth, serial_);
      ASSERT_EQ(verdict(problem, truth, y), "");
      std::int64_t there = 0;
      for (std::int64_t i = 0; i < problem.m * problem.k; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, y.data() + i * 2, 2);
        ASSERT_TRUE(std::isfinite(bf16_to_f32(bits))) << i;
        there += bf16_to_f32(bits) != 0 ? 1 : 0;
      }
      EXPECT_GT(there, problem.m * problem.k / 2);
      ++runs_;
    }
  }
  EXPECT_GT(runs_, 20);
}

/// All codes in x and w, all elements: what is large in one is small in the other.
TEST_P(OperationKernels, EveryScaleOfEveryMxTypeIsRight) {
  const auto streaming = make_streaming_family(GetParam().set, 1);
  const auto quantized = make_quantized_family(GetParam().set, 1);
  const auto moe = make_moe_family(GetParam().set, 1);
  std::vector<Problem> problems;
  for (const std::int64_t m : {3, 17}) {
    problems.push_back(problem_of(Operation::a4w4_blockscale, DataType::f4_e2m1, {m, 37, 320}));
    problems.back().weight_layout = WeightLayout::panel16;
    problems.push_back(problem_of(Operation::a16w4, DataType::bf16, {m, 37, 320}));
  }
  problems.push_back(moe_problem(DataType::f8_e4m3fn, DataType::f8_e4m3fn, QuantType::per_1x32, {6, 64, 96}));
  problems.push_back(moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {6, 64, 96}));
  problems.push_back(
      moe_problem(DataType::f8_e4m3fn, DataType::f4_e2m1, QuantType::per_1x128, {6, 288, 352}));
  for (Problem& problem : problems) {
    problem.y_type = DataType::bf16;
    const Truth truth = truth_of_all_scales(problem);
    for (const KernelFamily* family : {streaming.get(), quantized.get(), moe.get()}) {
      if (!family->accepts(problem).ok()) continue;
      for (const Config& config : some_configs(*family, problem, 4, random_)) {
        SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
        const auto kernel = family->build(problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        ASSERT_EQ(verdict(problem, truth, run_kernel(**kernel, problem, truth, serial_)), "");
        ++runs_;
      }
    }
  }
  EXPECT_GT(runs_, 10);
}

/// e8m0 scales at both ends of what bf16 holds, in x and in w: beyond 252 weights are decoded another way.
/// 255 is NaN for its rows or columns and no others.
TEST_P(OperationKernels, TheLargestAndTheSmallestScalesOfFp4AreExact) {
  constexpr unsigned char ends[] = {2, 3, 4, 249, 250, 251, 252, 253, 254};
  const auto streaming = make_streaming_family(GetParam().set, 1);
  const auto quantized = make_quantized_family(GetParam().set, 1);
  for (const std::int64_t m : {3, 17}) {
    Problem problem = problem_of(Operation::a4w4_blockscale, DataType::f4_e2m1, {m, 37, 320});
    problem.weight_layout = WeightLayout::panel16;
    Truth truth = truth_of(problem);
    auto& x_scale = truth.host.x_scale;
    auto& w_scale = truth.host.w_scale;
    // 0 or ±1: larger ones overflow with the largest scales.
    for (auto* codes : {&truth.host.x, &truth.host.w})
      for (std::byte& two : *codes) two &= std::byte{0xaa};
    // Blocks of k take turns: what is large in x is small in w. Below 2^-126 bf16 is subnormal, which counts
    // as 0.
    for (std::size_t i = 0; i < w_scale.size(); ++i) w_scale[i] = std::byte{ends[i % 10 % std::size(ends)]};
    for (std::size_t i = 0; i < x_scale.size(); ++i)
      x_scale[i] = std::byte{static_cast<unsigned char>(std::max(254 - ends[i % 10 % std::size(ends)], 1))};
    truth = truth_of(problem, std::move(truth.host));
    Truth with_nan = truth;
    with_nan.host.w_scale[5 * 10 + 4] = std::byte{255};
    with_nan.host.x_scale[2 * 10 + 7] = std::byte{255};
    for (const KernelFamily* family : {streaming.get(), quantized.get()}) {
      if (!family->accepts(problem).ok()) continue;
      for (const Config& config : some_configs(*family, problem, 6, random_)) {
        SCOPED_TRACE(print(problem) + " " + std::string(family->name()) + "_" + config.text());
        const auto kernel = family->build(problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        ASSERT_EQ(verdict(problem, truth, run_kernel(**kernel, problem, truth, serial_)), "");
        const auto y = run_kernel(**kernel, problem, with_nan, serial_);
        check_nans(problem, y, [](std::int64_t row, std::int64_t column) { return column == 5 || row == 2; });
        if (HasFatalFailure()) return;
        ++runs_;
      }
    }
  }
  EXPECT_GT(runs_, 10);
}

INSTANTIATE_TEST_SUITE_P(Levels, OperationKernels, ::testing::ValuesIn(levels()),
                         [](const auto& test) { return test.param.name; });

TEST(ReferenceFamily, TakesEveryOperation) {
  const auto family = make_reference_family(Isa::scalar);
  SerialExecutor serial(2);
  std::vector<Problem> problems = dense_problems({5, 48, 192});
  for (const Problem& plain : dense_problems({5, 48, 192}))
    for (const auto layout : {WeightLayout::panel16, WeightLayout::aiter16x16}) {
      problems.push_back(plain);
      if (!in_layout(problems.back(), layout)) problems.pop_back();
    }
  for (const Problem& problem : mixtures({6, 36, 70})) problems.push_back(problem);
  for (const Problem& problem : problems) {
    ASSERT_TRUE(family->accepts(problem).ok()) << print(problem) << family->accepts(problem).message();
    const Truth truth = truth_of(problem);
    const auto kernel = family->build(problem, family->default_config(problem));
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    EXPECT_EQ(verdict(problem, truth, run_kernel(**kernel, problem, truth, serial)), "") << print(problem);
  }
}

TEST(MoeFamily, ExpertsOutOfRangeAreNamedAndNothingIsWritten) {
  const Problem problem = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {2, 8, 32});
  for (const auto& family : {make_moe_family(Isa::scalar, 1), make_reference_family(Isa::scalar)}) {
    Truth truth = truth_of(problem);
    truth.host.topk_ids[4] = 5;
    SerialExecutor serial(1);
    const auto kernel = family->build(problem, family->default_config(problem));
    std::vector<std::byte> y(static_cast<std::size_t>(operand_shapes(problem).y.bytes()), std::byte{7});
    const std::vector<std::byte> before = y;
    std::vector<std::byte> workspace((*kernel)->workspace_bytes() + 64);
    const Operands operands{.x = truth.host.x.data(),
                            .w = truth.host.w.data(),
                            .y = y.data(),
                            .ldx = problem.k,
                            .ldy = problem.k,
                            .w2 = truth.host.w2.data(),
                            .topk_ids = truth.host.topk_ids.data(),
                            .topk_weights = truth.host.topk_weights.data()};
    const Status status = (*kernel)->run(operands, workspace.data(), Stream{&serial});
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_EQ(status.message(), "topk_ids[1][1] = 5, expected 0 to 4, or -1 for an empty slot");
    EXPECT_EQ(y, before);
    truth.host.topk_ids[4] = -2;
    EXPECT_EQ((*kernel)->run(operands, workspace.data(), Stream{&serial}).message(),
              "topk_ids[1][1] = -2, expected 0 to 4, or -1 for an empty slot");
    EXPECT_EQ(y, before);
  }
}

// Random operands hardly reach the limits.
TEST_P(OperationKernels, SwigluClampsAtItsLimits) {
  constexpr long count = 67;
  std::vector<float> gate(count);
  std::vector<float> up(count);
  std::vector<float> out(count);
  for (long i = 0; i < count; ++i) {
    gate[static_cast<std::size_t>(i)] = static_cast<float>(i - 33) / 1.5F;
    up[static_cast<std::size_t>(i)] = static_cast<float>((i * 29) % count - 33) / 1.25F;
  }
  const float weight = 0.75F;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::amx}) {
    if (GetParam().set.at(isa) == nullptr) continue;
    decode_kernels(isa).swiglu(
        {.gate = gate.data(), .up = up.data(), .weight = weight, .count = count, .out = out.data()});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double g = std::min<double>(gate[i] * weight, 7);
      const double u = std::clamp<double>(up[i] * weight, -7, 7);
      const double expected = g / (1 + std::exp(-1.702 * g)) * (u + 1);
      EXPECT_NEAR(out[i], expected, 1e-5 * std::fabs(expected) + 1e-7) << gate[i] << " " << up[i];
    }
  }
}

TEST(MoeFamily, RefusesWhatItHasNoDefinitionFor) {
  const auto family = make_moe_family(Isa::scalar, 1);
  Problem problem = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {2, 8, 32});
  problem.moe.activation = Activation::situv2;
  EXPECT_NE(family->accepts(problem).message().find("activation"), std::string::npos);
  problem.moe.activation = Activation::swiglu;
  EXPECT_TRUE(family->accepts(problem).ok());
  problem.moe.gated = false;
  EXPECT_NE(family->accepts(problem).message().find("activation"), std::string::npos);
  problem = moe_problem(DataType::bf16, DataType::u8, QuantType::per_token, {2, 8, 32});
  EXPECT_NE(family->accepts(problem).message().find("types"), std::string::npos);
  problem = problem_of(Operation::a8w8, DataType::i8, {2, 8, 32});
  EXPECT_NE(family->accepts(problem).message().find("operation"), std::string::npos);
}

}  // namespace
}  // namespace gemmtune::cpu
