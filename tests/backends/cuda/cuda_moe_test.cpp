// Mixtures of experts on a GPU: every family, type and form against the reference of verify/. Skips where there is no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/rounding.h"
#include "problem/operands.h"
#include "support/first_gpu.h"
#include "support/gpu_kernels.h"
#include "support/held_multiprocessors.h"
#include "support/moe_layer_on_gpu.h"
#include "support/operation_problems.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

using testing_problems::mixtures;
using testing_problems::moe_of_weights_alone;
using testing_problems::moe_problem;
using testing_problems::Shape;

class CudaMoe : public OnGpu {};

/// The default, and each path through wgmma_moe (tiles, warp groups, clusters, two blocks a multiprocessor, blocks that sort, registers taken
/// from the producer) and mxfp4_stream (several tiles of an expert, warps without k, blocks that sort). Of other families the default and another one.
std::vector<Config> moe_configs(const KernelFamily& family, const Problem& problem, std::size_t most) {
  const bool stream = family.name() == "mxfp4_stream";
  if (family.name() != "wgmma_moe" && !stream) return some_configs(family, problem, 2);
  const char* names[] = {"wgmma_moe_r1_bm64_bn128_bo256_wg2_cm2_bk64_smem226",
                         "wgmma_moe_r1_bm16_bn64_bo128_wg1_cm1_bk64_smem112_sort1",
                         "wgmma_moe_r1_bm192_bn256_bo128_wg2_cm2_bk64_smem226",
                         "wgmma_moe_r1_bm160_bn128_bo128_wg2_cm1_bk64_smem226",
                         "wgmma_moe_r1_bm144_bn128_bo256_wg2_cm2_bk64_smem226",
                         "wgmma_moe_r1_bm32_bn128_bo64_wg2_cm1_bk128_smem226_sort1",
                         "wgmma_moe_r1_bm96_bn256_bo256_wg2_cm1_bk64_smem226",
                         "wgmma_moe_r1_bm48_bn256_bo128_wg1_cm2_bk64_smem226",
                         "wgmma_moe_r1_bm128_bn256_bo256_wg2_cm1_bk64_smem226",
                         "wgmma_moe_r1_bm256_bn64_bo64_wg1_cm1_bk64_smem226",
                         "wgmma_moe_r1_bm96_bn64_bo256_wg1_cm1_bk64_smem226",
                         "wgmma_moe_r1_bm16_bn256_bo256_wg2_cm2_bk128_smem226"};
  const char* names_of_fp4[] = {"wgmma_moe_r1_bm16_bn64_bo64_wg1_cm1_bk256_smem112_sort1",
                                "wgmma_moe_r1_bm32_bn256_bo128_wg2_cm1_bk256_smem226",
                                "wgmma_moe_r1_bm16_bn128_bo256_wg4_cm1_bk256_smem226",
                                "wgmma_moe_r1_bm48_bn256_bo192_wg4_cm1_bk256_smem226",
                                "wgmma_moe_r1_bm96_bn64_bo64_wg1_cm1_bk256_smem226",
                                "wgmma_moe_r1_bm48_bn64_bo128_wg2_cm1_bk256_smem226",
                                "wgmma_moe_r1_bm32_bn64_bo64_wg1_cm1_bk256_smem112"};
  const char* names_of_stream[] = {
      "mxfp4_stream_r1_bm8_ku3_smem226_sort0",  "mxfp4_stream_r1_bm16_ku2_smem226_sort0",
      "mxfp4_stream_r1_bm24_ku1_smem226_sort0", "mxfp4_stream_r1_bm8_ku5_smem112_sort1",
      "mxfp4_stream_r1_bm24_ku3_smem226_sort0", "mxfp4_stream_r1_bm16_ku3_smem226_sort1"};
  const Space space = family.space(problem);
  std::vector<Config> configs{family.default_config(problem)};
  const auto chosen = stream                      ? std::span<const char* const>(names_of_stream)
                      : bits(problem.w_type) == 4 ? std::span<const char* const>(names_of_fp4)
                                                  : std::span<const char* const>(names);
  for (const char* name : chosen) {
    auto candidate = parse_kernel_name(name, space.keys());
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    if (!candidate.ok()) continue;
    if (bits(problem.w_type) == 8) candidate->config.set("bk", 2 * candidate->config.number("bk"));
    if (space.build_refusal(candidate->config).empty()) configs.push_back(candidate->config);
  }
  if (configs.size() > most) configs.resize(most);
  return configs;
}

/// Every family that takes the problem; how many did.
int expect_families_right(const Problem& problem, std::size_t configs) {
  int taken = 0;
  for (const KernelFamily* family : gpu()->families()) {
    if (!family->accepts(problem).ok()) continue;
    ++taken;
    expect_right(*family, problem, moe_configs(*family, problem, configs));
    EXPECT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
  return taken;
}

TEST_F(CudaMoe, EveryTypeOnAwkwardShapesIsRight) {
  int taken = 0;
  for (const Shape& shape : {Shape{1, 65, 70}, Shape{17, 64, 128}, Shape{40, 37, 131}, Shape{9, 33, 300}}) {
    for (const Problem& problem : mixtures(shape)) {
      taken += expect_families_right(problem, 4);
      ASSERT_TRUE(gpu()->health().ok());
    }
  }
  EXPECT_GE(taken, 40);
}

Problem mixture_of(const Shape& shape, int experts, int topk) {
  Problem problem = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, shape);
  problem.moe.experts = experts;
  problem.moe.topk = topk;
  return problem;
}

TEST_F(CudaMoe, FewAndManyExpertsAreRight) {
  // All experts for every token; one expert; more experts than pairs; more pairs than the sort reads at once; many tokens an expert; pairs that
  // two kernels sort, and more tiles for a block than it keeps.
  for (const Problem& problem :
       {mixture_of({37, 72, 200}, 8, 8), mixture_of({130, 72, 200}, 1, 1), mixture_of({3, 264, 136}, 256, 8),
        mixture_of({1500, 64, 128}, 16, 4), mixture_of({700, 136, 264}, 4, 2),
        mixture_of({300, 768, 512}, 16, 4), mixture_of({4150, 512, 128}, 40, 4)}) {
    expect_families_right(problem, 13);
    ASSERT_TRUE(gpu()->health().ok());
  }
}

TEST_F(CudaMoe, ActivationsAndGatesAreRight) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const Activation activation :
         {Activation::none, Activation::silu, Activation::gelu, Activation::swiglu}) {
      for (const bool gated : {true, false}) {
        if (activation == Activation::swiglu && !gated) continue;
        Problem problem = moe_problem(type, type, QuantType::none, {50, 96, 192});
        problem.y_type = type;
        problem.moe.activation = activation;
        problem.moe.gated = gated;
        problem.moe.doweight_stage1 = activation == Activation::gelu;
        problem.bias = type == DataType::bf16;
        expect_families_right(problem, 3);
        ASSERT_TRUE(gpu()->health().ok());
      }
    }
  }
}

TEST_F(CudaMoe, SharedExpertsAreRight) {
  for (const bool fp8 : {false, true}) {
    for (const Shape& shape : {Shape{1, 256, 512}, Shape{70, 144, 272}}) {
      const DataType type = fp8 ? DataType::f8_e4m3fn : DataType::bf16;
      Problem problem = moe_problem(type, type, fp8 ? QuantType::per_1x128 : QuantType::none, shape);
      problem.moe.shared_experts = shape.m == 1 ? 2 : 1;
      problem.moe.doweight_stage1 = shape.m == 1;
      problem.moe.activation = fp8 ? Activation::silu : Activation::swiglu;
      problem.bias = !fp8;
      expect_families_right(problem, 5);
      ASSERT_TRUE(gpu()->health().ok());
    }
  }
}

/// Mixtures of fp8 with scales of one form.
class CudaFp8Moe : public OnGpu, public ::testing::WithParamInterface<QuantType> {};

TEST_P(CudaFp8Moe, IsRight) {
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  for (const Shape& shape : {Shape{1, 256, 512}, Shape{33, 144, 400}, Shape{260, 272, 656}}) {
    for (const bool gated : {true, false}) {
      Problem problem = moe_problem(fp8, fp8, GetParam(), shape);
      problem.moe.gated = gated;
      problem.moe.doweight_stage1 = !gated;
      problem.moe.activation = gated ? Activation::silu : Activation::gelu;
      problem.bias = shape.m == 33;
      EXPECT_EQ(expect_families_right(problem, 10), gpu()->find_family("wgmma_moe") == nullptr ? 1
                                                    : shape.m <= 8                             ? 3
                                                                                               : 2);
      ASSERT_TRUE(gpu()->health().ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaFp8Moe,
                         ::testing::Values(QuantType::per_tensor, QuantType::per_token, QuantType::per_1x128),
                         [](const auto& one) { return std::string(to_string(one.param)); });

/// Where a tile has the 128 columns of a scale, stage 1 of wgmma_moe quantizes the hidden layer. Several tiles of an expert, tiles in part, blocks of a cluster
/// without tokens.
TEST_F(CudaMoe, Fp8HiddenLayersThatStage1QuantizesAreRight) {
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  const KernelFamily* family = gpu()->find_family("wgmma_moe");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma_moe").message();
  for (const Shape& shape : {Shape{700, 256, 400}, Shape{41, 384, 528}}) {
    for (const bool gated : {true, false}) {
      Problem problem = moe_problem(fp8, fp8, QuantType::per_1x128, shape);
      problem.moe.experts = 5;
      problem.moe.topk = 2;
      problem.moe.gated = gated;
      problem.moe.doweight_stage1 = !gated;
      problem.moe.activation = gated ? Activation::silu : Activation::gelu;
      problem.bias = shape.m == 41;
      const Space space = family->space(problem);
      std::vector<Config> configs;
      for (const char* tiles : {"bm64_bn256_bo128_wg2_cm1_bk128", "bm96_bn256_bo256_wg2_cm2_bk128",
                                "bm128_bn256_bo256_wg2_cm1_bk128", "bm96_bn128_bo256_wg2_cm1_bk128",
                                "bm64_bn128_bo128_wg2_cm2_bk256"}) {
        const auto candidate = parse_kernel_name(fmt::format("wgmma_moe_r1_{}_smem226", tiles), space.keys());
        ASSERT_TRUE(candidate.ok()) << candidate.message();
        if (space.build_refusal(candidate->config).empty()) configs.push_back(candidate->config);
      }
      EXPECT_GE(configs.size(), gated ? 5U : 4U);
      expect_right(*family, problem, configs);
      ASSERT_TRUE(gpu()->health().ok());
    }
  }
}

/// gpt-oss's layer, biases included, on awkward sizes: rows of scales at multiples of 4, 2 and 1 bytes, units of 128 that are not whole, rows that begin 32 bytes
/// further in a line than the one before (2880, 576, 320).
TEST_F(CudaMoe, Mxfp4WeightsAreRight) {
  for (const Shape& shape : {Shape{1, 2880, 2880}, Shape{3, 96, 32}, Shape{50, 160, 192}, Shape{20, 192, 576},
                             Shape{130, 288, 544}, Shape{300, 256, 1024}, Shape{140, 320, 576}}) {
    for (const bool early : {false, true}) {
      Problem problem = moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, shape);
      problem.moe.activation = early ? Activation::silu : Activation::swiglu;
      problem.moe.doweight_stage1 = early;
      problem.bias = !early || shape.m == 50;
      problem.moe.experts = shape.m == 1 ? 6 : 5;
      problem.moe.topk = early ? 1 : 4;
      // mxfp4_stream and, of few tokens, moe_decode take rows of whole units of 64 elements.
      const bool streams =
          shape.n % 64 == 0 && shape.k % 64 == 0 && problem.m * problem.moe.topk <= 16 * problem.moe.experts;
      EXPECT_EQ(expect_families_right(problem, 8), gpu()->find_family("wgmma_moe") == nullptr ? 1
                                                   : streams ? (shape.m <= 8 ? 4 : 3)
                                                             : 2);
      ASSERT_TRUE(gpu()->health().ok());
    }
  }
}

/// Every way through the stream, for compute-sanitizer.
TEST_F(CudaMoe, SanitizerSampleOfStreams) {
  const KernelFamily* family = gpu()->find_family("mxfp4_stream");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4_stream").message();
  for (const Shape& shape : {Shape{1, 192, 320}, Shape{11, 64, 576}}) {
    Problem problem = moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, shape);
    problem.moe.activation = Activation::swiglu;
    ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
    expect_right(*family, problem, moe_configs(*family, problem, 7));
  }
}

TEST_F(CudaMoe, Mxfp4WeightsWithoutAGateAreRight) {
  for (const Shape& shape : {Shape{1, 192, 320}, Shape{50, 160, 192}, Shape{130, 288, 544}}) {
    Problem problem = moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, shape);
    problem.moe.gated = false;
    problem.moe.activation = shape.m == 50 ? Activation::silu : Activation::gelu;
    problem.moe.doweight_stage1 = shape.m == 1;
    problem.bias = shape.m != 1;
    const bool streams = shape.m == 1;
    EXPECT_EQ(expect_families_right(problem, 8), gpu()->find_family("wgmma_moe") == nullptr ? 1
                                                 : streams                                  ? 4
                                                                                            : 2);
    ASSERT_TRUE(gpu()->health().ok());
  }
}

/// Tokens that become bf16 first: fp8, int8 and MXFP4, scales of every form that is exact.
TEST_F(CudaMoe, Mxfp4WeightsWithQuantizedTokensAreRight) {
  constexpr DataType fp4 = DataType::f4_e2m1;
  const std::pair<DataType, QuantType> forms[] = {
      {DataType::f8_e4m3fn, QuantType::per_token}, {DataType::f8_e4m3fn, QuantType::per_tensor},
      {DataType::f8_e4m3fn, QuantType::per_1x32},  {DataType::f8_e4m3fnuz, QuantType::per_token},
      {DataType::i8, QuantType::per_token},        {fp4, QuantType::per_1x32}};
  for (const Shape& shape : {Shape{1, 192, 320}, Shape{50, 96, 160}, Shape{130, 256, 576}}) {
    for (const auto& [type, quantization] : forms) {
      Problem problem = moe_problem(type, fp4, quantization, shape);
      problem.moe.activation = shape.m == 1 ? Activation::silu : Activation::swiglu;
      problem.moe.doweight_stage1 = shape.m == 1;
      problem.moe.topk = shape.m == 50 ? 2 : 1;
      problem.bias = shape.m != 130;
      const bool streams = shape.n % 64 == 0 && problem.m * problem.moe.topk <= 16 * problem.moe.experts;
      // moe_decode takes scales of tokens or one.
      const bool decodes = shape.m == 1 && type == DataType::f8_e4m3fn && quantization != QuantType::per_1x32;
      EXPECT_EQ(expect_families_right(problem, 4), gpu()->find_family("wgmma_moe") == nullptr ? 1
                                                   : streams ? (decodes ? 4 : 3)
                                                             : 2);
      ASSERT_TRUE(gpu()->health().ok());
    }
  }
}

/// Scales of every size: of w1 from 2^-64 to 2^53, of w2 from 2^-106 to 2^127, with which elements above 1 are more than bf16 and float32 hold.
TEST_F(CudaMoe, Mxfp4ScalesOfEverySizeAreRight) {
  Problem problem = moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {24, 128, 256});
  problem.moe.activation = Activation::none;
  problem.moe.experts = 4;
  problem.moe.topk = 2;
  const KernelFamily* slow = gpu()->find_family("simt_moe");
  if (slow == nullptr) GTEST_SKIP() << gpu()->missing_family("simt_moe").message();
  for (const int exponent : {63, 64, 75, 100, 126, 127, 128, 129, 130, 180}) {
    MoeLayerOnGpu layer(problem);
    // In w1 e, in w2 the opposite, so that gate * up stays in range: (2^(e-127))^2 * 2^(e2-127).
    layer.set_scales(static_cast<unsigned char>(exponent),
                     static_cast<unsigned char>(std::clamp(381 - 2 * exponent, 1, 254)));
    const std::vector<float> right = layer.run(*default_kernel(*slow, problem), layer.ids());
    for (const float value : right) ASSERT_TRUE(std::isfinite(value)) << exponent;
    for (const char* name : {"wgmma_moe", "mxfp4_stream"}) {
      const KernelFamily* fast = gpu()->find_family(name);
      if (fast == nullptr) GTEST_SKIP() << gpu()->missing_family(name).message();
      const std::vector<float> y = layer.run(*default_kernel(*fast, problem), layer.ids());
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        error += std::pow(static_cast<double>(y[i]) - static_cast<double>(right[i]), 2);
        norm += std::pow(static_cast<double>(right[i]), 2);
      }
      EXPECT_GT(norm, 0) << exponent;
      EXPECT_LT(std::sqrt(error / norm), 0.01) << name << " " << exponent;
    }
  }
}

/// Slots of -1 are as slots of the weight 0, whatever their own weight, and tokens of such slots alone are 0. Few pairs, which blocks sort or moe_decode's entries
/// hold, some, and so many that two kernels sort them; batches of such slots alone.
TEST_F(CudaMoe, EmptySlotsAddNothing) {
  const DataType fp4 = DataType::f4_e2m1;
  for (const char* name : {"simt_moe", "wgmma_moe", "moe_decode", "mxfp4_stream"}) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr) continue;
    for (const std::int64_t tokens : {2, 7, 40, 4200}) {
      for (Problem problem :
           {mixture_of({tokens, 64, 128}, 40, 4),
            moe_problem(DataType::bf16, fp4, QuantType::per_1x32, {tokens, 64, 128}),
            moe_of_weights_alone(DataType::bf16, QuantType::per_1x16, {tokens, 64, 128}),
            moe_of_weights_alone(DataType::bf16, QuantType::per_group, {tokens, 256, 256}, 128, true)}) {
        problem.moe.experts = 40;
        if (!family->accepts(problem).ok()) continue;
        const auto topk = static_cast<std::size_t>(problem.moe.topk);
        MoeLayerOnGpu layer(problem);
        std::vector<float> weights = layer.weights();
        std::vector<float> zero = weights;
        std::vector<std::int32_t> ids = layer.ids();
        const auto is_empty = [&](std::size_t i) {
          const std::size_t token = i / topk;
          return token % 7 == 1 || token + 1 == static_cast<std::size_t>(tokens) || i % 5 == 0;
        };
        for (std::size_t i = 0; i < ids.size(); ++i) {
          if (!is_empty(i)) continue;
          ids[i] = -1;
          weights[i] = std::numeric_limits<float>::quiet_NaN();
          zero[i] = 0;
        }
        for (const Config& config : moe_configs(*family, problem, 7)) {
          SCOPED_TRACE(fmt::format("{} {} {}", print(problem), name, config.text()));
          const auto kernel = family->build(problem, config);
          ASSERT_TRUE(kernel.ok()) << kernel.message();
          layer.set_weights(zero);
          const std::vector<float> right = layer.run(**kernel, layer.ids());
          layer.set_weights(weights);
          const std::vector<float> y = layer.run(**kernel, ids);
          double error = 0;
          double norm = 0;
          for (std::size_t i = 0; i < y.size(); ++i) {
            error += std::pow(static_cast<double>(y[i]) - static_cast<double>(right[i]), 2);
            norm += std::pow(static_cast<double>(right[i]), 2);
            const std::size_t token = i / static_cast<std::size_t>(problem.k);
            if (token % 7 == 1 || token + 1 == static_cast<std::size_t>(tokens)) {
              ASSERT_EQ(y[i], 0) << "token " << token;
            }
          }
          EXPECT_GT(norm, 0);
          EXPECT_LE(std::sqrt(error), 0.01 * std::sqrt(norm));
          const std::vector<float> none = layer.run(**kernel, std::vector<std::int32_t>(ids.size(), -1));
          for (const float value : none) ASSERT_EQ(value, 0);
        }
        ASSERT_TRUE(gpu()->health().ok());
      }
    }
  }
}

/// The same positions, so the same bits: up to 512 pairs, of experts with no, one and several tiles.
TEST_F(CudaMoe, BlocksSortAsAKernelDoes) {
  for (const char* name : {"wgmma_moe", "mxfp4_stream"}) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr) continue;
    for (const std::int64_t tokens : {64, 33, 1}) {
      for (const int experts : {40, 300, 1000}) {
        Problem problem = moe_of_weights_alone(DataType::bf16, QuantType::per_group, {tokens, 64, 128}, 32);
        problem.moe.experts = experts;
        problem.moe.topk = 8;
        SCOPED_TRACE(fmt::format("{} {}", print(problem), name));
        ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
        MoeLayerOnGpu layer(problem);
        std::vector<std::int32_t> ids = layer.ids();
        for (std::size_t i = 0; i < ids.size(); ++i) {
          if (i % 8 == 3) ids[i] = experts - 1;
          if (i % 31 == 5 && tokens > 1) ids[i] = i % 2 == 0 ? -1 : experts;
        }
        Config config = family->default_config(problem);
        std::vector<float> y[2];
        for (const int sort : {0, 1}) {
          config.set("sort", std::int64_t{sort});
          ASSERT_EQ(family->space(problem).build_refusal(config), "");
          const auto kernel = family->build(problem, config);
          ASSERT_TRUE(kernel.ok()) << kernel.message();
          y[sort] = layer.run(**kernel, ids);
          for (const float value : layer.run(**kernel, std::vector<std::int32_t>(ids.size(), -1)))
            ASSERT_EQ(value, 0);
        }
        ASSERT_EQ(y[0].size(), y[1].size());
        int numbers = 0;
        for (std::size_t i = 0; i < y[0].size(); ++i) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(y[0][i]), std::bit_cast<std::uint32_t>(y[1][i])) << i;
          numbers += std::isfinite(y[0][i]) && y[0][i] != 0 ? 1 : 0;
        }
        EXPECT_GT(numbers, 0);
      }
    }
  }
}

TEST_F(CudaMoe, AnIdThatIsNoExpertMakesItsTokenNaN) {
  const std::pair<const char*, std::int64_t> families[] = {
      {"simt_moe", 20}, {"wgmma_moe", 20}, {"moe_decode", 4}};
  for (const auto& [name, tokens] : families) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr) continue;
    const Problem problem = mixture_of({tokens, 64, 128}, 8, 2);
    MoeLayerOnGpu layer(problem);
    const auto kernel = default_kernel(*family, problem);
    ASSERT_NE(kernel, nullptr);
    const std::vector<float> right = layer.run(*kernel, layer.ids());
    std::vector<std::int32_t> ids = layer.ids();
    ids[5] = 8;  // token 2
    if (tokens > 12) {
      ids[22] = -2;  // token 11
      ids[24] = std::numeric_limits<std::int32_t>::max();
    }
    const std::vector<float> y = layer.run(*kernel, ids);
    for (std::int64_t token = 0; token < problem.m; ++token) {
      const bool lost = token == 2 || token == 11 || token == 12;
      for (std::int64_t column = 0; column < problem.k; ++column) {
        const auto at = static_cast<std::size_t>(token * problem.k + column);
        ASSERT_EQ(std::isnan(y[at]), lost) << name << " " << token << " " << column;
        if (!lost) {
          ASSERT_EQ(y[at], right[at]) << name << " " << token << " " << column;
        }
      }
    }
  }
}

/// Activations, gates, biases, shared experts and routing weights by the number of tokens.
void set_forms(Problem& problem) {
  const Activation activations[] = {Activation::swiglu, Activation::gelu, Activation::silu, Activation::none};
  problem.moe.activation = activations[problem.m % 4];
  problem.moe.gated = problem.moe.activation == Activation::swiglu || problem.m % 3 != 0;
  problem.moe.doweight_stage1 = problem.m == 5;
  problem.moe.experts = problem.m == 8 ? 40 : 7;
  problem.moe.topk = problem.m == 8 ? 8 : 3;
  problem.moe.shared_experts = problem.m % 4 == 3 ? 2 : 0;
  problem.bias = problem.m % 2 == 0;
}

/// moe_decode with operands of one form.
class CudaMoeDecode : public OnGpu, public ::testing::WithParamInterface<std::pair<DataType, QuantType>> {};

TEST_P(CudaMoeDecode, IsRight) {
  const KernelFamily* family = gpu()->find_family("moe_decode");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("moe_decode").message();
  const auto [type, quantization] = GetParam();
  // Fewer rows of w2 than blocks; rows that are no whole 128 bytes, tiles of 8 rows, features that are no whole 16; rows of w2 in slabs; many pairs.
  const Shape shapes[] = {{1, 48, 80},    {2, 272, 656}, {3, 768, 2048}, {4, 4624, 272},
                          {5, 144, 4112}, {7, 16, 1040}, {8, 256, 3584}};
  for (const Shape& shape : shapes) {
    Problem problem = moe_problem(type, type, quantization, shape);
    problem.y_type = type == DataType::f16 ? type : DataType::bf16;
    set_forms(problem);
    ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
    expect_right(*family, problem, some_configs(*family, problem, 3));
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
}

/// MXFP4 weights: fewer rows of w2 than blocks, warps without k, an odd number of tiles of 8 rows; rows with gaps, of scales too; several tiles a block; gpt-oss's rows. Scales above 2.
TEST_F(CudaMoe, DecodeOfMxfp4IsRight) {
  const KernelFamily* family = gpu()->find_family("moe_decode");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("moe_decode").message();
  const Shape shapes[] = {{1, 64, 64},     {2, 320, 192},  {3, 512, 1024}, {4, 2880, 2880},
                          {5, 1088, 2240}, {7, 128, 4224}, {8, 2880, 2880}};
  for (const Shape& shape : shapes) {
    Problem problem = moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, shape);
    set_forms(problem);
    for (const QuantType tokens : {QuantType::per_1x32, QuantType::per_token, QuantType::per_tensor}) {
      problem.x_type = tokens == QuantType::per_1x32 ? DataType::bf16 : DataType::f8_e4m3fn;
      problem.moe.quant_type = tokens;
      ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
      expect_right(*family, problem, some_configs(*family, problem, tokens == QuantType::per_1x32 ? 4 : 1));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
  // Untuned layers run it as long as it is the faster one.
  Problem untuned = moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {2, 2880, 2880});
  EXPECT_EQ(gpu()->fallback(untuned)->family, "moe_decode");
  untuned.m = 3;
  EXPECT_EQ(gpu()->fallback(untuned)->family, "mxfp4_stream");
  for (const std::int64_t lost : {2880 + 32, 96})
    EXPECT_FALSE(
        family->accepts(moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {4, lost, 2880}))
            .ok());
}

/// NVFP4 and int4 weights of groups that mixtures' fast families take: sizes are rounded up to whole pairs of groups, which zero points need.
std::vector<Problem> weight_formats(const Shape& shape) {
  std::vector<Problem> all{moe_of_weights_alone(DataType::bf16, QuantType::per_1x16, shape),
                           moe_of_weights_alone(DataType::f16, QuantType::per_1x16, shape)};
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const std::int32_t group : {32, 64, 128}) {
      for (const bool zero_points : {false, true}) {
        const auto whole = [&](std::int64_t size) { return round_up(size, zero_points ? 2 * group : group); };
        all.push_back(moe_of_weights_alone(type, QuantType::per_group,
                                           {shape.m, whole(shape.n), whole(shape.k)}, group, zero_points));
      }
    }
  }
  return all;
}

/// The default, and where elements may be multiplied by their scales, kernels that do that and that do not.
std::vector<Config> both_scaled(const KernelFamily& family, const Problem& problem) {
  std::vector<Config> configs{family.default_config(problem)};
  if (configs[0].find("scaled") == nullptr) return configs;
  configs.push_back(configs[0]);
  configs[0].set("scaled", std::string("0"));
  configs[1].set("scaled", std::string("1"));
  const Space space = family.space(problem);
  std::erase_if(configs, [&](const Config& config) { return !space.build_refusal(config).empty(); });
  return configs;
}

/// moe_decode: fewer rows of w2 than blocks, warps without k, an odd number of tiles of 8 rows, teams of warps, w2 of few k. wgmma_moe: units of
/// 128 that are not whole, features past the last one, tiles in part, several tiles of an expert, shared experts. mxfp4_stream: teams of one and more
/// warps, warps without k, stages of one and more strips, rows with and without gaps, several tiles of an expert, blocks that sort.
class CudaMoeWeightFormats : public CudaMoe,
                             public ::testing::WithParamInterface<std::pair<std::string, Shape>> {};

TEST_P(CudaMoeWeightFormats, AreRight) {
  const auto& [name, shape] = GetParam();
  const KernelFamily* family = gpu()->find_family(name);
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family(name).message();
  for (Problem& problem : weight_formats(shape)) {
    set_forms(problem);
    if (name == "mxfp4_stream" && problem.k == 5120 && problem.w_group == 64 && problem.zero_points) {
      EXPECT_THAT(family->accepts(problem).message(), ::testing::HasSubstr("no strip of it fits"));
      continue;
    }
    ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
    std::vector<Config> configs = moe_configs(*family, problem, 5);
    for (Config& config : both_scaled(*family, problem)) configs.push_back(std::move(config));
    for (Config& config : family->space(problem).enumerate())
      if (config.number("teams", 1) > 1 && config.number("smem") == 112) configs.push_back(std::move(config));
    if (name == "mxfp4_stream")
      for (Config& config : some_configs(*family, problem, 8)) configs.push_back(std::move(config));
    expect_right(*family, problem, configs);
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
}

std::vector<std::pair<std::string, Shape>> shapes_by_family() {
  std::vector<std::pair<std::string, Shape>> all;
  for (const Shape& shape :
       {Shape{1, 64, 64}, Shape{2, 320, 192}, Shape{3, 768, 2048}, Shape{1, 256, 7168}, Shape{4, 2816, 2816},
        Shape{5, 1088, 2240}, Shape{8, 512, 1024}, Shape{7, 128, 4224}})
    all.emplace_back("moe_decode", shape);
  for (const Shape& shape : {Shape{9, 96, 32}, Shape{23, 160, 192}, Shape{50, 192, 576}, Shape{130, 288, 544},
                             Shape{141, 320, 576}, Shape{300, 256, 1024}})
    all.emplace_back("wgmma_moe", shape);
  for (const Shape& shape : {Shape{1, 64, 64}, Shape{9, 320, 192}, Shape{23, 768, 2048}, Shape{3, 256, 5120},
                             Shape{34, 1088, 2240}, Shape{16, 512, 1024}, Shape{8, 128, 4224}})
    all.emplace_back("mxfp4_stream", shape);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, CudaMoeWeightFormats, ::testing::ValuesIn(shapes_by_family()),
                         [](const auto& one) {
                           const Shape& shape = one.param.second;
                           return fmt::format("{}_{}x{}x{}", one.param.first, shape.m, shape.n, shape.k);
                         });

/// For compute-sanitizer.
TEST_F(CudaMoe, SanitizerSampleOfWeightFormats) {
  for (const Shape& shape : {Shape{2, 256, 512}, Shape{5, 320, 192}}) {
    for (Problem& problem : weight_formats(shape)) {
      set_forms(problem);
      for (const char* name : {"moe_decode", "wgmma_moe", "mxfp4_stream"}) {
        const KernelFamily* family = gpu()->find_family(name);
        if (family != nullptr && family->accepts(problem).ok())
          expect_right(*family, problem, some_configs(*family, problem, 2));
      }
    }
  }
}

/// Scales of every size, as simt_moe has them: of NVFP4 the smallest, the largest, 0, a negative one and NaN; of int4 near the ends of bf16, and around 2, from which on elements are
/// multiplied in two steps.
TEST_F(CudaMoe, ScalesOfWeightFormatsAreRight) {
  const KernelFamily* slow = gpu()->find_family("simt_moe");
  if (slow == nullptr) GTEST_SKIP() << gpu()->missing_family("simt_moe").message();
  Problem nvfp4 = moe_of_weights_alone(DataType::bf16, QuantType::per_1x16, {7, 128, 256});
  Problem int4 = moe_of_weights_alone(DataType::bf16, QuantType::per_group, {7, 256, 256}, 32, true);
  Problem symmetric = moe_of_weights_alone(DataType::bf16, QuantType::per_group, {7, 256, 256}, 32);
  struct Case {
    const Problem* problem;
    unsigned of_w, of_w2;
  };
  const Case cases[] = {
      {&nvfp4, 0x01, 0x7e},         {&nvfp4, 0x7e, 0x01},         {&nvfp4, 0x00, 0x38},
      {&nvfp4, 0xb8, 0x07},         {&nvfp4, 0x38, 0x7f},         {&int4, 0x0480, 0x7d00},
      {&int4, 0x5f00, 0x2080},      {&int4, 0xbf80, 0x3f80},      {&int4, 0x3f80, 0x7fc0},
      {&symmetric, 0x5f00, 0x2080}, {&symmetric, 0x3fff, 0xc000}, {&symmetric, 0x0480, 0x7d00},
      {&symmetric, 0x3f80, 0x7fc0}};
  for (Problem* problem : {&nvfp4, &int4, &symmetric}) {
    problem->moe.activation = Activation::none;
    problem->moe.gated = false;
    problem->moe.experts = 4;
    problem->moe.topk = 2;
  }
  for (const Case& one : cases) {
    SCOPED_TRACE(fmt::format("{} {:#x} {:#x}", print(*one.problem), one.of_w, one.of_w2));
    MoeLayerOnGpu layer(*one.problem);
    layer.set_scales(one.of_w, one.of_w2);
    const std::vector<float> right = layer.run(*default_kernel(*slow, *one.problem), layer.ids());
    for (const char* name : {"moe_decode", "wgmma_moe", "mxfp4_stream"}) {
      const KernelFamily* fast = gpu()->find_family(name);
      if (fast == nullptr || !fast->accepts(*one.problem).ok()) continue;
      for (const Config& config : both_scaled(*fast, *one.problem)) {
        const auto kernel = fast->build(*one.problem, config);
        ASSERT_TRUE(kernel.ok()) << kernel.message();
        const std::vector<float> y = layer.run(**kernel, layer.ids());
        double error = 0;
        double norm = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(std::isnan(y[i]), std::isnan(right[i])) << name << " " << config.text() << " " << i;
          if (std::isnan(y[i])) continue;
          ASSERT_TRUE(std::isfinite(right[i])) << i;
          error += std::pow(static_cast<double>(y[i]) - static_cast<double>(right[i]), 2);
          norm += std::pow(static_cast<double>(right[i]), 2);
        }
        EXPECT_LE(std::sqrt(error), 0.01 * std::sqrt(norm)) << name << " " << config.text();
      }
    }
  }
}

constexpr DataType form_fp8 = DataType::f8_e4m3fn;
INSTANTIATE_TEST_SUITE_P(
    , CudaMoeDecode,
    ::testing::Values(std::pair{DataType::bf16, QuantType::none}, std::pair{DataType::f16, QuantType::none},
                      std::pair{form_fp8, QuantType::per_tensor}, std::pair{form_fp8, QuantType::per_token},
                      std::pair{form_fp8, QuantType::per_1x128}),
    [](const auto& one) {
      return std::string(to_string(one.param.first)) + "_" + std::string(to_string(one.param.second));
    });

/// For every number of tokens; with a workspace that holds anything, also what an earlier launch or another kernel left; experts that a token names twice.
TEST_F(CudaMoe, DecodeWorksWithAnyWorkspace) {
  const KernelFamily* family = gpu()->find_family("moe_decode");
  const KernelFamily* slow = gpu()->find_family("simt_moe");
  if (family == nullptr || slow == nullptr) GTEST_SKIP() << "needs both families";
  for (std::int64_t tokens = 1; tokens <= 8; ++tokens) {
    const Problem problem = mixture_of({tokens, 96, 1056}, 6, 4);
    MoeLayerOnGpu layer(problem);
    const auto kernel = default_kernel(*family, problem);
    const auto reference = default_kernel(*slow, problem);
    ASSERT_TRUE(kernel != nullptr && reference != nullptr);
    std::vector<std::int32_t> ids = layer.ids();
    for (const bool twice : {false, true}) {
      if (twice) ids[1] = ids[2] = ids[0];
      const std::vector<float> right = layer.run(*reference, ids);
      std::vector<float> first;
      for (const int byte : {0, 1, 2, 0xff, -1}) {
        const std::vector<float> y = layer.run(*kernel, ids, byte);
        double error = 0;
        double norm = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
          error += std::pow(static_cast<double>(y[i]) - static_cast<double>(right[i]), 2);
          norm += std::pow(static_cast<double>(right[i]), 2);
        }
        EXPECT_LT(std::sqrt(error / norm), 0.006) << tokens << " " << twice << " " << byte;
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << tokens << " " << twice << " " << byte;
      }
    }
  }
}

/// Beside a kernel on another stream that holds a third of the multiprocessors for 50 ms: the blocks that have found room wait for the others, and the layer ends when these have.
TEST_F(CudaMoe, DecodeEndsBesideAKernelThatEnds) {
  const KernelFamily* family = gpu()->find_family("moe_decode");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("moe_decode").message();
  const auto other = HeldMultiprocessors::make();
  ASSERT_TRUE(other.ok()) << other.message();
  const Problem problem = mixture_of({2, 96, 1056}, 6, 4);
  MoeLayerOnGpu layer(problem);
  const auto kernel = default_kernel(*family, problem);
  ASSERT_NE(kernel, nullptr);
  const std::vector<float> right = layer.run(*kernel, layer.ids());
  std::chrono::steady_clock::time_point begin;
  const auto holding = [&] {
    const Status held = (*other)->hold(3, std::chrono::milliseconds(50));
    EXPECT_TRUE(held.ok()) << held.message();
    begin = std::chrono::steady_clock::now();
  };
  EXPECT_EQ(layer.run(*kernel, layer.ids(), 0, holding), right);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
}

TEST_F(CudaMoe, AllTokensToTheSameExperts) {
  const Problem problem = mixture_of({200, 128, 256}, 16, 2);
  const KernelFamily* simt = gpu()->find_family("simt_moe");
  const KernelFamily* fast = gpu()->find_family("wgmma_moe");
  if (simt == nullptr || fast == nullptr) GTEST_SKIP() << "needs both families";
  MoeLayerOnGpu layer(problem);
  std::vector<std::int32_t> ids(400);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i % 2 == 0 ? 11 : 3;
  const std::vector<float> slow = layer.run(*default_kernel(*simt, problem), ids);
  const std::vector<float> y = layer.run(*default_kernel(*fast, problem), ids);
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    error += std::pow(static_cast<double>(y[i]) - static_cast<double>(slow[i]), 2);
    norm += std::pow(static_cast<double>(slow[i]), 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 0.006);
}

}  // namespace
}  // namespace gemmtune
