// Kernels beside the families' own compile for every architecture and fit: the output checker, fills, packing, activations; and what the
// compiler says. Needs NVRTC, no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/cubin.h"
#include "backends/gpu/activation/silu_and_mul.h"
#include "backends/gpu/fill/random_fill.h"
#include "backends/gpu/pack/pack.h"
#include "backends/gpu/verify/output_checker.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"
#include "support/thoroughness.h"

namespace gemmtune {
namespace {

using test::is_thorough;
using test::Turns;
using ::testing::HasSubstr;

TEST(GpuServiceKernels, TheOutputCheckerForEveryArchitectureAndType) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    std::vector<Problem> problems{dense(33, 65, 70, DataType::f32, DataType::f32),
                                  dense(33, 65, 70, DataType::f8_e4m3fn),
                                  of_fp4(Operation::a4w4_blockscale, 33, 65, 96),
                                  dense(33, 65, 70),
                                  dense(33, 65, 70, DataType::f16, DataType::f16),
                                  quantized(Operation::a8w8, 33, 65, 70, DataType::i8),
                                  quantized(Operation::a8w8_blockscale, 33, 65, 70, DataType::f8_e4m3fn),
                                  of_fp4(Operation::a16w4, 33, 65, 96),
                                  of_fp4(Operation::a8w4, 33, 65, 96),
                                  batched(3, 33, 65, 70),
                                  batched(3, 33, 65, 70, DataType::i8),
                                  with_e8m0_scales(33, 65, 70)};
    for (const Problem& problem : testing_problems::weight_format_problems({33, 65, 96}))
      problems.push_back(problem);
    // The types' conversions differ, the rest is the same text: one architecture sees it.
    if (architecture != std::string("sm_90a") && !is_thorough()) problems.resize(3);
    Turns turns(2);
    for (const Problem& problem : problems) {
      if (!turns.is_next()) continue;
      for (const gpu::Source& source : gpu::checker_sources(problem)) {
        const auto program = runtime.load(source);
        ASSERT_TRUE(program.ok()) << architecture << " " << source.name << ": " << program.message();
        // Two blocks of the reference fit on a multiprocessor.
        EXPECT_LE(runtime.last.registers, source.name == "reference" ? 128 : 255);
        EXPECT_LE(runtime.last.static_shared_bytes, std::size_t{48} << 10);
      }
    }
    Turns mixtures(3);
    for (const Problem& problem : testing_problems::mixtures({33, 65, 70})) {
      // Every form where they run most, elsewhere those with most registers.
      const bool fewer = architecture != std::string_view("sm_90a");
      if (fewer && problem.moe.quant_type != QuantType::per_1x128) continue;
      if (!mixtures.is_next()) continue;
      for (const gpu::Source& source : gpu::checker_sources(problem)) {
        const auto program = runtime.load(source);
        ASSERT_TRUE(program.ok()) << architecture << " " << source.name << ": " << program.message();
        EXPECT_LE(runtime.last.registers, source.name == "moe_reference" ? 128 : 255);
        EXPECT_LE(runtime.last.static_shared_bytes, std::size_t{48} << 10);
      }
    }
  }
}

TEST(GpuServiceKernels, RandomFill) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
      const auto program = runtime.load(gpu::random_fill_source(bytes));
      EXPECT_TRUE(program.ok()) << architecture << " " << bytes << ": " << program.message();
    }
  }
}

TEST(GpuServiceKernels, SiluAndMul) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  Turns turns(2);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16})
      for (const bool dependent : {false, true}) {
        if (dependent && architecture == std::string("sm_80")) continue;
        if (!turns.is_next()) continue;
        const auto program = runtime.load(gpu::silu_and_mul_source(type, dependent));
        ASSERT_TRUE(program.ok()) << architecture << ' ' << to_string(type) << ": " << program.message();
        EXPECT_LE(runtime.last.registers, 64);
      }
  }
}

TEST(GpuServiceKernels, PackAndUnpack) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    CompileOnlyRuntime runtime(compiler, architecture, limits_of(architecture));
    for (const bool unpack : {false, true})
      for (const gpu::Source& source : {gpu::pack_source(unpack), gpu::fragment_source(unpack, false),
                                        gpu::fragment_source(unpack, true)}) {
        const auto program = runtime.load(source);
        EXPECT_TRUE(program.ok()) << architecture << " " << unpack << ": " << program.message();
      }
  }
}

TEST(GpuServiceKernels, ASpillIsRefused) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  // 1024 threads leave 64 registers to each; this needs far more at once.
  const gpu::Source source{
      "spilling",
      "extern \"C\" __global__ void __launch_bounds__(1024) spill(float* p) {\n"
      "  float v[96];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) asm volatile(\"mov.f32 %0, %1;\" : \"=f\"(v[i]) : \"f\"(p[i]));\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) p[i * 1024 + threadIdx.x] = v[95 - i];\n"
      "}\n",
      {},
      "spill"};
  const auto program = runtime.load(source);
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(program.message(), HasSubstr("spilling: the compiler keeps"));
}

TEST(GpuServiceKernels, ResourcesAreReadFromTheMachineCode) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const gpu::Source source{"small",
                           "extern \"C\" __global__ void f(float* p) {\n"
                           "  __shared__ float s[256];\n"
                           "  s[threadIdx.x] = p[threadIdx.x];\n"
                           "  __syncthreads();\n"
                           "  p[threadIdx.x] = s[255 - threadIdx.x];\n"
                           "}\n",
                           {},
                           "f"};
  ASSERT_TRUE(runtime.load(source).ok());
  EXPECT_EQ(runtime.last.static_shared_bytes, 1024U);
  EXPECT_GT(runtime.last.registers, 3);
  EXPECT_LT(runtime.last.registers, 33);
  const auto binary = compiler.compile(source, "sm_90a");
  ASSERT_TRUE(binary.ok());
  EXPECT_FALSE(cuda::read_cubin("no cubin").ok());
  // Cut anywhere, it is refused or read in part, and nothing outside of it is touched.
  for (std::size_t bytes = 0; bytes < binary->code.size(); bytes += 7)
    (void)cuda::read_cubin(std::string(binary->code.substr(0, bytes)));
  EXPECT_FALSE(cuda::read_cubin(std::string_view(binary->code).substr(0, 1000)).ok());
}

TEST(GpuServiceKernels, AnErrorShowsTheCompilersWords) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  const auto binary =
      compiler.compile({"broken", "extern \"C\" __global__ void f() { nonsense; }", {"A=1"}, "f"}, "sm_90a");
  ASSERT_FALSE(binary.ok());
  EXPECT_THAT(binary.message(), HasSubstr("broken for sm_90a A=1"));
  EXPECT_THAT(binary.message(), HasSubstr("\"nonsense\" is undefined"));
}

}  // namespace
}  // namespace gemmtune
