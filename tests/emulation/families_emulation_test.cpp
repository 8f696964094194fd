// Our GPU families on the emulation, against the float64 reference: awkward shapes, types, layouts, configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "backends/cuda/families/own_families.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/own_families.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/pack/pack.h"
#include "backends/hip/families/own_families.h"
#include "numbers/weight_layout.h"
#include "support/dense_problem.h"
#include "support/emulation/emulated_runtime.h"
#include "support/operation_problems.h"
#include "support/thoroughness.h"

namespace gemmtune::emulation {
namespace {

using ::testing::HasSubstr;

constexpr DataType bf16 = DataType::bf16;
constexpr DataType f16 = DataType::f16;
constexpr DataType f32 = DataType::f32;
constexpr DataType fnuz = DataType::f8_e4m3fnuz;
constexpr DataType fn = DataType::f8_e4m3fn;
constexpr DataType i8 = DataType::i8;

Problem scaled(std::int64_t m, std::int64_t n, std::int64_t k, DataType y = bf16) {
  Problem problem = dense(m, n, k, fnuz, y);
  problem.scale_ab = true;
  return problem;
}

Problem shuffled(Problem problem) {
  problem.weight_layout = WeightLayout::aiter16x16;
  return problem;
}

/// The default config of the problem with these settings: "bm=128 nw=8".
Config with(const KernelFamily& family, const Problem& problem, const std::string& settings) {
  Config config = family.default_config(problem);
  std::istringstream words(settings);
  for (std::string word; words >> word;)
    config.set(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  return config;
}

/// Whether a case is run: each config of a family, sizes, and form of problem on an architecture once or more. Their products are
/// GEMMTUNE_THOROUGH's.
bool adds(const EmulatedRuntime& runtime, const KernelFamily& family, const Problem& problem,
          const Config& config) {
  static test::Coverage coverage;
  const std::string name(family.name());
  Problem form = problem;
  form.m = form.n = form.k = 64;
  form.batch = problem.batch > 1 ? 2 : 1;
  return coverage.adds({name + config.text(),
                        fmt::format("{} {} {} {}", name, problem.m, problem.n, problem.k),
                        fmt::format("{} {} {}", name, runtime.architecture(), print(form))});
}

void expect_right(const EmulatedRuntime& runtime, const KernelFamily& family, const Problem& problem,
                  const Config& config) {
  if (!adds(runtime, family, problem, config)) return;
  for (const Strides strides : {Strides::dense, Strides::odd, Strides::side_by_side}) {
    if (strides == Strides::odd && config.number("dl", 0) != 0) continue;  // needs multiples of 4 bytes
    if (strides == Strides::side_by_side && problem.batch == 1) continue;
    EXPECT_EQ(check_kernel(family, problem, config, strides), "")
        << print(problem) << " " << config.text()
        << (strides == Strides::odd            ? " with gaps"
            : strides == Strides::side_by_side ? " side by side"
                                               : "");
  }
}

void expect_right(const EmulatedRuntime& runtime, const KernelFamily& family, const Problem& problem,
                  const std::string& settings = "") {
  expect_right(runtime, family, problem, with(family, problem, settings));
}

/// Of a family that needs rows at multiples of 16 bytes.
void expect_aligned(const KernelFamily& family, const Problem& problem, const std::string& settings = "") {
  const Config config = with(family, problem, settings);
  EXPECT_EQ(check_kernel(family, problem, config), "") << print(problem) << " " << config.text();
}

Problem in_orders(Problem problem, Order x, Order w) {
  problem.x_order = x;
  problem.w_order = w;
  return problem;
}

TEST(FamiliesOnTheEmulation, SimtOfEveryType) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_family(runtime);
  for (const Problem& problem : {dense(17, 65, 70, bf16, f32, true), dense(3, 5, 19, f32, f32),
                                 scaled(5, 66, 33), quantized(Operation::a8w8, 19, 33, 40, i8, true),
                                 quantized(Operation::a8w8_blockscale, 7, 130, 200, fnuz)})
    expect_right(runtime, *family, problem);
}

/// A tile of each instruction: 16x16 and 32x32, kpack 1 and 2, through registers (one and two buffers, swizzled and
/// padded) and directly to LDS.
const std::vector<std::string>& stagings() {
  static const std::vector<std::string> all{
      "bm=32 bn=64 mi=16 kp=2 nb=1 bk=64",         "bm=64 bn=32 mi=32 kp=2 nb=2 nw=2 bk=128",
      "bm=32 bn=64 mi=16 kp=1 nb=2 bk=128 pad=16", "bm=32 bn=32 mi=32 kp=1 nb=1 nw=1 bk=64",
      "bm=32 bn=64 mi=16 kp=2 nb=2 dl=1 bk=64",    "bm=64 bn=64 mi=32 kp=1 nb=2 dl=1 bk=128",
      "bm=16 bn=32 mi=16 kp=2 nb=1 nw=2 bk=256",
  };
  return all;
}

TEST(FamiliesOnTheEmulation, MfmaOfBf16InEveryStaging) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string& staging : stagings()) {
    expect_right(runtime, *family, dense(35, 70, 200, bf16, bf16, true), staging);
    expect_right(runtime, *family, dense(1, 3, 78, bf16, f32), staging);
  }
}

TEST(FamiliesOnTheEmulation, MfmaOfEveryType) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string rows : {"mi=16 bm=32 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2"}) {
    expect_right(runtime, *family, dense(33, 65, 136, f16, f16, true), rows);
    expect_right(runtime, *family, scaled(33, 68, 300), rows);
    expect_right(runtime, *family, quantized(Operation::a8w8, 35, 66, 264, i8, true), rows);
    expect_right(runtime, *family, quantized(Operation::a8w8, 35, 66, 261, fnuz), rows);
    expect_right(runtime, *family, quantized(Operation::a8w8_blockscale, 35, 140, 300, fnuz), rows);
  }
}

TEST(FamiliesOnTheEmulation, MfmaOfShuffledWeights) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string rows :
       {"mi=16 bm=16 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2", "mi=16 bm=32 bn=64 nb=2 dl=1"}) {
    expect_right(runtime, *family, shuffled(dense(19, 80, 160)), rows);
    expect_right(runtime, *family, shuffled(quantized(Operation::a8w8, 35, 48, 288, fnuz)), rows);
    expect_right(runtime, *family, shuffled(quantized(Operation::a8w8, 35, 48, 288, i8)), rows);
    expect_right(runtime, *family, shuffled(quantized(Operation::a8w8_blockscale, 9, 144, 288, fnuz)), rows);
  }
}

constexpr Order columns = Order::column_major;
constexpr Order in_rows = Order::row_major;

/// The other three orders of both operands.
std::vector<Problem> in_other_orders(const Problem& problem) {
  return {in_orders(problem, in_rows, columns), in_orders(problem, columns, in_rows),
          in_orders(problem, columns, columns)};
}

/// Sizes with tails on every side: rows that are no multiple of a word's, fewer than a word has, and tails of k of every kind.
TEST(FamiliesOnTheEmulation, MfmaOfColumnMajorOperands) {
  for (const std::string architecture : {"gfx90a", "gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_family(runtime);
    for (const std::string& staging : stagings()) {
      if (staging.find("dl=1") != std::string::npos) continue;
      if (architecture != "gfx942" && staging.find("bk=128") == std::string::npos && !test::is_thorough())
        continue;
      for (const Problem& problem : in_other_orders(dense(35, 70, 200, bf16, bf16, true))) {
        expect_right(runtime, *family, problem, staging);
        if (architecture != "gfx942" || (staging.find("bk=128") == std::string::npos && !test::is_thorough()))
          continue;
        for (const auto [m, n, k] : {std::array{1, 3, 78}, std::array{34, 1, 8}, std::array{33, 65, 257}}) {
          Problem small = problem;
          small.m = m;
          small.n = n;
          small.k = k;
          small.bias = false;
          expect_right(runtime, *family, small, staging);
        }
      }
    }
    if (architecture != "gfx942" && !test::is_thorough()) continue;
    for (const std::string tile :
         {"mi=16 bm=32 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2", "mi=16 bm=16 bn=128 bk=64 kp=1"})
      for (const Problem& problem : in_other_orders(dense(33, 67, 137, f16, f16, true)))
        expect_right(runtime, *family, problem, tile);
  }
}

/// 8-bit operands have four rows in a word, and 16 lines in a unit.
TEST(FamiliesOnTheEmulation, MfmaOfColumnMajorFp8) {
  for (const std::string architecture : {"gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_family(runtime);
    for (const std::string tile : {"mi=16 bm=32 bn=64 bk=128", "mi=32 bm=32 bn=64 nw=2 nb=2 bk=64",
                                   "mi=16 bm=16 bn=64 bk=256 kp=1", "mi=16 bm=64 bn=32 bk=64 pad=16"}) {
      if (architecture != "gfx942" && tile != "mi=16 bm=32 bn=64 bk=128" && !test::is_thorough()) continue;
      for (const auto [m, n, k] :
           {std::array{33, 68, 300}, std::array{1, 2, 79}, std::array{3, 5, 16}, std::array{36, 67, 513}}) {
        Problem problem = scaled(m, n, k);
        if (architecture == "gfx950") problem.x_type = problem.w_type = fn;
        for (const Problem& ordered : in_other_orders(problem)) expect_right(runtime, *family, ordered, tile);
      }
    }
  }
}

/// With split-K, with a shuffled weight, in tiles of large problems; and what is refused.
TEST(FamiliesOnTheEmulation, MfmaOfColumnMajorOperandsInOtherConfigs) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const Problem& problem : in_other_orders(dense(35, 70, 603, bf16, bf16, true))) {
    expect_right(runtime, *family, problem, "bm=32 bn=32 nw=1 bk=64 sk=3");
    EXPECT_THAT(family->space(problem).build_refusal(with(*family, problem, "nb=2 dl=1")),
                HasSubstr("dl1 cannot transpose a column-major operand"));
  }
  expect_right(runtime, *family, in_orders(shuffled(dense(19, 80, 160)), columns, in_rows), "bm=32 bn=64");
  expect_right(runtime, *family, in_orders(dense(130, 260, 200), columns, columns), "bm=128 bn=256 nw=8");
  expect_right(runtime, *family, in_orders(scaled(130, 260, 200), columns, columns), "bm=256 bn=128 nw=8");
  EXPECT_EQ(family->accepts(in_orders(dense(1 << 21, 64, 64), columns, in_rows)).message(), "");
  EXPECT_EQ(family->accepts(in_orders(dense((1 << 21) + 1, 64, 64), columns, in_rows)).message(),
            "size: columns of 2097153 elements, at most 4194304 bytes");
  EXPECT_THAT(
      family->accepts(in_orders(quantized(Operation::a8w8, 35, 66, 264, i8), in_rows, columns)).message(),
      HasSubstr("expected column-major operands with a16w16 only"));
}

TEST(FamiliesOnTheEmulation, SkinnyOfColumnMajorWeights) {
  for (const std::string architecture : {"gfx90a", "gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_skinny_family(runtime);
    const auto expect = [&](const Problem& problem, const std::string& settings = "") {
      expect_right(runtime, *family, in_orders(problem, in_rows, columns), settings);
    };
    for (const std::string config : {"rn=2 nw=2 un=2", "rn=1 nw=1 un=1", "rn=4 nw=4 un=1"}) {
      if (architecture != "gfx942" && config != "rn=2 nw=2 un=2" && !test::is_thorough()) continue;
      expect(dense(1, 37, 1100, bf16, bf16, true), config);
      expect(dense(5, 131, 203, bf16, f32), config);
      expect(dense(2, 1, 8), config);
      expect(dense(3, 64, 259, f16, f16, true), config);
      if (architecture == "gfx90a") continue;
      for (const auto [m, n, k] : {std::array{3, 37, 333}, std::array{1, 2, 16}, std::array{2, 130, 1040}}) {
        Problem problem = scaled(m, n, k);
        if (architecture == "gfx950") problem.x_type = problem.w_type = fn;
        expect(problem, config);
      }
    }
    expect(dense(16, 70, 530));
    EXPECT_THAT(family->accepts(in_orders(dense(3, (1 << 19) + 1, 64), in_rows, columns)).message(),
                HasSubstr("size: columns of 524289 elements"));
    EXPECT_EQ(family->accepts(in_orders(dense(3, 64, 64), columns, in_rows)).message(),
              "operand order: column-major x, only row-major");
  }
}

/// The default of every order, type and number of rows can be built.
TEST(FamiliesOnTheEmulation, DefaultsOfColumnMajorOperandsCanBeBuilt) {
  for (const std::string architecture : {"gfx90a", "gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto mfma = hip::make_mfma_family(runtime);
    const auto skinny = hip::make_skinny_family(runtime);
    for (const int m : {1, 2, 3, 5, 8, 9, 16, 33, 512, 5000})
      for (const DataType type : {bf16, f16, fnuz, fn})
        for (const Problem& problem : in_other_orders(dense(m, 1280, 8192, type))) {
          Problem right = problem;
          right.scale_ab = traits(type).fp8;
          for (const KernelFamily* family : {mfma.get(), skinny.get()})
            if (family->accepts(right).ok()) {
              EXPECT_EQ(family->space(right).build_refusal(family->default_config(right)), "")
                  << print(right);
            }
        }
  }
}

/// The MXFP4 operations, with a bias where they have one; a8w4 with the device's fp8 and the other one.
std::vector<Problem> fp4_problems(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<Problem> problems{of_fp4(Operation::a4w4_blockscale, m, n, k),
                                of_fp4(Operation::a16w4, m, n, k, true),
                                of_fp4(Operation::a8w4, m, n, k, true), of_fp4(Operation::a8w4, m, n, k)};
  problems[3].x_type = fnuz;
  return problems;
}

TEST(FamiliesOnTheEmulation, SimtOfFp4) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_family(runtime);
  for (Problem problem : fp4_problems(5, 66, 96)) {
    expect_right(runtime, *family, problem);
    if (problem.operation == Operation::a16w4) {
      problem.x_type = problem.y_type = f16;
      expect_right(runtime, *family, problem);
    }
  }
}

TEST(FamiliesOnTheEmulation, SimtOfNvfp4AndInt4) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_family(runtime);
  test::Turns turns(2);
  for (const Problem& problem : testing_problems::weight_format_problems({5, 66, 96})) {
    expect_right(runtime, *family, problem);
    if (!turns.is_next()) continue;
    Problem packed = problem;
    packed.weight_layout = WeightLayout::fragment64;
    expect_right(runtime, *family, packed);
  }
}

/// gfx90a and gfx942 decode on the way to LDS by the same text, gfx950 a4w4 not at all.
TEST(FamiliesOnTheEmulation, MfmaOfFp4) {
  for (const char* architecture : {"gfx90a", "gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_family(runtime);
    for (const std::string tile : {"mi=16 bm=32 bn=64 bk=128", "mi=32 bm=32 bn=64 bk=64 nw=2 nb=2"}) {
      if (runtime.architecture() == "gfx90a" && !test::is_thorough()) break;
      for (const Problem& problem : fp4_problems(35, 70, 352)) expect_right(runtime, *family, problem, tile);
    }
    expect_right(runtime, *family, of_fp4(Operation::a4w4_blockscale, 3, 18, 1184),
                 "mi=16 bm=16 bn=32 nw=2 bk=64 sk=3");
    expect_right(runtime, *family, of_fp4(Operation::a16w4, 1, 5, 32));
    expect_right(runtime, *family, of_fp4(Operation::a4w4_blockscale, 1, 5, 32));
  }
}

TEST(FamiliesOnTheEmulation, MfmaOfShuffledFp4) {
  for (const char* architecture : {"gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_family(runtime);
    for (const std::string tile : {"mi=16 bm=16 bn=64 bk=256", "mi=32 bm=32 bn=64 bk=128 nw=2 nb=2"})
      for (const Problem& problem : fp4_problems(19, 80, 448))
        expect_right(runtime, *family, shuffled(problem), tile);
  }
}

/// Instructions of 16 bytes a lane, e4m3fn, scaled instructions of operands that go to LDS directly, tiles in more than 64 KiB.
TEST(FamiliesOnTheEmulation, MfmaOnGfx950) {
  EmulatedRuntime runtime("gfx950");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string tile :
       {"mi=16 bm=32 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2 dl=1", "mi=16 bm=32 bn=64 kp=1"}) {
    expect_right(runtime, *family, dense(35, 70, 200, bf16, bf16, true), tile);
    expect_right(runtime, *family, dense(33, 65, 136, f16, f16, true), tile);
    expect_right(runtime, *family, quantized(Operation::a8w8, 35, 66, 264, i8, true), tile);
    expect_right(runtime, *family, quantized(Operation::a8w8, 35, 66, 264, fn), tile);
  }
  for (const std::string tile : {"mi=16 bm=32 bn=64", "mi=32 bm=32 bn=64 nw=2"}) {
    expect_right(runtime, *family, quantized(Operation::a8w8_blockscale, 35, 140, 300, fn), tile);
    expect_right(runtime, *family, shuffled(quantized(Operation::a8w8, 35, 48, 288, fn)), tile);
  }
  expect_right(runtime, *family, shuffled(dense(19, 80, 160)));
  const Problem a4w4 = of_fp4(Operation::a4w4_blockscale, 70, 130, 1056);
  expect_right(runtime, *family, a4w4, "bm=64 bn=64 bk=128 nb=2 dl=1");
  expect_right(runtime, *family, a4w4, "bm=32 bn=64 mi=32 nw=2 bk=128 nb=2 dl=1");
  expect_right(runtime, *family, a4w4, "bm=128 bn=128 bk=256 nb=2 nw=8");
  EXPECT_THAT(family->accepts(quantized(Operation::a8w8, 35, 66, 261, fnuz)).message(),
              HasSubstr("data types"));
}

TEST(FamiliesOnTheEmulation, MfmaWithSplitKInEveryOrderOfBlocks) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  expect_right(runtime, *family, dense(35, 70, 600, bf16, bf16, true), "bm=32 bn=32 nw=1 bk=64 sk=3");
  expect_right(runtime, *family, quantized(Operation::a8w8, 20, 70, 1000, i8), "bm=32 bn=32 nw=1 bk=64 sk=4");
  expect_right(runtime, *family, quantized(Operation::a8w8_blockscale, 20, 70, 1000, fnuz),
               "bm=32 bn=32 nw=1 sk=2");
  // 7 x 9 tiles, on 8 dies.
  for (const std::string order : {"gm=1 xcd=0", "gm=8 xcd=1", "gm=1 xcd=1"})
    expect_right(runtime, *family, dense(100, 130, 64), "bm=16 bn=16 nw=1 bk=128 " + order);
}

TEST(FamiliesOnTheEmulation, BatchesOfMfma) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string& staging : stagings())
    expect_right(runtime, *family, batched(3, 35, 70, 136), staging);
  expect_right(runtime, *family, batched(3, 17, 33, 78, bf16, true));
  expect_right(runtime, *family, batched(1, 35, 70, 200));
  for (const std::string rows : {"mi=16 bm=32 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2 dl=1"}) {
    expect_right(runtime, *family, batched(2, 35, 66, 264, i8), rows);
    expect_right(runtime, *family, batched(3, 35, 66, 260, fnuz), rows);
  }
  expect_right(runtime, *family, batched(3, 35, 70, 600, bf16, true), "bm=32 bn=32 nw=1 bk=64 sk=3");
  expect_right(runtime, *family, batched(2, 20, 70, 1000, i8), "bm=32 bn=32 nw=1 bk=64 sk=4");
  // 7 x 9 tiles a batch, on 8 dies.
  for (const std::string order : {"gm=1 xcd=0", "gm=8 xcd=1"})
    expect_right(runtime, *family, batched(2, 100, 130, 64), "bm=16 bn=16 nw=1 bk=128 " + order);
  EXPECT_THAT(family->accepts(batched(70000, 1, 512, 128)).message(),
              HasSubstr("batch: 70000 is above 65535"));
  EXPECT_THAT(family->accepts(shuffled(batched(3, 16, 512, 128))).message(),
              HasSubstr("weight layout: aiter16x16 of batches, only plain"));
  EmulatedRuntime older("gfx90a");
  expect_right(older, *hip::make_mfma_family(older), batched(2, 35, 66, 261, i8), "mi=16 bm=32");
}

TEST(FamiliesOnTheEmulation, BatchesOfSkinny) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_skinny_family(runtime);
  expect_right(runtime, *family, batched(3, 1, 37, 1100, bf16, true), "rn=2 nw=2 un=2");
  expect_right(runtime, *family, batched(2, 13, 9, 203), "rn=1 nw=4 un=1");
  expect_right(runtime, *family, batched(3, 4, 21, 1030, i8), "rn=2 nw=2 un=1");
  expect_right(runtime, *family, batched(2, 2, 21, 700, fnuz));
  EXPECT_THAT(family->accepts(batched(3, 17, 64, 64)).message(), HasSubstr("rows: 17, at most 16"));
}

/// Batches share compute units: the default divides k only where all of them leave units idle.
TEST(FamiliesOnTheEmulation, DefaultsCountAllBatches) {
  EmulatedRuntime runtime("gfx942");
  const auto mfma = hip::make_mfma_family(runtime);
  EXPECT_GT(mfma->default_config(batched(1, 64, 512, 8192)).number("sk"), 1);
  EXPECT_EQ(mfma->default_config(batched(64, 64, 512, 8192)).number("sk"), 1);
  const auto skinny = hip::make_skinny_family(runtime);
  EXPECT_EQ(skinny->default_config(batched(1, 1, 512, 8192)).number("rn"), 1);
  EXPECT_EQ(skinny->default_config(batched(64, 1, 512, 8192)).number("rn"), 2);
  const Problem split = batched(16, 64, 512, 8192);
  EXPECT_THAT(mfma->space(split).refusal(with(*mfma, split, "sk=16")), HasSubstr("sk makes too many blocks"));
}

TEST(FamiliesOnTheEmulation, MfmaOnGfx90a) {
  EmulatedRuntime runtime("gfx90a");
  const auto family = hip::make_mfma_family(runtime);
  expect_right(runtime, *family, dense(35, 70, 200, bf16, bf16, true));
  expect_right(runtime, *family, dense(35, 70, 200, f16, f32), "mi=32 bm=32 nw=2");
  expect_right(runtime, *family, quantized(Operation::a8w8, 35, 66, 261, i8), "mi=16 bm=32");
  expect_right(runtime, *family, shuffled(quantized(Operation::a8w8, 35, 48, 288, i8)),
               "mi=32 bm=32 bn=32 nw=1");
  EXPECT_THAT(family->accepts(quantized(Operation::a8w8, 35, 66, 261, fnuz)).message(),
              HasSubstr("data types"));
  EXPECT_THAT(family->accepts(dense(4, 64, 5)).message(), HasSubstr("k: 5 bf16, at least 16 bytes"));
}

TEST(FamiliesOnTheEmulation, SkinnyOfWaves) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_skinny_family(runtime);
  expect_right(runtime, *family, dense(1, 37, 1100, bf16, bf16, true), "rn=2 nw=2 un=2");
  expect_right(runtime, *family, dense(5, 35, 203, bf16, f32), "rn=4 nw=1 un=1");
  expect_right(runtime, *family, dense(13, 9, 2500, f16, f16, true), "rn=1 nw=4 un=1");
  expect_right(runtime, *family, scaled(3, 18, 333), "rn=2 nw=2");
  expect_right(runtime, *family, quantized(Operation::a8w8, 4, 21, 1030, i8, true), "rn=2 nw=2 un=1");
  expect_right(runtime, *family, quantized(Operation::a8w8, 2, 21, 700, fnuz));
  expect_right(runtime, *family, quantized(Operation::a8w8_blockscale, 2, 140, 300, fnuz), "rn=4 nw=1 un=1");
  expect_right(runtime, *family, shuffled(dense(2, 80, 160)), "rn=2 nw=2 un=1");
  expect_right(runtime, *family, shuffled(quantized(Operation::a8w8, 7, 48, 288, fnuz)));
  expect_right(runtime, *family, shuffled(quantized(Operation::a8w8, 1, 48, 288, i8)));
  expect_right(runtime, *family, shuffled(quantized(Operation::a8w8_blockscale, 3, 144, 288, fnuz)));
  EXPECT_THAT(family->accepts(dense(17, 64, 64)).message(), HasSubstr("rows: 17, at most 16"));
  // The compiler spills it (hip_compile_test with GEMMTUNE_SOAK).
  const Problem widened = quantized(Operation::a8w8, 16, 1280, 8192, fnuz);
  EXPECT_THAT(family->space(widened).build_refusal(with(*family, widened, "rn=2 nw=8 un=2")),
              HasSubstr("rn and un need more registers than a lane has"));
}

TEST(FamiliesOnTheEmulation, SkinnyOfFp4) {
  for (const char* architecture : {"gfx90a", "gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_skinny_family(runtime);
    for (const Problem& problem : fp4_problems(3, 37, 1120))
      expect_right(runtime, *family, problem, "rn=2 nw=2 un=2");
    if (runtime.architecture() == "gfx90a" && !test::is_thorough()) continue;  // gfx942's text
    for (const Problem& problem : fp4_problems(2, 48, 448)) expect_right(runtime, *family, shuffled(problem));
    Problem half = of_fp4(Operation::a16w4, 5, 19, 2080, true);
    half.x_type = half.y_type = f16;
    expect_right(runtime, *family, half, "rn=1 nw=4 un=1");
  }
}

/// Configs drawn from the whole space, rules of the search aside: one of each fifth problem here, of each with GEMMTUNE_THOROUGH, many
/// with GEMMTUNE_SOAK.
TEST(FamiliesOnTheEmulation, DrawnConfigsOfEveryProblem) {
  const int draws = test::is_soak() ? 40 : 1;
  int turn = 0;
  std::mt19937 random(23);
  for (const char* architecture : {"gfx90a", "gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto mfma = hip::make_mfma_family(runtime);
    const auto skinny = hip::make_skinny_family(runtime);
    std::vector<Problem> problems{dense(45, 71, 333, bf16, bf16, true),
                                  dense(7, 33, 530, f16, f32),
                                  quantized(Operation::a8w8, 70, 37, 301, i8, true),
                                  shuffled(dense(11, 48, 224)),
                                  shuffled(quantized(Operation::a8w8, 5, 64, 352, i8)),
                                  batched(3, 14, 71, 333),
                                  batched(2, 7, 37, 301, i8),
                                  in_orders(dense(14, 71, 333), in_rows, columns),
                                  in_orders(dense(39, 71, 333), columns, in_rows)};
    for (const Problem& problem : fp4_problems(7, 48, 448)) {
      const bool is_one = problem.operation == Operation::a4w4_blockscale;
      if (draws > 1 || is_one) problems.push_back(problem);
      if (draws > 1 || !is_one) problems.push_back(shuffled(problem));
      if (draws == 1 && !is_one) break;
    }
    if (runtime.architecture() == "gfx942") {
      problems.push_back(scaled(34, 130, 77));
      problems.push_back(in_orders(scaled(34, 130, 77), columns, columns));
      problems.push_back(quantized(Operation::a8w8_blockscale, 14, 200, 390, fnuz));
      problems.push_back(shuffled(quantized(Operation::a8w8_blockscale, 40, 160, 416, fnuz)));
    }
    for (const KernelFamily* family : {mfma.get(), skinny.get()}) {
      for (const Problem& problem : problems) {
        if (!family->accepts(problem).ok()) continue;
        if (turn++ % 5 != 0 && !test::is_thorough()) continue;
        const Space space = family->space(problem);
        for (int found = 0, tries = 0; found < draws && tries < 2000; ++tries) {
          Config config;
          for (const Parameter& parameter : space.parameters())
            config.set(parameter.key, parameter.values[random() % parameter.values.size()]);
          if (!space.build_refusal(config).empty()) continue;
          ++found;
          expect_right(runtime, *family, problem, config);
        }
      }
    }
  }
}

TEST(FamiliesOnTheEmulation, MmaOfNvidiaGpus) {
  EmulatedRuntime ampere("sm_80");
  const auto family = cuda::make_mma_family(ampere);
  expect_aligned(*family, dense(35, 70, 200, bf16, bf16, true));
  expect_aligned(*family, dense(130, 70, 200, f16, f32), "bm=64 nw=8 st=4");
  expect_aligned(*family, dense(35, 70, 600, bf16, bf16, true), "bm=32 sk=3");
  expect_aligned(*family, in_orders(dense(72, 40, 77), Order::column_major, Order::column_major));
  EmulatedRuntime ada("sm_89");
  expect_aligned(*cuda::make_mma_family(ada), dense(35, 70, 208, DataType::f8_e4m3fn, f16));
}

TEST(FamiliesOnTheEmulation, WeightsAreShuffledAndComeBack) {
  EmulatedRuntime runtime("gfx942");
  EXPECT_EQ(gpu::shuffled_tiles_of(of_fp4(Operation::a4w4_blockscale, 1, 48, 128)).bytes(), 48 * 64);
  EXPECT_TRUE(gpu::shuffled_tiles_of(of_fp4(Operation::a4w4_blockscale, 1, 48, 128)).fits());
  EXPECT_FALSE(gpu::shuffled_tiles_of(of_fp4(Operation::a4w4_blockscale, 1, 48, 96)).fits());
  const Tile16 shape{.n = 48, .k = 96, .element_bytes = 2};
  std::vector<std::uint16_t> plain(48 * 96);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::uint16_t>(i * 7 + 1);
  std::vector<std::uint16_t> expected(plain.size());
  shuffle_tile16(shape, plain.data(), expected.data());
  std::vector<std::uint16_t> again(plain.size());
  alignas(16) static std::uint16_t shuffled[48 * 96];
  register_buffer(plain.data(), sizeof shuffled, "plain");
  register_buffer(again.data(), sizeof shuffled, "again");
  register_buffer(shuffled, sizeof shuffled, "shuffled");
  EXPECT_EQ(gpu::shuffle_tile16(runtime, shape, plain.data(), shuffled).message(), "");
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), shuffled));
  EXPECT_EQ(gpu::unshuffle_tile16(runtime, shape, shuffled, again.data()).message(), "");
  EXPECT_TRUE(again == plain);
  for (const void* buffer : {static_cast<const void*>(plain.data()), static_cast<const void*>(again.data()),
                             static_cast<const void*>(shuffled)})
    unregister_buffer(buffer);
}

/// Kernels with one change in their text, as far as they have it.
class BrokenRuntime final : public gpu::Runtime {
 public:
  BrokenRuntime(std::string architecture, std::string right, std::string wrong)
      : runtime_(std::move(architecture)), right_(std::move(right)), wrong_(std::move(wrong)) {}
  const gpu::Limits& limits() const override { return runtime_.limits(); }
  const std::string& architecture() const override { return runtime_.architecture(); }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override {
    gpu::Source changed = source;
    changed.text = gpu::resolved_text(source.text);
    const auto at = changed.text.find(right_);
    if (at != std::string::npos) {
      changed.text.replace(at, right_.size(), wrong_);
      has_changed = true;
    }
    return runtime_.load(changed);
  }

  bool has_changed = false;

 private:
  EmulatedRuntime runtime_;
  std::string right_;
  std::string wrong_;
};

/// One change of mfma's kernel, and what is found in a run of a shape on which the right one passes.
struct Broken {
  const char* what;
  std::string right, wrong;
  Problem problem;
  std::string settings;
  std::string found;
};

void expect_found(const std::string& architecture, const std::vector<Broken>& broken) {
  EmulatedRuntime right(architecture);
  const auto family = hip::make_mfma_family(right);
  for (const Broken& one : broken) {
    const Config config = with(*family, one.problem, one.settings);
    EXPECT_EQ(check_kernel(*family, one.problem, config), "") << one.what;
    BrokenRuntime wrong(architecture, one.right, one.wrong);
    const auto broken_family = hip::make_mfma_family(wrong);
    EXPECT_THAT(check_kernel(*broken_family, one.problem, config), HasSubstr(one.found)) << one.what;
    EXPECT_TRUE(wrong.has_changed) << one.what << ": the kernel has no text " << one.right;
  }
}

TEST(FamiliesOnTheEmulation, BrokenKernelsAreFound) {
  const Problem usual = dense(35, 70, 200, bf16, bf16, true);
  const std::string tile = "bm=32 bn=64 ";
  const std::vector<Broken> broken{
      {"a lane reads another's row", "const int row = threadIdx.x % 64 % MFMA_ROWS;",
       "const int row = (threadIdx.x + 1) % 64 % MFMA_ROWS;", usual, tile, "outside of its error bound"},
      {"lanes of a group read another group's k", "const int group = threadIdx.x % 64 / MFMA_ROWS;",
       "const int group = threadIdx.x % 64 / MFMA_ROWS ^ (threadIdx.x % 64 == 63);", usual, tile,
       "outside of its error bound"},
      {"no barrier before a tile is replaced", "if (NUM_BUFFERS == 1) __syncthreads();", ";", usual, tile,
       "race in shared memory"},
      {"no barrier after a tile is written", "store_tile(next, memory);\n  __syncthreads();",
       "store_tile(next, memory);", usual, tile, "race in shared memory"},
      {"no wait for direct loads", "__builtin_amdgcn_s_waitcnt(0x0f70);", ";", dense(35, 70, 200),
       tile + "nb=2 dl=1", "elements were not written"},
      {"one row too many is stored", "if (row >= a.m || column >= a.n) return;",
       "if (row > a.m || column >= a.n) return;", usual, tile, "writes"},
      {"one column too many is stored", "if (column + 3 < a.n &&", "if (column + 2 < a.n &&",
       dense(33, 71, 200), tile, "past the end of y"},
      {"rows are read past the end", "return row < rows ? row : rows - 1;", "return row;", usual, tile,
       "past the end of x"},
      {"k is read past the end", "from + (left < 16 ? left - 16 : 0)", "from", dense(35, 70, 203), tile,
       "past the end of"},
      {"bytes behind k count", "(int)(16 - left) * 8", "(int)(16 - left) * 8 - 16", dense(35, 70, 203), tile,
       "outside of its error bound"},
      {"a split begins one tile late", "(int)((long long)k_tiles * blockIdx.y / a.split_k);",
       "(int)((long long)k_tiles * blockIdx.y / a.split_k) + (blockIdx.y == 1);", dense(35, 70, 600),
       tile + "bk=64 sk=3", "outside of its error bound"},
      {"a die computes another's tile", "(die < longer ? die : longer)", "(die < longer ? die : longer - 1)",
       dense(100, 130, 64), "bm=16 bn=16 nw=1 gm=1", "elements were not written"},
      {"a scale of the next row", "? x_scale_at(a.scales, row, 0)",
       "? x_scale_at(a.scales, row ? row - 1 : 0, 0)", quantized(Operation::a8w8, 35, 66, 264, i8), tile,
       "outside of its error bound"},
      {"all batches have the first one's weight", "a.w += batch * a.w_batch_step;", ";",
       batched(2, 35, 70, 200), tile, "outside of its error bound"},
      {"the last batch's rows are one batch too far", "a.x += batch * a.x_batch_step;",
       "a.x += (batch + 1) * a.x_batch_step;", batched(2, 35, 70, 200), tile, "past the end of x"},
      {"batches share their partial sums", "a.partials = (sum*)a.partials + batch * a.split_k * a.m * a.n;",
       "", batched(2, 35, 70, 600), tile + "bk=64 sk=3", "outside of its error bound"},
      {"scales of rows are the first batch's", "a.scales = scales_of_batch(a.scales, batch, a.m, a.n);", "",
       batched(2, 35, 66, 264, i8), tile, "outside of its error bound"},
  };
  expect_found("gfx942", broken);
}

/// And of what transposes column-major operands.
TEST(FamiliesOnTheEmulation, BrokenTranspositionsAreFound) {
  const Problem odd = in_orders(dense(35, 71, 203), columns, columns);
  const Problem fp8 = in_orders(scaled(35, 71, 203), columns, columns);
  const std::string tile = "bm=32 bn=64";
  const std::string wrong = "outside of its error bound";
  expect_found(
      "gfx942",
      {{"the last word of a line is read where it is", "byte < last_word ? byte : last_word", "byte", odd,
        tile, "past the end of"},
       {"a word that was read before its place is not moved", "loaded >> (byte - there) * 8 % 32", "loaded",
        odd, tile, wrong},
       {"lines behind k count", "line + j < lines ? loaded", "true ? loaded", odd, tile, wrong},
       {"the last lines are taken for inner ones", "(rows % WORD_ROWS == 0 ? 0 : 4) <= k_bytes)",
        "(rows % WORD_ROWS == 0 ? 0 : 4) <= k_bytes + 128)", odd, tile, "past the end of"},
       {"words of odd rows may end behind the operand", "(rows % WORD_ROWS == 0 ? 0 : 4) <= k_bytes",
        "0 <= k_bytes", in_orders(dense(35, 71, 256), columns, columns), tile, "past the end of"},
       {"rows of a word are swapped", "to[0][i] = __builtin_amdgcn_perm(second, first, 0x05040100u);",
        "to[0][i] = __builtin_amdgcn_perm(second, first, 0x07060302u);", odd, tile, wrong},
       {"lines of a pair are swapped", "__builtin_amdgcn_perm(from[i][3], from[i][2], 0x07030602u)",
        "__builtin_amdgcn_perm(from[i][2], from[i][3], 0x07030602u)", fp8, tile, wrong},
       {"operands are read with the other swizzle", "unit_offset<COLUMNS>(row, byte / 16)",
        "unit_offset<false>(row, byte / 16)", odd, tile, wrong}});
}

/// And of what it has for fp4: decoded on gfx942, with scaled instructions on gfx950.
TEST(FamiliesOnTheEmulation, BrokenKernelsOfFp4AreFound) {
  const Problem a4w4 = of_fp4(Operation::a4w4_blockscale, 35, 70, 352);
  const std::string tile = "bm=32 bn=64 bk=128";
  const std::string wrong = "outside of its error bound";
  expect_found(
      "gfx942",
      {{"a scale of the next block", "row * scale_step + k / MX_BLOCK", "row * scale_step + k / MX_BLOCK % 4",
        a4w4, tile, wrong},
       {"a sign is lost", "(word & 0x08080808u) << 4", "(word & 0x08000808u) << 4", a4w4, tile, wrong},
       {"3 is read as 2", "0xc0804000u, 0xc0800000u, odd", "0xc0800000u, 0xc0800000u, odd", a4w4, tile,
        wrong},
       {"scales are read past the end", "is_there ? byte / 2 : 0", "byte / 2", a4w4, tile, "past the end of"},
       {"groups of lanes read another's k", "group * 64 + step % 4 * 16", "group * 64 + step % 4 * 16 ^ 64",
        shuffled(of_fp4(Operation::a16w4, 19, 80, 448)), "bm=16 bn=64 bk=256", wrong}});
  expect_found("gfx950", {{"a lane has another's scale",
                           "step * STEP_BYTES + lane / MFMA_ROWS * 16;\n    const long long block",
                           "step * STEP_BYTES;\n    const long long block", a4w4, tile, wrong},
                          {"scales of x and w are swapped", "0, w_scale, 0, x_scale",
                           "0, x_scale, 0, w_scale", a4w4, tile + " mi=16", wrong},
                          {"scales past the end of k", "byte < a.k_bytes ? byte / 16 : 0", "byte / 16", a4w4,
                           tile, "past the end of"}});
}

}  // namespace
}  // namespace gemmtune::emulation
