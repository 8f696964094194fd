// Values of a parameter's range that no search lists compile. Needs NVRTC, no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/families/own_families.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"
#include "support/range_values.h"

namespace gemmtune {
namespace {

/// What --search-space may ask for beside what a search would try, at both ends.
TEST(GpuRanges, ValuesThatNoSearchListsCompile) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  constexpr DataType bf16 = DataType::bf16, fp4 = DataType::f4_e2m1;
  const auto of_experts = [](Problem layer) {
    layer.moe.experts = 128;
    layer.moe.topk = 4;
    return layer;
  };
  const Problem decoding = testing_problems::moe_problem(bf16, bf16, QuantType::none, {8, 768, 2048});
  std::vector<std::pair<std::unique_ptr<KernelFamily>, Problem>> families;
  families.emplace_back(cuda::make_mma_family(runtime), dense(512, 1280, 8192, bf16, bf16));
  families.emplace_back(cuda::make_skinny_family(runtime, no_driver), dense(16, 1280, 8192, bf16, bf16));
  families.emplace_back(cuda::make_wgmma_family(runtime, no_driver), dense(512, 4096, 7168, bf16, bf16));
  families.emplace_back(
      cuda::make_wgmma_moe_family(runtime, no_driver),
      of_experts(testing_problems::moe_problem(bf16, bf16, QuantType::none, {64, 768, 2048})));
  families.emplace_back(cuda::make_moe_decode_family(runtime), decoding);
  families.emplace_back(
      cuda::make_mxfp4_stream_family(runtime, limits_of("sm_90a")),
      of_experts(testing_problems::moe_problem(bf16, fp4, QuantType::per_1x32, {64, 2880, 2880})));
  families.emplace_back(cuda::make_mxfp4_family(runtime, no_driver),
                        of_fp4(Operation::a16w4, 64, 8192, 8192));
  families.emplace_back(cuda::make_mxfp4_skinny_family(runtime, no_driver, limits_of("sm_90a")),
                        of_fp4(Operation::a16w4, 8, 8192, 8192));
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
  EXPECT_THAT(ranged, ::testing::IsSupersetOf({"mma.st", "mma.sk", "skinny.smem", "wgmma.smem",
                                               "moe_decode.smem", "mxfp4.smem", "mxfp4_skinny.smem"}));
}

}  // namespace
}  // namespace gemmtune
