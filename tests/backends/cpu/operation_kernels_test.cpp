// The families of scaled, batched and mixed operations against the float64 reference: every operation, every
// level of this machine (and emulated tiles), every layout, awkward shapes, with memory that ends at an
// unreadable page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/moe/moe.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/streaming/streaming.h"
#include "backends/cpu/families/tiled/tiled.h"
#include "base/random.h"
#include "numbers/bfloat16.h"
#include "support/emulated_tiles.h"
#include "support/executors.h"
#include "support/fenced_memory.h"
#include "support/operation_problems.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::cpu {
namespace {

using namespace testing_problems;

constexpr std::int64_t pad = 6;  // of rows of x and y, in elements

struct Truth {
  HostOperands host;
  Reference reference;
};

Truth truth_of(const Problem& problem) {
  auto host = make_inputs(problem, 9);
  EXPECT_TRUE(host.ok()) << host.message();
  auto reference = compute_reference(problem, *host, {});
  EXPECT_TRUE(reference.ok()) << reference.message();
  return {std::move(*host), std::move(*reference)};
}

/// Bytes that end at an unreadable page.
class Fenced {
 public:
  explicit Fenced(const std::vector<std::byte>& bytes) : memory_(bytes.size(), Fence::after) {
    if (!bytes.empty()) std::memcpy(memory_.data(), bytes.data(), bytes.size());
  }
  const void* data() const { return memory_.data(); }

 private:
  FencedMemory memory_;
};

std::vector<std::byte> packed(const MatrixShape& shape, WeightLayout layout,
                              const std::vector<std::byte>& plain) {
  if (layout == WeightLayout::plain) return plain;
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.count * layout_bytes(shape, layout)));
  pack_matrices(shape, layout, plain.data(), bytes.data());
  return bytes;
}

/// Rows of x `pad` elements further apart than they are long; nothing behind the last one.
std::vector<std::byte> with_gaps(const MatrixShape& x, const std::vector<std::byte>& dense) {
  const std::int64_t row = bytes_of(x.type, x.columns);
  const std::int64_t stride = bytes_of(x.type, x.columns + pad);
  std::vector<std::byte> bytes(static_cast<std::size_t>((x.count * x.rows - 1) * stride + row),
                               std::byte{0xff});
  for (std::int64_t i = 0; i < x.count * x.rows; ++i)
    std::memcpy(bytes.data() + i * stride, dense.data() + i * row, static_cast<std::size_t>(row));
  return bytes;
}

/// y of a run, dense; empty where the kernel failed or wrote elsewhere.
std::vector<std::byte> run_kernel(const Kernel& kernel, const Problem& problem, const Truth& truth,
                                  Executor& executor) {
  const OperandShapes shapes = operand_shapes(problem);
  const HostOperands& host = truth.host;
  const Fenced x(with_gaps(shapes.x, host.x));
  const Fenced w(packed(shapes.w, kernel.weight_layout(), host.w));
  const Fenced w2(host.w2);
  const Fenced bias(host.bias);
  const Fenced x_scale(host.x_scale);
  const Fenced w_scale(host.w_scale);
  const Fenced w2_scale(host.w2_scale);
  const Fenced bias2(host.bias2);
  const std::int64_t columns = output_columns(problem);
  const std::int64_t ldy = columns + pad;
  const std::int64_t size = bytes_of(problem.y_type, 1);
  const std::int64_t rows = problem.batch * problem.m;
  FencedMemory y(static_cast<std::size_t>(((rows - 1) * ldy + columns) * size), Fence::after);
  FencedMemory workspace((kernel.workspace_bytes() + 63) / 64 * 64, Fence::after);
  const auto or_null = [](const Fenced& memory, const std::vector<std::byte>& bytes) {
    return bytes.empty() ? nullptr : memory.data();
  };
  const Operands operands{.x = x.data(),
                          .w = w.data(),
                          .bias = or_null(bias, host.bias),
                          .x_scale = or_null(x_scale, host.x_scale),
                          .w_scale = or_null(w_scale, host.w_scale),
                          .y = y.data(),
                          .ldx = problem.k + pad,
                          .ldy = ldy,
                          .x_batch_stride = problem.m * (problem.k + pad),
                          .y_batch_stride = problem.m * ldy,
                          .w2 = or_null(w2, host.w2),
                          .w2_scale = or_null(w2_scale, host.w2_scale),
                          .bias2 = reinterpret_cast<const float*>(or_null(bias2, host.bias2)),
                          .topk_ids = host.topk_ids.data(),
                          .topk_weights = host.topk_weights.data()};
  const Status status = kernel.run(operands, workspace.data(), Stream{&executor});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(workspace.surroundings_intact()) << "workspace";
  EXPECT_TRUE(y.surroundings_intact()) << "y";
  std::vector<std::byte> dense(static_cast<std::size_t>(rows * columns * size));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(dense.data() + row * columns * size, y.data() + row * ldy * size,
                static_cast<std::size_t>(columns * size));
    for (std::int64_t byte = columns * size; row + 1 < rows && byte < ldy * size; ++byte)
      EXPECT_EQ(y.data()[row * ldy * size + byte], FencedMemory::poison) << "behind row " << row;
  }
  return dense;
}

std::string verdict(const Problem& problem, const Truth& truth, const std::vector<std::byte>& y) {
  const CheckReport report =
      check_output(problem, truth.reference, y, output_columns(problem), tolerance_for(problem, 0.05));
  return report.right ? "" : report.reason;
}

/// The default, and allowed configs at random.
std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem, int wanted,
                                 Random& random) {
  const Space space = family.space(problem);
  std::vector<Config> configs{family.default_config(problem)};
  // A name is a promise: it reads back.
  std::vector<std::string> keys;
  for (const Parameter& parameter : space.parameters()) keys.push_back(parameter.key);
  std::size_t at = 0;
  for (const auto& [key, value] : configs[0].settings()) {
    while (at < keys.size() && keys[at] != key) ++at;
    EXPECT_LT(at, keys.size()) << key << " stands out of order in " << configs[0].text();
  }
  for (int attempt = 0; attempt < 3000 && static_cast<int>(configs.size()) <= wanted; ++attempt) {
    Config config;
    for (const Parameter& parameter : space.parameters())
      config.set(parameter.key, parameter.values[random.below(parameter.values.size())]);
    if (space.refusal(config).empty()) configs.push_back(config);
  }
  return configs;
}

struct Level {
  std::string name;
  KernelSet set;
};

std::vector<Level> levels() {
  std::vector<Level> all;
  for (int i = 0; i <= static_cast<int>(detect_isa()); ++i)
    all.push_back({std::string(to_string(static_cast<Isa>(i))), kernel_set(static_cast<Isa>(i))});
  // The level decodes weights with the machine's AVX-512: without that only the kernels of plain types are emulated
  // (cpu_kernels_test).
  if (detect_isa() >= Isa::avx512bf16) all.push_back({"emulated_amx", emulated_amx_set()});
  return all;
}

class OperationKernels : public ::testing::TestWithParam<Level> {
 protected:
  void check_all(const KernelFamily& family, const Problem& problem, int configs) {
    if (!family.accepts(problem).ok()) return;
    const Truth truth = truth_of(problem);
    for (const Config& config : some_configs(family, problem, configs, random_)) {
      SCOPED_TRACE(print(problem) + " " + std::string(family.name()) + "_" + config.text());
      const auto kernel = family.build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      ASSERT_EQ(verdict(problem, truth, run_kernel(**kernel, problem, truth, serial_)), "");
      ++runs_;
    }
  }

  Random random_{5};
  SerialExecutor serial_{3};
  int runs_ = 0;
};

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
    Problem problem = problem_of(Operation::a8w8_bpreshuffle, DataType::i8, {m, 71, 300});
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
  Problem problem = problem_of(Operation::a8w8_bpreshuffle, DataType::i8, {3, 17, tiled_integer_k});
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
  const std::pair<Operation, DataType> cases[] = {
      {Operation::a8w8_bpreshuffle, DataType::i8},
      {Operation::a8w8_bpreshuffle, DataType::f8_e4m3fn},
      {Operation::a8w8_bpreshuffle, DataType::f8_e4m3fnuz},
      {Operation::a8w8_blockscale_bpreshuffle, DataType::f8_e4m3fn},
      {Operation::a4w4_blockscale, DataType::f4_e2m1}};
  for (const auto& [operation, type] : cases)
    for (const std::int64_t m : {2, 6, 13, 29, 125}) {
      Problem problem = problem_of(operation, type, {m, 100, 1088});
      problem.bpreshuffle = true;
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

/// e8m0 scales at both ends of what bf16 holds, in x and in w: beyond 252 weights are decoded another way.
/// 255 is NaN for its rows or columns and no others.
TEST_P(OperationKernels, TheLargestAndTheSmallestScalesOfFp4AreExact) {
  constexpr unsigned char ends[] = {2, 3, 4, 249, 250, 251, 252, 253, 254};
  const auto streaming = make_streaming_family(GetParam().set, 1);
  const auto quantized = make_quantized_family(GetParam().set, 1);
  for (const std::int64_t m : {3, 17}) {
    Problem problem = problem_of(Operation::a4w4_blockscale, DataType::f4_e2m1, {m, 37, 320});
    problem.bpreshuffle = true;
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
    auto reference = compute_reference(problem, truth.host, {});
    ASSERT_TRUE(reference.ok()) << reference.message();
    truth.reference = std::move(*reference);
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
        for (std::int64_t i = 0; i < m * problem.n; ++i) {
          std::uint16_t bits = 0;
          std::memcpy(&bits, y.data() + i * 2, 2);
          const bool expected = i % problem.n == 5 || i / problem.n == 2;
          ASSERT_EQ(std::isnan(bf16_to_f32(bits)), expected) << "element " << i;
        }
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
    EXPECT_EQ(status.message(), "topk_ids[1][1] = 5, expected 0 to 4");
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
