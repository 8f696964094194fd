// The corner configs of the families of 4-bit weights compile for Hopper, fit, and do not spill. Needs NVRTC, no GPU.
#include <gmock/gmock.h>

#include <array>

#include "backends/cuda/families/own_families.h"
#include "support/dense_problem.h"
#include "support/gpu_compile.h"
#include "support/kernel_names.h"
#include "support/operation_problems.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

class GpuCompile4Bit : public GpuCompile {};

/// Most of x, scales and sums for each number of registers; rows and scales with and without gaps; every epilogue and weight.
TEST_F(GpuCompile4Bit, Mxfp4StreamForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const auto family = cuda::make_mxfp4_stream_family(runtime, limits_of("sm_90a"));
  Problem layer =
      testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {64, 2880, 2880});
  layer.moe.experts = 128;
  layer.moe.topk = 4;
  layer.moe.activation = Activation::swiglu;
  Problem ungated = layer;
  ungated.moe.gated = false;
  ungated.moe.activation = Activation::gelu;
  ungated.bias = true;
  Problem biased = layer;
  biased.bias = true;
  Problem quantized = biased;
  quantized.x_type = DataType::f8_e4m3fn;
  quantized.moe.quant_type = QuantType::per_token;
  const std::pair<const Problem*, const char*> kernels[] = {
      {&layer, "mxfp4_stream_r1_bm8_ku5_smem112_sort0"},
      {&layer, "mxfp4_stream_r1_bm16_ku4_smem226_sort1"},
      {&ungated, "mxfp4_stream_r1_bm16_ku5_smem226_sort0"},
      {&biased, "mxfp4_stream_r1_bm8_ku3_smem226_sort0"},
      {&biased, "mxfp4_stream_r1_bm16_ku3_smem226_sort0"},
      {&biased, "mxfp4_stream_r1_bm8_ku5_smem112_sort0"},
      {&quantized, "mxfp4_stream_r1_bm16_ku3_smem226_sort0"}};
  Turns turns(2);
  for (const auto& [problem, name] : kernels) {
    ASSERT_TRUE(family->accepts(*problem).ok()) << family->accepts(*problem).message();
    const Space space = family->space(*problem);
    const auto candidate = parse_kernel_name(name, space.keys());
    ASSERT_TRUE(candidate.ok()) << candidate.message();
    EXPECT_EQ(space.build_refusal(candidate->config), "") << name;
    if (turns.is_next()) expect_builds(*family, runtime, *problem, candidate->config);
  }
  expect_names_are_read_back(*family, layer, {family->default_config(layer)});
  for (const auto& [n, k] : {std::pair{768, 2048}, std::pair{256, 7168}})
    for (Problem problem : testing_problems::mixtures_of_weight_formats({64, n, k})) {
      if (has_whole_rows(problem) || (k == 7168 && problem.w_group > 32)) continue;
      problem.moe.experts = 128;
      expect_compiles(*family, runtime, problem);
    }
}

/// What a search may build.
TEST_F(GpuCompile4Bit, Mxfp4SkinnyForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_mxfp4_skinny_family(runtime, no_driver, limits_of("sm_90a"));
  const Problem plain[] = {of_fp4(Operation::a16w4, 8, 8192, 8192),
                           of_fp4(Operation::a16w4, 13, 5760, 2880, true)};
  for (const Problem& problem :
       {plain[0], plain[1], packed(plain[0]), packed(plain[1]), of_fp4(Operation::a16w4, 1, 8192, 8192),
        packed(of_fp4(Operation::a16w4, 4, 5760, 2880)), packed(of_fp4(Operation::a16w4, 16, 7168, 2048)),
        packed(of_fp4(Operation::a16w4, 32, 5760, 2880)), of_fp4(Operation::a16w4, 24, 7168, 2048, true),
        of_fp4(Operation::a4w4_blockscale, 16, 5760, 2880),
        packed(of_fp4(Operation::a4w4_blockscale, 16, 5760, 2880))})
    expect_compiles(*family, runtime, problem);
  for (const Problem& problem : nvfp4_and_int4(15, 5760, 2816)) expect_compiles(*family, runtime, problem);
  for (const Problem& problem : nvfp4_and_int4(16, 8192, 8192))
    expect_compiles(*family, runtime, packed(problem));
}

TEST_F(GpuCompile4Bit, Mxfp4ForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_mxfp4_family(runtime, no_driver);
  expect_compiles(*family, runtime, packed(of_fp4(Operation::a16w4, 1, 8192, 8192)));
  expect_compiles(*family, runtime, of_fp4(Operation::a16w4, 512, 5760, 2880));
  expect_compiles(*family, runtime, packed(of_fp4(Operation::a16w4, 1024, 5760, 2880)));
  for (const Problem& problem : nvfp4_and_int4(513, 5760, 2816)) expect_compiles(*family, runtime, problem);
  for (const Problem& problem : nvfp4_and_int4(1024, 5120, 5120))
    expect_compiles(*family, runtime, packed(problem));
  EXPECT_THAT(family->accepts(dense(1, 64, 64)).message(),
              HasSubstr("a16w16 is not a4w4_blockscale, a16w4, a8w4"));
}

/// Activations that become bf16 first: the kernel that widens them, scales of rows, and rows of y that are the sum of two.
TEST_F(GpuCompile4Bit, Mxfp4OfOtherActivationsForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_mxfp4_family(runtime, no_driver);
  Problem halves = of_fp4(Operation::a16w4, 8, 5760, 2880, true);
  halves.x_type = halves.y_type = DataType::f16;
  Problem many = packed(of_fp4(Operation::a8w4, 1024, 5760, 2880));
  many.y_type = DataType::f16;
  Turns turns(3);  // each of both mainloops
  for (const Problem& problem :
       {halves, many, packed(of_fp4(Operation::a4w4_blockscale, 16, 5760, 2880)),
        packed(of_int4(Operation::a8w4_int4, 64, 5760, 2880, 32)),
        of_fp4(Operation::a8w4_nvfp4, 16, 5760, 2880), of_fp4(Operation::a4w4_nvfp4, 16, 5760, 2880)}) {
    ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
    // The mainloop is that of bf16 activations.
    for (const char* mma : {"0", "1"}) {
      if (!turns.is_next()) continue;
      Config config = family->default_config(problem);
      if (config.number("bn") > 32 && mma[0] == '1') continue;
      config.set("mma", std::string(mma));
      const auto kernel = expect_builds(*family, runtime, problem, config);
      ASSERT_NE(kernel, nullptr);
      EXPECT_GT(kernel->workspace_bytes(), 0U);
    }
  }
  // Scales of rows need registers where a thread has most sums.
  Turns widest(2);
  for (const auto& [wg, bm, bn] :
       {std::array<std::int64_t, 3>{2, 256, 128}, {2, 128, 256}, {3, 192, 128}, {1, 128, 128}}) {
    if (!widest.is_next()) continue;
    Config config = family->default_config(many);
    for (const auto& [key, value] : {std::pair{"wg", wg}, {"bm", bm}, {"bn", bn}, {"csk", std::int64_t{1}}})
      config.set(key, value);
    config.set("smem", std::int64_t{220});
    expect_builds(*family, runtime, many, config);
  }
}

/// Blocks that divide the k of tiles hold a tile's sums and those of another block that they add.
TEST_F(GpuCompile4Bit, Mxfp4WithStreamKForHopper) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_mxfp4_family(runtime, no_driver);
  Problem quantized = packed(of_int4(Operation::a8w4_int4, 1024, 28672, 4096, 128, true));
  quantized.y_type = DataType::f16;
  const Problem int4 = packed(of_int4(Operation::a16w4_int4, 1024, 28672, 4096, 128));
  const Problem zeros = packed(of_int4(Operation::a16w4_int4, 1024, 28672, 4096, 128, true));
  const Problem symmetric = packed(of_int4(Operation::a8w4_int4, 1024, 28672, 4096, 128, false, true));
  const Problem nvfp4 = packed(of_fp4(Operation::a16w4_nvfp4, 1024, 28672, 4096));
  const Problem plain = of_fp4(Operation::a16w4, 1024, 28672, 4096);
  const std::pair<const Problem*, const char*> kernels[] = {
      {&int4, "wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled1_stream1"},
      {&int4, "wg2_bm256_bn128_mma0_bk256_csk1_smem226_scaled1_stream1"},
      {&int4, "wg2_bm128_bn208_mma0_bk128_csk1_smem226_scaled0_stream1"},
      {&int4, "wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled0_stream1"},
      {&int4, "wg2_bm256_bn128_mma0_bk256_csk1_smem226_scaled0_stream1"},
      {&int4, "wg2_bm256_bn128_mma0_bk128_csk1_smem226_scaled0_stream1"},
      {&zeros, "wg2_bm256_bn128_mma0_bk128_csk1_smem226_scaled0_stream1"},
      {&zeros, "wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled1_stream1"},
      {&zeros, "wg2_bm128_bn240_mma0_bk128_csk1_smem226_scaled0_stream1"},
      {&quantized, "wg2_bm256_bn128_mma0_bk128_csk1_smem226_stream1"},
      {&quantized, "wg2_bm128_bn240_mma0_bk128_csk1_smem226_stream1"},
      {&symmetric, "wg2_bm128_bn256_mma0_bk128_csk1_smem226_stream1"},
      {&symmetric, "wg2_bm256_bn128_mma0_bk128_csk1_smem226_stream1"},
      {&nvfp4, "wg2_bm128_bn256_mma0_bk128_csk1_smem226_stream1"},
      {&nvfp4, "wg2_bm256_bn128_mma0_bk128_csk1_smem226_stream1"},
      {&plain, "wg2_bm128_bn208_mma0_bk256_csk1_smem226_stream1"},
      {&plain, "wg2_bm256_bn96_mma0_bk256_csk1_smem226_stream1"}};
  Turns turns(3);
  for (const auto& [problem, name] : kernels) {
    if (!turns.is_next()) continue;
    const auto candidate =
        parse_kernel_name(std::string("mxfp4_r1_") + name + "_pdl0", family->space(*problem).keys());
    ASSERT_TRUE(candidate.ok()) << candidate.message();
    const auto kernel = expect_builds(*family, runtime, *problem, candidate->config);
    if (kernel == nullptr) continue;
    // A tile's sums of each block, and the words by which blocks wait for each other.
    EXPECT_GT(kernel->workspace_bytes(), 132U * 256 * 96 * 4);
    EXPECT_EQ(family->sum_order(*problem, candidate->config), "");
  }
}

/// Configs whose zero points spilled.
TEST_F(GpuCompile4Bit, ZeroPointsTakeRegisters) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_mxfp4_family(runtime, no_driver);
  const auto int4 = [](Operation operation, std::int64_t m, std::int64_t group) {
    return of_int4(operation, m, 5120, 5120, group, true, true);
  };
  const std::pair<Problem, const char*> spilled[] = {
      {packed(int4(Operation::a16w4_int4, 1024, 128)),
       "mxfp4_r1_wg2_bm256_bn64_mma0_bk256_csk1_smem220_pdl0"},
      {packed(int4(Operation::a16w4_int4, 1024, 128)),
       "mxfp4_r1_wg2_bm256_bn64_mma0_bk128_csk1_smem220_pdl0"},
      {packed(int4(Operation::a16w4_int4, 1024, 128)),
       "mxfp4_r1_wg3_bm192_bn96_mma0_bk128_csk1_smem226_scaled1_pdl0"},
      {packed(int4(Operation::a16w4_int4, 1024, 64)),
       "mxfp4_r1_wg2_bm256_bn64_mma0_bk128_csk1_smem226_scaled1_pdl0"},
      {int4(Operation::a16w4_int4, 16, 64), "mxfp4_r1_wg2_bm256_bn16_mma0_bk256_csk4_smem110_pdl0"},
      {int4(Operation::a8w4_int4, 1024, 5120), "mxfp4_r1_wg3_bm192_bn80_mma0_bk256_csk1_smem220_pdl0"},
      {int4(Operation::a8w4_int4, 1024, 5120), "mxfp4_r1_wg2_bm256_bn64_mma0_bk256_csk1_smem220_pdl0"}};
  EXPECT_LT(expect_refused_or_builds(*family, runtime, spilled), std::size(spilled));
}

/// Kernels of 16 rows and of one on groups of 128 that spilled, the first as the default of its size.
TEST_F(GpuCompile4Bit, GroupsOf128TakeRegistersOfFewRows) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_mxfp4_skinny_family(runtime, no_driver, limits_of("sm_90a"));
  const auto int4 = [](std::int64_t m, std::int64_t k) {
    return packed(of_int4(Operation::a16w4_int4, m, 18944, k, 128));
  };
  const std::pair<Problem, const char*> spilled[] = {
      {int4(16, 3584), "mxfp4_skinny_r2_bm16_ku5_csk1_smem32_pdl0"},
      {int4(16, 7168), "mxfp4_skinny_r2_bm16_ku5_csk2_smem64_pdl0"},
      {int4(16, 8192), "mxfp4_skinny_r2_bm16_ku4_csk2_smem16_pdl0"},
      {int4(1, 16384), "mxfp4_skinny_r2_bm8_ku8_csk2_smem16_pdl0"}};
  EXPECT_EQ(expect_refused_or_builds(*family, runtime, spilled), std::size(spilled));
  for (const std::int64_t k : {3584, 7168})
    expect_builds(*family, runtime, int4(16, k), family->default_config(int4(16, k)));
}

}  // namespace
}  // namespace gemmtune
