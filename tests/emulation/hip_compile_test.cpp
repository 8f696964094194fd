// The corner configs of every family of AMD GPUs compile for gfx90a, gfx942 and, where clang 20 or newer is found, gfx950, have the matrix instructions that they
// promise, do not spill, and fit the occupancy asked for. Needs clang, no GPU and nothing of ROCm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "backends/gpu/activation/silu_and_mul.h"
#include "backends/gpu/families/own_families.h"
#include "backends/gpu/fill/random_fill.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/pack/pack.h"
#include "backends/gpu/verify/output_checker.h"
#include "backends/hip/families/mfma/mfma_launch_config.h"
#include "backends/hip/families/mfma_moe/mfma_moe_launch_config.h"
#include "backends/hip/families/own_families.h"
#include "support/dense_problem.h"
#include "support/hip_compiler/clang_runtime.h"
#include "support/kernel_names.h"
#include "support/operation_problems.h"
#include "support/range_values.h"
#include "support/thoroughness.h"

namespace gemmtune {
namespace {

using test::ClangRuntime;
using test::is_soak;
using test::is_thorough;

/// Those that hold a value of a parameter which none before them holds; `keys`: of these parameters, else of all.
std::vector<Config> first_with(const std::vector<Config>& configs, const std::set<std::string>& keys) {
  std::vector<Config> few;
  std::set<std::string> seen;
  for (const Config& config : configs) {
    bool adds = false;
    for (const auto& [key, value] : config.settings())
      adds |= (keys.empty() || keys.contains(key)) && seen.insert(key + value).second;
    if (adds) few.push_back(config);
  }
  return few;
}

/// What is the same text for all architectures is compiled for one of them, unless GEMMTUNE_THOROUGH asks for all.
bool sees_all(const ClangRuntime& runtime) { return runtime.architecture() == "gfx942" || is_thorough(); }

/// Configs that can be built with each parameter at its first or last value; those of wide tiles, which need most registers,
/// first. Without GEMMTUNE_SOAK each value of each parameter once or twice.
std::vector<Config> corners_of(const KernelFamily& family, const Problem& problem) {
  const Space space = family.space(problem);
  std::vector<Config> found{Config()};
  for (const Parameter& parameter : space.parameters()) {
    std::vector<Config> longer;
    for (const Config& config : found) {
      std::set<std::string> values{parameter.values.front(), parameter.values.back()};
      if (parameter.key == "bk" && quantization(problem) == QuantType::per_1x128) values = {"128"};
      for (const std::string& value : values) {
        // What the source does not depend on.
        if ((parameter.key == "gm" || parameter.key == "xcd") && value != parameter.values.back()) continue;
        longer.push_back(config);
        longer.back().set(parameter.key, value);
      }
    }
    found = std::move(longer);
  }
  std::erase_if(found, [&](const Config& config) { return !space.build_refusal(config).empty(); });
  std::stable_sort(found.begin(), found.end(), [](const Config& a, const Config& b) {
    return a.number("bm") * a.number("bn") > b.number("bm") * b.number("bn");
  });
  if (is_soak()) {
    // And what was drawn from the middle of the space.
    std::mt19937 random(11);
    for (int drawn = 0, tries = 0; drawn < 24 && tries < 4000; ++tries) {
      Config config;
      for (const Parameter& parameter : space.parameters())
        config.set(parameter.key, parameter.values[random() % parameter.values.size()]);
      if (!space.build_refusal(config).empty()) continue;
      found.push_back(config);
      ++drawn;
    }
    return found;
  }
  return first_with(found, {});
}

/// The instruction of a problem's type, as the assembler has it.
std::string instruction_of(const Problem& problem, const hip::MfmaLaunchConfig& launch,
                           const std::string& architecture) {
  const bool wide = launch.rows == 32;
  if (launch.scaled) return wide ? "v_mfma_scale_f32_32x32x64_f8f6f4" : "v_mfma_scale_f32_16x16x128_f8f6f4";
  if (launch.paired) return wide ? "v_mfma_f32_32x32x64_f8f6f4" : "v_mfma_f32_16x16x128_f8f6f4";
  const DataType type = launch.decoded ? DataType::bf16 : problem.x_type;
  if (launch.wide) {
    if (type == DataType::i8) return wide ? "v_mfma_i32_32x32x32_i8" : "v_mfma_i32_16x16x64_i8";
    return std::string(wide ? "v_mfma_f32_32x32x16" : "v_mfma_f32_16x16x32") +
           (type == DataType::bf16 ? "_bf16" : "_f16");
  }
  const std::string shape16 = wide ? "32x32x8" : "16x16x16";
  const std::string shape8 = wide ? "32x32x16" : "16x16x32";
  switch (type) {
    case DataType::bf16:
      return "v_mfma_f32_" + shape16 + (architecture == "gfx90a" ? "bf16_1k" : "_bf16");
    case DataType::f16:
      return "v_mfma_f32_" + shape16 + (architecture == "gfx90a" ? "f16" : "_f16");
    case DataType::i8:
      return architecture == "gfx90a" ? "v_mfma_i32_" + shape16 + "i8" : "v_mfma_i32_" + shape8 + "_i8";
    default:
      return "v_mfma_f32_" + shape8 + "_fp8_fp8";
  }
}

/// What is compiled of a problem's corners beside the default config. Without GEMMTUNE_THOROUGH what other problems' tests have is left to
/// them: of `all` the other architectures see those which differ in instructions, and of `widest` no default is compiled.
enum class Corners {
  all,
  instructions,  // each value of what chooses instructions
  widest,        // the widest tile
};

std::vector<Config> compiled_configs(const KernelFamily& family, const ClangRuntime& runtime,
                                     const Problem& problem, Corners which) {
  std::vector<Config> configs = corners_of(family, problem);
  expect_names_are_read_back(family, problem, configs);
  EXPECT_FALSE(configs.empty()) << print(problem);
  if (configs.empty()) return configs;
  if (which == Corners::widest && !is_soak()) configs.resize(1);
  if (which == Corners::widest && !is_thorough()) {
    static std::map<std::string, test::Turns> turns;
    // Other architectures see every second problem.
    const int period = runtime.architecture() == "gfx942" ? 1 : 2;
    if (!turns.try_emplace(runtime.architecture(), period).first->second.is_next()) configs.clear();
    return configs;
  }
  const bool is_first = which == Corners::all && runtime.architecture() == "gfx942";
  if (!is_first && !is_thorough()) configs = first_with(configs, {"mi", "kp", "dl"});
  if (sees_all(runtime)) configs.push_back(family.default_config(problem));
  return configs;
}

void expect_mfma(const KernelFamily& family, ClangRuntime& runtime, const Problem& problem,
                 Corners which = Corners::all) {
  ASSERT_TRUE(family.accepts(problem).ok()) << family.accepts(problem).message();
  for (const Config& config : compiled_configs(family, runtime, problem, which)) {
    const std::string what = runtime.architecture() + " " + print(problem) + " " + config.text();
    const auto kernel = family.build(problem, config);
    EXPECT_TRUE(kernel.ok()) << what << ": " << kernel.message();
    if (!kernel.ok()) continue;
    const test::CodeObject& object = runtime.last;
    const hip::MfmaLaunchConfig launch = hip::mfma_launch_config(problem, config, runtime.architecture());
    EXPECT_EQ(object.spilled_registers, 0) << what;
    EXPECT_EQ(object.scratch_bytes, 0) << what;
    EXPECT_EQ(object.count("scratch_"), 0) << what;
    // The model's instructions of a tile, in a loop that may have a copy.
    const std::string instruction = instruction_of(problem, launch, runtime.architecture());
    const int matrix = object.instructions.count(instruction) > 0 ? object.instructions.at(instruction) : 0;
    EXPECT_GT(matrix, 0) << what;
    EXPECT_EQ(matrix % launch.mfma_instructions(), 0) << what << ": " << matrix;
    EXPECT_EQ(object.count("v_mfma"), matrix) << what;
    // As many elements are decoded as the model counts, in the loop, before it, and in copies of it.
    const int in_a_unit = runtime.architecture() == "gfx950" ? 4 : 16;
    const int decoding =
        object.count(runtime.architecture() == "gfx950" ? "v_cvt_scalef32_pk_bf16_fp4" : "v_perm_b32");
    const std::int64_t fp8_units = runtime.architecture() == "gfx950" ? 0 : launch.decoded_fp8_units();
    const std::int64_t transposing = launch.transposed_units() * (launch.element_bits == 8 ? 8 : 4);
    const std::int64_t least = launch.decoded_fp4_units() * in_a_unit + fp8_units * 4;
    if (transposing > 0) {
      const int permutations = object.count("v_perm_b32");
      EXPECT_GE(permutations, transposing) << what;
      EXPECT_LE(permutations, 4 * transposing) << what;
    } else {
      EXPECT_GE(decoding, least) << what;
      EXPECT_LE(decoding, launch.decoded ? 4 * least : 0) << what;
    }
    const std::int64_t read_bytes = launch.lds_reads() * 8 * launch.kpack;
    EXPECT_GT(object.lds_read_bytes(), 0) << what;
    EXPECT_EQ(object.lds_read_bytes() % read_bytes, 0) << what << ": " << object.lds_read_bytes();
    EXPECT_EQ(object.count("ds_write") == 0, launch.direct) << what;
    // As many waves fit into a SIMD's registers and a unit's LDS as the config asks for.
    const std::int64_t waves =
        std::max<std::int64_t>({1, launch.waves_per_eu, launch.waves / hip::simds_per_unit});
    EXPECT_LE(object.registers, hip::registers_per_lane / waves) << what;
    EXPECT_LE(static_cast<std::size_t>(launch.shared_bytes + object.lds_bytes),
              runtime.limits().shared_bytes_per_block)
        << what;
  }
}

/// The fp8 of an architecture's instructions.
std::optional<DataType> fp8_of(std::string_view architecture) {
  const gpu::Fp8 fp8 = hip::fp8_of(architecture);
  if (fp8 == gpu::Fp8::none) return std::nullopt;
  return fp8 == gpu::Fp8::fn ? DataType::f8_e4m3fn : DataType::f8_e4m3fnuz;
}

std::string name_of(const ::testing::TestParamInfo<const char*>& tested) { return tested.param; }

class HipCompile : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Architectures, HipCompile, ::testing::Values("gfx90a", "gfx942", "gfx950"), name_of);

/// What is the same text for all architectures: compiled for one of them, unless GEMMTUNE_THOROUGH asks for all.
class HipCompileOnOne : public HipCompile {};
INSTANTIATE_TEST_SUITE_P(Architectures, HipCompileOnOne,
                         ::testing::ValuesIn(is_thorough() ? std::vector{"gfx942", "gfx90a", "gfx950"}
                                                           : std::vector{"gfx942"}),
                         name_of);

TEST_P(HipCompile, ASpillIsSeen) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  // 1024 threads leave 128 registers to each.
  const gpu::Source source{"spilling",
                           "extern \"C\" __global__ void __launch_bounds__(1024) spill(float* p) {\n"
                           "  float v[256];\n"
                           "#pragma unroll\n"
                           "  for (int i = 0; i < 256; ++i) v[i] = p[i * 256 + threadIdx.x];\n"
                           "#pragma unroll\n"
                           "  for (int i = 0; i < 256; ++i) p[i * 256 + threadIdx.x] = v[255 - i];\n"
                           "}\n",
                           {},
                           "spill"};
  EXPECT_THAT(runtime.load(source).message(), ::testing::HasSubstr("spilling: the compiler keeps"));
  EXPECT_GT(runtime.last.spilled_registers, 64);
  EXPECT_GT(runtime.last.scratch_bytes, 0);
  EXPECT_EQ(runtime.last.registers, 128);
}

/// Kernels that load to LDS directly have the assembler's own words.
TEST_P(HipCompile, WordsOfTheAssemblerAreRead) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto source = [](const std::string& words) {
    return gpu::Source{
        "assembled",
        "extern \"C\" __global__ void one(int* p) {\n  asm volatile(\"" + words + "\");\n  p[0] = 1;\n}\n",
        {},
        "one"};
  };
  EXPECT_EQ(runtime.load(source("s_nop 0")).message(), "");
  EXPECT_THAT(runtime.load(source("s_nonsense 0")).message(), ::testing::HasSubstr("s_nonsense"));
}

TEST_P(HipCompile, MfmaOfEveryType) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  expect_mfma(*family, runtime, dense(512, 1280, 8192, DataType::bf16, DataType::bf16, true));
  expect_mfma(*family, runtime, dense(512, 1280, 8192, DataType::f16, DataType::f32), Corners::widest);
  expect_mfma(*family, runtime, quantized(Operation::a8w8, 512, 1280, 8192, DataType::i8), Corners::widest);
  if (const auto fp8 = fp8_of(GetParam())) {
    expect_mfma(*family, runtime, quantized(Operation::a8w8, 512, 1280, 8192, *fp8), Corners::widest);
    expect_mfma(*family, runtime, quantized(Operation::a8w8_blockscale, 512, 1280, 8192, *fp8),
                Corners::instructions);
  }
}

/// What transposes an operand is the same for both. fp8 has more registers in flight.
TEST_P(HipCompile, MfmaOfColumnMajorOperands) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  Problem problem = dense(512, 1280, 8192);
  problem.w_order = Order::column_major;
  expect_mfma(*family, runtime, problem, Corners::widest);
  problem.x_order = Order::column_major;
  expect_mfma(*family, runtime, problem, Corners::instructions);
  problem = dense(512, 1280, 8192, DataType::f16);
  problem.x_order = Order::column_major;
  expect_mfma(*family, runtime, problem, Corners::widest);
  const auto fp8 = fp8_of(GetParam());
  if (!fp8) return;
  problem = dense(512, 1280, 8192, *fp8);
  problem.scale_ab = true;
  problem.x_order = problem.w_order = Order::column_major;
  expect_mfma(*family, runtime, problem, Corners::instructions);
}

Problem packed(Problem problem) {
  problem.weight_layout = WeightLayout::any;
  return problem;
}

/// The MXFP4 operations: decoded, but for a4w4 on gfx950, whose scaled instructions take the operands as they are.
TEST_P(HipCompile, MfmaOfFp4) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  Problem shuffled = of_fp4(Operation::a4w4_blockscale, 512, 1280, 8192);
  expect_mfma(*family, runtime, shuffled);
  shuffled.weight_layout = WeightLayout::aiter16x16;
  expect_mfma(*family, runtime, shuffled, Corners::widest);
  expect_mfma(*family, runtime, of_fp4(Operation::a16w4, 512, 1280, 8192, true), Corners::widest);
  Problem other = of_fp4(Operation::a8w4, 512, 1280, 8192);
  expect_mfma(*family, runtime, other, Corners::widest);
  other.x_type = DataType::f8_e4m3fnuz;
  expect_mfma(*family, runtime, other, Corners::widest);
}

TEST_P(HipCompile, MfmaOfShuffledWeights) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  expect_mfma(*family, runtime, packed(quantized(Operation::a8w8, 512, 1280, 8192, DataType::i8)),
              Corners::widest);
  if (const auto fp8 = fp8_of(GetParam()))
    expect_mfma(*family, runtime, packed(quantized(Operation::a8w8_blockscale, 512, 1280, 8192, *fp8)),
                Corners::instructions);
}

TEST_P(HipCompileOnOne, BatchesOfMfma) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  expect_mfma(*family, runtime, batched(16, 512, 1280, 8192), Corners::widest);
  expect_mfma(*family, runtime, batched(16, 512, 1280, 8192, DataType::i8), Corners::widest);
  if (const auto fp8 = fp8_of(GetParam()))
    expect_mfma(*family, runtime, batched(16, 512, 1280, 8192, *fp8), Corners::widest);
}

/// Both stages of a mixture in corners of the space, the widest tiles first.
void expect_stages(const KernelFamily& family, ClangRuntime& runtime, const Problem& problem,
                   Corners which = Corners::all) {
  ASSERT_TRUE(family.accepts(problem).ok()) << family.accepts(problem).message();
  for (const Config& config : compiled_configs(family, runtime, problem, which)) {
    const auto sources = dynamic_cast<const gpu::CompiledFamily&>(family).sources(problem, config);
    const auto stages = hip::mfma_moe_stages(problem, config, runtime.architecture());
    for (const std::size_t i : {0U, 1U}) {
      const std::string what =
          fmt::format("{} {} {} stage {}", runtime.architecture(), print(problem), config.text(), i + 1);
      const auto program = runtime.load(sources[i]);
      EXPECT_TRUE(program.ok()) << what << ": " << program.message();
      if (!program.ok()) continue;
      const test::CodeObject& object = runtime.last;
      const hip::MfmaLaunchConfig& tile = stages[i].tile;
      // A few conditions of shuffled weights' rows move to lanes of a vector register; nothing goes to memory.
      EXPECT_EQ(object.spilled_registers, object.spilled_scalar_registers) << what;
      EXPECT_LE(object.spilled_scalar_registers, 16) << what;
      EXPECT_EQ(object.scratch_bytes, 0) << what;
      EXPECT_EQ(object.count("scratch_"), 0) << what;
      const std::string instruction = instruction_of(problem, tile, runtime.architecture());
      const int matrix = object.count(instruction);
      EXPECT_GT(matrix, 0) << what;
      EXPECT_EQ(matrix % tile.mfma_instructions(), 0) << what << ": " << matrix;
      EXPECT_EQ(object.count("v_mfma"), matrix) << what;
      const std::int64_t read_bytes = tile.lds_reads() * 8 * tile.kpack;
      EXPECT_GT(object.lds_read_bytes(), 0) << what;
      EXPECT_EQ(object.lds_read_bytes() % read_bytes, 0) << what << ": " << object.lds_read_bytes();
      const std::int64_t waves =
          std::max<std::int64_t>({1, tile.waves_per_eu, tile.waves / hip::simds_per_unit});
      EXPECT_LE(object.registers, hip::registers_per_lane / waves) << what;
      EXPECT_LE(tile.shared_bytes + object.lds_bytes, runtime.architecture() == "gfx950" ? 163840 : 65536)
          << what;
    }
  }
}

/// 128 experts, 8 of them for each of 512 tokens.
Problem mixture(DataType type, QuantType quant, bool shuffled = false) {
  Problem problem = testing_problems::moe_problem(type, type, quant, {512, 768, 2048});
  problem.moe.experts = 128;
  problem.moe.topk = 8;
  if (shuffled) {
    problem.weight_layout = WeightLayout::aiter16x16;
  }
  return problem;
}

TEST_P(HipCompile, MfmaOfMixtures) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_mfma_moe_family(runtime);
  expect_stages(*family, runtime, mixture(DataType::bf16, QuantType::none));
  Problem plain = mixture(DataType::f16, QuantType::none);
  plain.moe.gated = false;
  plain.moe.activation = Activation::gelu;
  plain.bias = true;
  expect_stages(*family, runtime, plain, Corners::widest);
  Problem integers = mixture(DataType::i8, QuantType::per_token);
  integers.bias = true;
  expect_stages(*family, runtime, integers, Corners::widest);
  expect_stages(*family, runtime, mixture(DataType::i8, QuantType::per_token, true), Corners::widest);
  if (std::string(GetParam()) == "gfx942") {
    const DataType fp8 = DataType::f8_e4m3fnuz;
    expect_stages(*family, runtime, mixture(fp8, QuantType::per_token), Corners::widest);
    expect_stages(*family, runtime, mixture(fp8, QuantType::per_1x128), Corners::instructions);
    expect_stages(*family, runtime, mixture(fp8, QuantType::per_1x128, true), Corners::widest);
  }
}

TEST_P(HipCompileOnOne, KernelsAroundTheStagesOfMixtures) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  // Of the default config, with the sort, the sum, and what quantizes the hidden layer.
  const auto fast = hip::make_mfma_moe_family(runtime);
  Problem int8 = mixture(DataType::i8, QuantType::per_token);
  int8.bias = true;
  EXPECT_EQ(fast->build(int8, fast->default_config(int8)).message(), "");
  if (std::string(GetParam()) == "gfx942") {
    const Problem fp8 = mixture(DataType::f8_e4m3fnuz, QuantType::per_1x128);
    EXPECT_EQ(fast->build(fp8, fast->default_config(fp8)).message(), "");
  }
  const auto simt = gpu::make_simt_moe_family(runtime);
  // So many pairs that two kernels sort them.
  Problem many = int8;
  many.m = 20000;
  EXPECT_EQ(simt->build(many, simt->default_config(many)).message(), "");
  const auto problems = testing_problems::mixtures({33, 96, 64});
  for (std::size_t i = 0; i < problems.size(); i += is_soak() ? 1 : is_thorough() ? 4 : 12) {
    const auto kernel = simt->build(problems[i], simt->default_config(problems[i]));
    EXPECT_TRUE(kernel.ok()) << kernel.message();
    EXPECT_EQ(runtime.last.spilled_registers, 0);
    EXPECT_EQ(runtime.last.scratch_bytes, 0);
  }
}

TEST_P(HipCompile, Skinny) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = hip::make_skinny_family(runtime);
  std::vector<Problem> problems{dense(1, 1280, 8192, DataType::bf16, DataType::bf16, true),
                                dense(16, 1280, 8192, DataType::f16, DataType::f32),
                                quantized(Operation::a8w8, 8, 1280, 8192, DataType::i8),
                                packed(quantized(Operation::a8w8, 4, 1280, 8192, DataType::i8)),
                                batched(16, 4, 1280, 8192),
                                batched(16, 8, 512, 2048, DataType::i8)};
  const auto fp8 = fp8_of(GetParam());
  if (fp8) {
    problems.push_back(quantized(Operation::a8w8, 16, 1280, 8192, *fp8));
    problems.push_back(quantized(Operation::a8w8_blockscale, 4, 1280, 8192, *fp8));
  }
  problems.push_back(of_fp4(Operation::a4w4_blockscale, 8, 1280, 8192));
  problems.push_back(of_fp4(Operation::a16w4, 16, 1280, 8192, true));
  problems.push_back(of_fp4(Operation::a8w4, 4, 1280, 8192));
  problems.push_back(dense(4, 1280, 8192));
  problems.back().w_order = Order::column_major;
  problems.push_back(dense(16, 1280, 8192, DataType::f16));
  problems.back().w_order = Order::column_major;
  if (fp8) {
    problems.push_back(dense(4, 1280, 8192, *fp8));
    problems.back().scale_ab = true;
    problems.back().w_order = Order::column_major;
  }
  test::Turns turns(sees_all(runtime) ? 1 : 2);
  for (const Problem& problem : problems) {
    if (!turns.is_next()) continue;
    std::vector<Config> configs = corners_of(*family, problem);
    if (!is_soak() && configs.size() > 2) configs.erase(configs.begin() + 1, configs.end() - 1);
    // The last has most registers.
    if (!is_thorough() && problem.x_type != DataType::bf16) configs.erase(configs.begin(), configs.end() - 1);
    for (const Config& config : configs) {
      const std::string what = runtime.architecture() + " " + print(problem) + " " + config.text();
      const auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << what << ": " << kernel.message();
      const test::CodeObject& object = runtime.last;
      EXPECT_EQ(object.spilled_registers, 0) << what;
      EXPECT_EQ(object.scratch_bytes, 0) << what;
      EXPECT_EQ(object.count("v_mfma"), 0) << what;
      EXPECT_GT(object.count("global_load_dwordx4"), 0) << what;
      EXPECT_EQ(object.count("v_dot4") > 0, problem.x_type == DataType::i8) << what;
      const bool pairs = problem.x_type == DataType::f16 || problem.x_type == DataType::f4_e2m1;
      EXPECT_EQ(object.count("v_dot2") > 0, pairs) << what;
      EXPECT_EQ(object.count("v_cvt_pk_f32_fp8") > 0, fp8 && problem.x_type == *fp8) << what;
      const std::int64_t waves_on_simd = std::max<std::int64_t>(1, config.number("nw") / hip::simds_per_unit);
      EXPECT_LE(object.registers, hip::registers_per_lane / waves_on_simd) << what;
    }
  }
}

/// What --search-space may ask for beside what a search would try, at both ends.
TEST_P(HipCompileOnOne, ValuesOfRangesThatNoSearchLists) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  constexpr DataType bf16 = DataType::bf16;
  std::vector<std::pair<std::unique_ptr<KernelFamily>, Problem>> families;
  families.emplace_back(hip::make_mfma_family(runtime), dense(512, 1280, 8192));
  families.emplace_back(hip::make_skinny_family(runtime), dense(4, 1280, 8192));
  families.emplace_back(hip::make_mfma_moe_family(runtime),
                        testing_problems::moe_problem(bf16, bf16, QuantType::none, {64, 768, 2048}));
  std::set<std::string> ranged;
  for (const auto& [family, problem] : families) {
    ASSERT_TRUE(family->accepts(problem).ok())
        << family->name() << ": " << family->accepts(problem).message();
    for (const auto& [key, configs] :
         configs_of_ranges(family->space(problem), family->default_config(problem))) {
      for (const Config& config : configs) {
        const auto kernel = family->build(problem, config);
        EXPECT_TRUE(kernel.ok()) << family->name() << " " << config.text() << ": " << kernel.message();
      }
      ranged.insert(std::string(family->name()) + "." + key);
    }
  }
  EXPECT_THAT(ranged, ::testing::IsSupersetOf({"mfma.pad", "mfma.sk", "mfma.eu", "mfma.gm", "mfma_moe.eu",
                                               "skinny.nw", "skinny.un"}));
}

TEST_P(HipCompile, SimtAndTheDevicesOwnKernels) {
  GEMMTUNE_NEEDS_CLANG(GetParam());
  ClangRuntime runtime(GetParam());
  const auto family = gpu::make_simt_family(runtime);
  for (const Problem& problem :
       {dense(33, 65, 70, DataType::f32, DataType::f32), dense(33, 65, 70),
        dense(33, 65, 70, DataType::f16, DataType::f32), quantized(Operation::a8w8, 33, 65, 70, DataType::i8),
        quantized(Operation::a8w8_blockscale, 33, 65, 70, DataType::f8_e4m3fnuz),
        of_fp4(Operation::a4w4_blockscale, 33, 65, 96)}) {
    if (!sees_all(runtime) && problem.x_type != DataType::bf16 && problem.x_type != DataType::i8) continue;
    const auto kernel = family->build(problem, family->default_config(problem));
    EXPECT_TRUE(kernel.ok()) << kernel.message();
    EXPECT_EQ(runtime.last.spilled_registers, 0);
    if (problem.x_type != DataType::i8 && !is_soak()) continue;
    for (const gpu::Source& source : gpu::checker_sources(problem)) {
      const auto program = runtime.load(source);
      EXPECT_TRUE(program.ok()) << program.message();
    }
  }
  test::Turns mixtures(2);
  for (const Problem& problem : testing_problems::mixtures({33, 65, 70})) {
    if ((problem.moe.quant_type != QuantType::per_1x128 && !is_soak()) || !mixtures.is_next()) continue;
    for (const gpu::Source& source : gpu::checker_sources(problem)) {
      const auto program = runtime.load(source);
      EXPECT_TRUE(program.ok()) << program.message();
    }
  }
  for (const bool unpack : {false, true})
    for (const bool shuffled : {false, true})
      EXPECT_TRUE(runtime.load(gpu::pack_source(unpack, shuffled)).ok());
  for (const std::size_t bytes : {1, 2, 4}) EXPECT_TRUE(runtime.load(gpu::random_fill_source(bytes)).ok());
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16})
    EXPECT_TRUE(runtime.load(gpu::silu_and_mul_source(type, false)).ok());
}

}  // namespace
}  // namespace gemmtune
