// Our GPU families on the emulation, against the float64 reference: awkward shapes, types, layouts, configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/gpu/families/simt/simt.h"
#include "backends/hip/families/mfma/mfma.h"
#include "support/dense_problem.h"
#include "support/emulation/emulated_runtime.h"

namespace gemmtune::emulation {
namespace {

using ::testing::HasSubstr;

constexpr DataType bf16 = DataType::bf16;
constexpr DataType f16 = DataType::f16;
constexpr DataType f32 = DataType::f32;
constexpr DataType fnuz = DataType::f8_e4m3fnuz;
constexpr DataType i8 = DataType::i8;

Problem scaled(std::int64_t m, std::int64_t n, std::int64_t k, DataType y = bf16) {
  Problem problem = dense(m, n, k, fnuz, y);
  problem.scale_ab = true;
  return problem;
}

Problem shuffled(Problem problem) {
  if (problem.operation == Operation::a8w8) problem.operation = Operation::a8w8_bpreshuffle;
  if (problem.operation == Operation::a8w8_blockscale)
    problem.operation = Operation::a8w8_blockscale_bpreshuffle;
  problem.bpreshuffle = true;
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

void expect_right(const KernelFamily& family, const Problem& problem, const std::string& settings = "") {
  for (const Strides strides : {Strides::dense, Strides::odd}) {
    const Config config = with(family, problem, settings);
    if (strides == Strides::odd && config.number("dl", 0) != 0) continue;  // needs multiples of 4 bytes
    EXPECT_EQ(check_kernel(family, problem, config, strides), "")
        << print(problem) << " " << config.text() << (strides == Strides::odd ? " with gaps" : "");
  }
}

TEST(FamiliesOnTheEmulation, SimtOfEveryType) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_family(runtime);
  for (const Problem& problem : {dense(17, 65, 70, bf16, f32, true), dense(3, 5, 19, f32, f32),
                                 scaled(5, 66, 33), quantized(Operation::a8w8, 19, 33, 40, i8, true),
                                 quantized(Operation::a8w8_blockscale, 7, 130, 200, fnuz)})
    expect_right(*family, problem);
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
    expect_right(*family, dense(35, 70, 200, bf16, bf16, true), staging);
    expect_right(*family, dense(1, 3, 78, bf16, f32), staging);
  }
}

TEST(FamiliesOnTheEmulation, MfmaOfEveryType) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string rows : {"mi=16 bm=32 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2"}) {
    expect_right(*family, dense(33, 65, 136, f16, f16, true), rows);
    expect_right(*family, scaled(33, 68, 300), rows);
    expect_right(*family, quantized(Operation::a8w8, 35, 66, 264, i8, true), rows);
    expect_right(*family, quantized(Operation::a8w8, 35, 66, 261, fnuz), rows);
    expect_right(*family, quantized(Operation::a8w8_blockscale, 35, 140, 300, fnuz), rows);
  }
}

TEST(FamiliesOnTheEmulation, MfmaOfShuffledWeights) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const std::string rows :
       {"mi=16 bm=16 bn=64", "mi=32 bm=32 bn=64 nw=2 nb=2", "mi=16 bm=32 bn=64 nb=2 dl=1"}) {
    expect_right(*family, shuffled(dense(19, 80, 160)), rows);
    expect_right(*family, shuffled(quantized(Operation::a8w8, 35, 48, 288, fnuz)), rows);
    expect_right(*family, shuffled(quantized(Operation::a8w8, 35, 48, 288, i8)), rows);
    expect_right(*family, shuffled(quantized(Operation::a8w8_blockscale, 9, 144, 288, fnuz)), rows);
  }
}

TEST(FamiliesOnTheEmulation, MfmaWithSplitKInEveryOrderOfBlocks) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  expect_right(*family, dense(35, 70, 600, bf16, bf16, true), "bm=32 bn=32 nw=1 bk=64 sk=3");
  expect_right(*family, quantized(Operation::a8w8, 20, 70, 1000, i8), "bm=32 bn=32 nw=1 bk=64 sk=4");
  expect_right(*family, quantized(Operation::a8w8_blockscale, 20, 70, 1000, fnuz), "bm=32 bn=32 nw=1 sk=2");
  // 7 x 9 tiles, on 8 dies.
  for (const std::string order : {"gm=1 xcd=0", "gm=8 xcd=1", "gm=1 xcd=1"})
    expect_right(*family, dense(100, 130, 64), "bm=16 bn=16 nw=1 bk=128 " + order);
}

TEST(FamiliesOnTheEmulation, MfmaOnGfx90a) {
  EmulatedRuntime runtime("gfx90a");
  const auto family = hip::make_mfma_family(runtime);
  expect_right(*family, dense(35, 70, 200, bf16, bf16, true));
  expect_right(*family, dense(35, 70, 200, f16, f32), "mi=32 bm=32 nw=2");
  expect_right(*family, quantized(Operation::a8w8, 35, 66, 261, i8), "mi=16 bm=32");
  expect_right(*family, shuffled(quantized(Operation::a8w8, 35, 48, 288, i8)), "mi=32 bm=32 bn=32 nw=1");
  EXPECT_THAT(family->accepts(quantized(Operation::a8w8, 35, 66, 261, fnuz)).message(),
              HasSubstr("data types"));
  EXPECT_THAT(family->accepts(dense(4, 64, 5)).message(), HasSubstr("k: 5 bf16, at least 16 bytes"));
}

}  // namespace
}  // namespace gemmtune::emulation
