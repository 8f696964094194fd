// The corner configs of every GPU family's space compile for its architectures, fit, and do not spill. Needs NVRTC, no GPU.
#include "support/gpu_compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <span>

#include "backends/cuda/families/own_families.h"
#include "backends/gpu/families/own_families.h"
#include "support/dense_problem.h"
#include "support/kernel_names.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

TEST_F(GpuCompile, SimtForEveryArchitectureAndType) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    const auto family = gpu::make_simt_family(runtime);
    for (const auto& [x, y] :
         {std::pair{DataType::f32, DataType::f32}, std::pair{DataType::bf16, DataType::bf16},
          std::pair{DataType::f16, DataType::f32}, std::pair{DataType::f8_e4m3fn, DataType::f16}})
      expect_compiles(*family, runtime, dense(33, 65, 70, x, y));
    for (const Operation operation : {Operation::a4w4_blockscale, Operation::a16w4, Operation::a8w4})
      expect_compiles(*family, runtime, of_fp4(operation, 33, 65, 96));
    // What only the operands' layout or scales change is the same text for all: one architecture sees it.
    if (architecture != std::string("sm_90a") && !is_thorough()) continue;
    for (const auto& [x, y] :
         {std::pair{DataType::f32, DataType::f32}, std::pair{DataType::bf16, DataType::bf16},
          std::pair{DataType::f16, DataType::f32}, std::pair{DataType::f8_e4m3fn, DataType::f16}})
      expect_compiles(*family, runtime, packed(dense(17, 65, 70, x, y)));
    for (const Problem& problem :
         {quantized(Operation::a8w8, 33, 65, 70, DataType::i8),
          quantized(Operation::a8w8, 33, 65, 70, DataType::f8_e4m3fn),
          quantized(Operation::a8w8_blockscale, 33, 65, 70, DataType::f8_e4m3fn), batched(3, 33, 65, 70),
          batched(3, 33, 65, 70, DataType::i8), with_e8m0_scales(33, 65, 70)})
      expect_compiles(*family, runtime, problem);
    for (const Operation operation : {Operation::a4w4_blockscale, Operation::a16w4, Operation::a8w4})
      expect_compiles(*family, runtime, packed(of_fp4(operation, 17, 65, 96)));
    for (const Problem& problem : testing_problems::weight_format_problems({17, 65, 96})) {
      expect_compiles(*family, runtime, problem);
      expect_compiles(*family, runtime, packed(problem));
    }
  }
}

TEST_F(GpuCompile, SimtMoeForEveryArchitectureAndType) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    const auto family = gpu::make_simt_moe_family(runtime);
    // The types' conversions are the same text for all: one architecture sees them all.
    std::vector<Problem> problems = testing_problems::mixtures({33, 65, 70});
    if (architecture != std::string("sm_90a")) problems.resize(2);
    for (const Problem& problem : problems) expect_compiles(*family, runtime, problem);
  }
}

TEST_F(GpuCompile, WgmmaMoeForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_wgmma_moe_family(runtime, no_driver);
  for (const std::int64_t tokens : is_thorough() ? std::vector{1, 64, 4096} : std::vector{1, 4096}) {
    Problem problem =
        testing_problems::moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {tokens, 768, 2048});
    problem.moe.experts = 128;
    problem.moe.topk = 8;
    expect_compiles(*family, runtime, problem);
    problem.moe.gated = false;
    problem.moe.activation = Activation::gelu;
    problem.bias = true;
    expect_compiles(*family, runtime, problem);
    // gpt-oss's layer: MXFP4 weights.
    Problem fp4 = testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32,
                                                {tokens, 2880, 2880});
    fp4.moe.experts = 128;
    fp4.moe.topk = 4;
    fp4.moe.activation = Activation::swiglu;
    if (tokens != 64) expect_compiles(*family, runtime, fp4);
    fp4.bias = true;
    expect_compiles(*family, runtime, fp4);
    fp4.x_type = DataType::f8_e4m3fn;
    fp4.moe.quant_type = QuantType::per_token;
    fp4.moe.gated = tokens > 1;
    fp4.moe.activation = Activation::gelu;
    expect_compiles(*family, runtime, fp4);
    for (const QuantType type : {QuantType::per_token, QuantType::per_1x128}) {
      Problem quantized =
          testing_problems::moe_problem(DataType::f8_e4m3fn, DataType::f8_e4m3fn, type, {tokens, 256, 7168});
      quantized.moe.experts = 256;
      quantized.moe.topk = 8;
      expect_compiles(*family, runtime, quantized);
      quantized.moe.gated = false;
      quantized.moe.doweight_stage1 = true;
      quantized.bias = true;
      if (tokens == 4096) expect_compiles(*family, runtime, quantized);
    }
    for (const Problem& of_format : testing_problems::mixtures_of_weight_formats({tokens, 768, 2048}))
      if (tokens != 64 && !has_whole_rows(of_format)) expect_compiles(*family, runtime, of_format);
  }
}

/// Most of x and of the rows of w2 that registers hold; every form of scales.
TEST_F(GpuCompile, MoeDecodeForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const auto family = cuda::make_moe_decode_family(runtime);
  constexpr DataType bf16 = DataType::bf16, fp8 = DataType::f8_e4m3fn, fp4 = DataType::f4_e2m1;
  const auto expect = [&](DataType x, DataType w, QuantType scales, const testing_problems::Shape& shape) {
    Problem problem = testing_problems::moe_problem(x, w, scales, shape);
    expect_compiles(*family, runtime, problem);
    problem.bias = problem.moe.doweight_stage1 = true;
    problem.moe.activation = Activation::gelu;
    problem.moe.gated = shape.n == 7168;
    expect_compiles(*family, runtime, problem);
  };
  for (const auto& [n, k] : {std::pair{768, 2048}, std::pair{7168, 4096}, std::pair{192, 7168}})
    expect(bf16, bf16, QuantType::none, {8, n, k});
  for (const QuantType scales : {QuantType::per_tensor, QuantType::per_token, QuantType::per_1x128})
    for (const std::int64_t k : {7168, 9216}) expect(fp8, fp8, scales, {1, 256, k});
  for (const std::int64_t size : {2880, 3072}) expect(bf16, fp4, QuantType::per_1x32, {8, size, size});
  // Qwen3-30B-A3B's, Kimi-K2.5's on eight GPUs, whose w2 has k for few warps, and as long rows of w2.
  for (const auto& [n, k] : {std::pair{768, 2048}, std::pair{256, 7168}, std::pair{2816, 2816}})
    for (Problem problem : testing_problems::mixtures_of_weight_formats({4, n, k})) {
      if (has_whole_rows(problem)) continue;
      problem.bias = n == 2816;
      expect_compiles(*family, runtime, problem);
    }
}

/// The tiles with most accumulators for each number of registers.
TEST_F(GpuCompile, TheWidestTilesOfWgmmaMoe) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_wgmma_moe_family(runtime, no_driver);
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  const Problem wide =
      testing_problems::moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {4096, 768, 2048});
  const Problem promoted = testing_problems::moe_problem(fp8, fp8, QuantType::per_1x128, {4096, 256, 7168});
  const Problem fp4 = testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32,
                                                    {4096, 768, 2048});
  const auto formats = testing_problems::mixtures_of_weight_formats({4096, 768, 2048});
  const std::pair<const Problem*, const char*> kernels[] = {
      {&formats[0], "wgmma_moe_r1_bm48_bn256_bo192_wg4_cm1_bk256_smem226"},
      {&formats[1], "wgmma_moe_r1_bm96_bn64_bo64_wg1_cm1_bk256_smem226"},
      {&formats[2], "wgmma_moe_r1_bm64_bn64_bo64_wg1_cm1_bk256_smem226"},
      {&formats[2], "wgmma_moe_r1_bm32_bn128_bo128_wg2_cm1_bk256_smem226"},
      {&formats[3], "wgmma_moe_r1_bm48_bn256_bo256_wg2_cm1_bk256_smem226"},
      {&formats[4], "wgmma_moe_r1_bm64_bn128_bo128_wg2_cm1_bk256_smem226"},
      {&wide, "wgmma_moe_r1_bm192_bn256_bo256_wg2_cm2_bk64_smem226"},
      {&wide, "wgmma_moe_r1_bm192_bn128_bo128_wg1_cm1_bk64_smem226"},
      {&wide, "wgmma_moe_r1_bm128_bn64_bo64_wg1_cm1_bk64_smem112"},
      {&fp4, "wgmma_moe_r1_bm48_bn256_bo256_wg2_cm1_bk256_smem226"},
      {&fp4, "wgmma_moe_r1_bm64_bn128_bo128_wg2_cm1_bk256_smem226"},
      {&fp4, "wgmma_moe_r1_bm48_bn256_bo192_wg4_cm1_bk256_smem226"},
      {&fp4, "wgmma_moe_r1_bm96_bn64_bo64_wg1_cm1_bk256_smem226"},
      {&fp4, "wgmma_moe_r1_bm16_bn256_bo256_wg4_cm1_bk256_smem226"},
      {&fp4, "wgmma_moe_r1_bm32_bn64_bo64_wg1_cm1_bk256_smem112"},
      {&fp4, "wgmma_moe_r1_bm48_bn128_bo128_wg1_cm1_bk256_smem226"},
      {&fp4, "wgmma_moe_r1_bm32_bn256_bo256_wg4_cm1_bk256_smem226"},
      {&promoted, "wgmma_moe_r1_bm128_bn256_bo256_wg2_cm1_bk128_smem226"},
      {&promoted, "wgmma_moe_r1_bm160_bn128_bo128_wg2_cm1_bk128_smem226"},
      {&promoted, "wgmma_moe_r1_bm144_bn128_bo128_wg2_cm2_bk128_smem226"},
      {&wide, "wgmma_moe_r1_bm144_bn256_bo256_wg2_cm1_bk64_smem226"},
      {&promoted, "wgmma_moe_r1_bm128_bn128_bo128_wg1_cm2_bk128_smem226"},
      {&promoted, "wgmma_moe_r1_bm96_bn256_bo256_wg2_cm2_bk128_smem226"},
      {&promoted, "wgmma_moe_r1_bm64_bn64_bo64_wg1_cm1_bk128_smem112"}};
  std::set<const Problem*> problems;
  Turns turns(2);
  for (const auto& [problem, name] : kernels) {
    const Space space = family->space(*problem);
    const auto candidate = parse_kernel_name(name, space.keys());
    ASSERT_TRUE(candidate.ok()) << candidate.message();
    if ((!problems.insert(problem).second && !is_thorough()) || !turns.is_next()) continue;
    EXPECT_EQ(space.build_refusal(candidate->config), "") << name;
    Problem biased = *problem;
    biased.bias = true;
    for (const Problem& each : is_thorough() ? std::vector{biased, *problem} : std::vector{biased}) {
      const auto kernel = family->build(each, candidate->config);
      EXPECT_TRUE(kernel.ok()) << name << ": " << kernel.message();
      EXPECT_EQ(runtime.log.find("serialized"), std::string::npos) << name << ": " << runtime.log;
    }
  }
}

/// Elements of int4 experts that are multiplied by their scales need registers for factors: of each kind of tile the widest one.
TEST_F(GpuCompile, ScaledExpertsTakeRegisters) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_wgmma_moe_family(runtime, no_driver);
  Turns turns(11);
  int built = 0;
  for (const auto& [group, zero_points] :
       {std::pair{32, false}, {32, true}, {64, true}, {128, false}, {128, true}}) {
    Problem problem = testing_problems::moe_of_weights_alone(DataType::bf16, QuantType::per_group,
                                                             {1024, 512, 2048}, group, zero_points);
    problem.moe.experts = 64;
    problem.bias = true;
    problem.moe.activation = Activation::swiglu;
    const Space space = family->space(problem);
    for (const char* tile : {"bn64_bo64_wg1", "bn128_bo128_wg1", "bn128_bo128_wg2", "bn256_bo256_wg2",
                             "bn256_bo256_wg4", "bn256_bo192_wg4"}) {
      for (const char* end : {"sort0", "sort1"}) {
        for (const char* smem : {"226", "112"}) {
          for (const int tokens : {96, 64, 48, 32, 16}) {
            const auto candidate = parse_kernel_name(
                fmt::format("wgmma_moe_r1_bm{}_{}_cm1_bk256_smem{}_{}_scaled1", tokens, tile, smem, end),
                space.keys());
            ASSERT_TRUE(candidate.ok()) << candidate.message();
            if (!space.build_refusal(candidate->config).empty()) continue;
            EXPECT_EQ(family->accuracy(problem, candidate->config), Accuracy::tensor_core);
            ++built;
            if (turns.is_next()) expect_builds(*family, runtime, problem, candidate->config);
            break;
          }
        }
      }
    }
  }
  EXPECT_GE(built, 36);
}

TEST_F(GpuCompile, SkinnyForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_skinny_family(runtime, no_driver);
  expect_compiles(*family, runtime, dense(1, 1280, 8192, DataType::bf16, DataType::bf16));
  expect_compiles(*family, runtime, dense(16, 1280, 8192, DataType::f16, DataType::f32));
  expect_compiles(*family, runtime, dense(32, 1280, 8192, DataType::f8_e4m3fn, DataType::bf16));
  expect_compiles(*family, runtime, dense(64, 1280, 8192, DataType::bf16, DataType::f16));
  expect_compiles(*family, runtime, packed(dense(16, 1280, 8192, DataType::bf16, DataType::bf16)));
  expect_compiles(*family, runtime, packed(dense(64, 1280, 8192, DataType::f8_e4m3fn, DataType::f16)));
}

TEST_F(GpuCompile, SkinnyOfQuantizedOperandsForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_skinny_family(runtime, no_driver);
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  for (const std::int64_t m : {1, 16, 32, 64}) {
    expect_compiles(*family, runtime, quantized(Operation::a8w8, m, 1280, 8192, fp8));
    expect_compiles(*family, runtime, quantized(Operation::a8w8, m, 1280, 8192, DataType::i8));
    expect_compiles(*family, runtime, quantized(Operation::a8w8_blockscale, m, 1280, 8192, fp8));
  }
  expect_compiles(*family, runtime, with_e8m0_scales(64, 1280, 8192));
  expect_compiles(*family, runtime, packed(quantized(Operation::a8w8, 16, 1280, 8192, DataType::i8)));
  expect_compiles(*family, runtime, packed(quantized(Operation::a8w8_blockscale, 16, 1280, 8192, fp8)));
}

/// Kernels of int4 experts that spilled on a GPU.
TEST_F(GpuCompile, ExpertsInGroupsTakeRegisters) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const auto decode = cuda::make_moe_decode_family(runtime);
  const auto stream = cuda::make_mxfp4_stream_family(runtime, limits_of("sm_90a"));
  const auto layer = [](const testing_problems::Shape& shape, std::int32_t group, bool zero_points) {
    Problem problem = testing_problems::moe_of_weights_alone(DataType::bf16, QuantType::per_group, shape,
                                                             group, zero_points);
    problem.moe.experts = 7;
    problem.moe.activation = Activation::swiglu;
    problem.bias = shape.m % 2 == 0;
    problem.moe.gated = problem.bias;
    if (problem.moe.gated) return problem;
    problem.moe.activation = Activation::none;
    problem.moe.shared_experts = shape.m == 3 ? 2 : 0;
    return problem;
  };
  const std::pair<Problem, const char*> of_stream[] = {
      {layer({3, 256, 5120}, 64, false), "mxfp4_stream_r1_bm8_ku6_smem226_sort0_warps15_slab4"},
      {layer({3, 256, 5120}, 64, true), "mxfp4_stream_r1_bm8_ku10_smem226_sort0_warps8_slab32"},
      {layer({3, 256, 5120}, 64, false), "mxfp4_stream_r1_bm8_ku10_smem226_sort0_warps8_slab32"},
      {layer({3, 256, 5120}, 128, true), "mxfp4_stream_r1_bm8_ku9_smem226_sort0_warps11_slab8"},
      {layer({9, 320, 192}, 64, false), "mxfp4_stream_r1_bm16_ku10_smem226_sort0_warps8_slab8"},
      {layer({16, 512, 1024}, 64, true), "mxfp4_stream_r1_bm8_ku10_smem112_sort1_warps15_slab16"},
      {layer({34, 1152, 2304}, 128, false), "mxfp4_stream_r1_bm16_ku5_smem226_sort1_warps8_slab8"}};
  expect_refused_or_builds(*stream, runtime, of_stream);
  const std::pair<Problem, const char*> of_decode[] = {
      {layer({4, 2816, 2816}, 64, false), "moe_decode_r1_warps6_teams1_smem144"},
      {layer({4, 2816, 2816}, 128, false), "moe_decode_r1_warps6_teams1_smem144"}};
  expect_refused_or_builds(*decode, runtime, of_decode);
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto tiles = cuda::make_wgmma_moe_family(runtime, no_driver);
  const std::pair<Problem, const char*> of_tiles[] = {
      {layer({300, 256, 1024}, 64, false),
       "wgmma_moe_r1_bm48_bn256_bo64_wg4_cm1_bk256_smem226_sort0_scaled1"},
      {layer({300, 256, 1024}, 32, true),
       "wgmma_moe_r1_bm32_bn128_bo256_wg2_cm1_bk256_smem226_sort0_scaled0"}};
  EXPECT_EQ(expect_refused_or_builds(*tiles, runtime, of_tiles), std::size(of_tiles));
}

/// Products of few rows and many, of the sizes of an absorbed attention: each family that takes batches.
TEST_F(GpuCompile, BatchesForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto skinny = cuda::make_skinny_family(runtime, no_driver);
  const auto wgmma = cuda::make_wgmma_family(runtime, no_driver);
  const auto mma = cuda::make_mma_family(runtime);
  expect_compiles(*skinny, runtime, batched(128, 64, 512, 128));
  expect_compiles(*skinny, runtime, batched(16, 16, 128, 512, DataType::f8_e4m3fn));
  expect_compiles(*wgmma, runtime, batched(16, 64, 128, 512));
  expect_compiles(*wgmma, runtime, batched(16, 1024, 512, 4096));
  expect_compiles(*mma, runtime, batched(16, 256, 512, 2048));
  // The widest tiles that need room for scales and for the batch: each tile, or each for one of the problems.
  Turns turns(7);
  for (const DataType type : {DataType::f8_e4m3fn, DataType::i8}) {
    for (const Problem& problem :
         {batched(16, 1024, 512, 1024, type), batched(3, 1, 65, 144, type), batched(2, 17, 100, 208, type)}) {
      const Space space = wgmma->space(problem);
      for (const char* name : {"wgmma_r1_swap0_bm128_bn256_wg2_pp0_bk128_cm2_cn1_csk1_smem226_prom0",
                               "wgmma_r1_swap0_bm128_bn240_wg2_pp0_bk128_cm2_cn1_csk1_smem226_prom0",
                               "wgmma_r1_swap0_bm128_bn224_wg2_pp0_bk128_cm2_cn2_csk1_smem226_prom1",
                               "wgmma_r1_swap0_bm256_bn80_wg2_pp0_bk128_cm1_cn2_csk1_smem226_prom1",
                               "wgmma_r1_swap0_bm256_bn64_wg2_pp0_bk128_cm1_cn2_csk1_smem226_prom1",
                               "wgmma_r1_swap0_bm256_bn80_wg2_pp0_bk128_cm1_cn2_csk1_smem226_prom0",
                               "wgmma_r1_swap0_bm64_bn256_wg2_pp1_bk128_cm1_cn2_csk1_smem226_prom0",
                               "wgmma_r1_swap1_bm128_bn128_wg2_pp0_bk128_cm8_cn1_csk1_smem226_prom1",
                               "wgmma_r1_swap1_bm128_bn128_wg2_pp0_bk128_cm1_cn1_csk5_smem226_prom0"}) {
        const auto candidate = parse_kernel_name(name, space.keys());
        ASSERT_TRUE(candidate.ok()) << candidate.message();
        if (!turns.is_next()) continue;
        if (!space.build_refusal(candidate->config).empty()) continue;
        const auto kernel = wgmma->build(problem, candidate->config);
        EXPECT_TRUE(kernel.ok()) << print(problem) << " " << name << ": " << kernel.message();
      }
    }
  }
  EXPECT_THAT(wgmma->accepts(packed(batched(16, 256, 512, 2048))).message(),
              HasSubstr("weight layout: any of batches"));
  EXPECT_THAT(skinny->accepts(batched(70000, 1, 512, 128)).message(),
              HasSubstr("batch: 70000 is above 65535"));
}

TEST_F(GpuCompile, MmaFromAmpereOn) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    const auto family = cuda::make_mma_family(runtime);
    expect_compiles(*family, runtime, dense(512, 1280, 8192, DataType::bf16, DataType::bf16));
    EXPECT_GE(runtime.compiled, is_thorough() ? 20 : 1);
    EXPECT_TRUE(family
                    ->build(dense(2048, 4096, 7168, DataType::f16, DataType::f32),
                            family->default_config(dense(2048, 4096, 7168, DataType::f16, DataType::f32)))
                    .ok());
    const Problem fp8 = dense(96, 4096, 7168, DataType::f8_e4m3fn, DataType::bf16);
    if (std::string(architecture) == "sm_80") {
      EXPECT_THAT(family->accepts(fp8).message(), HasSubstr("from sm_89 on"));
    } else if (std::string(architecture) == "sm_90a") {
      EXPECT_THAT(family->accepts(fp8).message(), HasSubstr("Hopper widens them"));
    } else {
      const auto kernel = family->build(fp8, family->default_config(fp8));
      EXPECT_TRUE(kernel.ok()) << kernel.message();
    }
  }
}

TEST_F(GpuCompile, MmaOfColumnMajorOperands) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  const Problem problem = dense(512, 1280, 8192, DataType::bf16, DataType::bf16);
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    const auto family = cuda::make_mma_family(runtime);
    for (const auto& [x, w] :
         {std::pair{Order::row_major, Order::column_major}, std::pair{Order::column_major, Order::row_major},
          std::pair{Order::column_major, Order::column_major}})
      expect_compiles(*family, runtime, in_orders(problem, x, w));
  }
}

/// MN-major operands, swapped and not, with multicast, split-K and both types.
TEST_F(GpuCompile, WgmmaOfColumnMajorOperandsForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_wgmma_family(runtime, no_driver);
  constexpr Order rows = Order::row_major;
  constexpr Order columns = Order::column_major;
  const Problem few = dense(96, 4096, 7168, DataType::bf16, DataType::bf16);
  const Problem many = dense(2048, 4096, 7168, DataType::f16, DataType::f32);
  for (const auto& [x, w] : {std::pair{rows, columns}, std::pair{columns, columns}})
    expect_compiles(*family, runtime, in_orders(few, x, w));
  expect_compiles(*family, runtime, in_orders(many, columns, rows));
  expect_compiles(*family, runtime, in_orders(packed(few), columns, rows));
  EXPECT_THAT(
      family->accepts(in_orders(dense(96, 4096, 7168, DataType::f8_e4m3fn, DataType::bf16), rows, columns))
          .message(),
      HasSubstr("operand order: column-major f8_e4m3fn"));
  EXPECT_THAT(
      family->accepts(in_orders(dense(96, 100, 64, DataType::bf16, DataType::bf16), rows, columns)).message(),
      HasSubstr("columns of n = 100 bf16"));
  // Only the contiguous dimensions are aligned.
  EXPECT_TRUE(
      family->accepts(in_orders(dense(96, 104, 77, DataType::bf16, DataType::bf16), columns, columns)).ok());
}

TEST_F(GpuCompile, WgmmaForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_wgmma_family(runtime, no_driver);
  expect_compiles(*family, runtime, dense(96, 4096, 7168, DataType::bf16, DataType::bf16));
  expect_compiles(*family, runtime, dense(512, 2112, 7168, DataType::f8_e4m3fn, DataType::f16));
  // Its promoted kernels, whose partial sums need registers beside the sums: wide tiles, and a float32 y with a bias.
  Problem wide = dense(4096, 4096, 7168, DataType::f8_e4m3fn, DataType::f32);
  wide.bias = true;
  expect_compiles(*family, runtime, wide);
  expect_compiles(*family, runtime, packed(dense(4096, 4096, 7168, DataType::f8_e4m3fn, DataType::bf16)));
  expect_compiles(*family, runtime, dense(96, 4096, 7168, DataType::f8_e4m3fn, DataType::bf16));
  Problem biased = dense(4096, 7168, 2048, DataType::f16, DataType::f32);
  biased.bias = true;
  expect_compiles(*family, runtime, biased);
  expect_compiles(*family, runtime, packed(dense(96, 4096, 7168, DataType::bf16, DataType::bf16)));
}

/// Scales of rows and of blocks, of fp8 and int8: swapped and not, with split-K, multicast and packed weights.
TEST_F(GpuCompile, WgmmaOfQuantizedOperandsForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_wgmma_family(runtime, no_driver);
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  for (const std::int64_t m : {64, 4096}) {
    expect_compiles(*family, runtime, quantized(Operation::a8w8, m, 4096, 7168, fp8));
    expect_compiles(*family, runtime, quantized(Operation::a8w8, m, 4096, 7168, DataType::i8));
    expect_compiles(*family, runtime, quantized(Operation::a8w8_blockscale, m, 4096, 7168, fp8));
    expect_compiles(*family, runtime, packed(quantized(Operation::a8w8_blockscale, m, 4096, 7168, fp8)));
  }
  expect_compiles(*family, runtime, with_e8m0_scales(4096, 4096, 7168));
  Problem biased = packed(quantized(Operation::a8w8, 512, 4096, 7168, fp8));
  biased.bias = true;
  expect_compiles(*family, runtime, biased);
  // What no search of these sizes would try, and what spilled once: one tile for each block.
  Problem halves = quantized(Operation::a8w8, 300, 520, 2048, fp8);
  halves.y_type = DataType::f16;
  halves.bias = true;
  Problem many = halves;  // and several tiles for each
  many.m = 1500;
  many.n = 3000;
  Problem integers = quantized(Operation::a8w8, 129, 777, 576, DataType::i8);
  integers.bias = true;
  const std::pair<const Problem*, const char*> kernels[] = {
      {&halves, "wgmma_r1_swap0_bm128_bn240_wg2_pp0_bk128_cm2_cn2_csk1_smem226_prom0"},
      {&halves, "wgmma_r1_swap0_bm256_bn80_wg2_pp0_bk128_cm1_cn2_csk1_smem226_prom1"},
      {&halves, "wgmma_r1_swap0_bm256_bn128_wg2_pp0_bk128_cm2_cn1_csk1_smem226_prom1"},
      {&halves, "wgmma_r1_swap0_bm128_bn128_wg2_pp1_bk128_cm1_cn1_csk1_smem226_prom0"},
      {&many, "wgmma_r1_swap0_bm128_bn128_wg2_pp1_bk128_cm1_cn1_csk1_smem226_prom1"},
      {&many, "wgmma_r1_swap0_bm256_bn128_wg2_pp0_bk128_cm2_cn1_csk1_smem226_prom1"},
      {&integers, "wgmma_r1_swap0_bm128_bn256_wg2_pp0_bk128_cm2_cn1_csk1_smem226"}};
  Turns turns(2);
  for (const auto& [problem, name] : kernels) {
    const Space space = family->space(*problem);
    const auto candidate = parse_kernel_name(name, space.keys());
    ASSERT_TRUE(candidate.ok()) << candidate.message();
    EXPECT_EQ(space.build_refusal(candidate->config), "") << name;
    if (!turns.is_next()) continue;
    const auto kernel = family->build(*problem, candidate->config);
    EXPECT_TRUE(kernel.ok()) << name << ": " << kernel.message();
    EXPECT_EQ(runtime.log.find("serialized"), std::string::npos) << name << ": " << runtime.log;
  }
}

}  // namespace
}  // namespace gemmtune
