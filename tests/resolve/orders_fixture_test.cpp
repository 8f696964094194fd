// Every size of tune_gemm's own lists, whatever its orders, has a family on this CPU and on NVIDIA's GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/families/own_families.h"
#include "backends/gpu/families/own_families.h"
#include "formats/shapes/shape_list.h"
#include "support/fixtures.h"
#include "support/nvrtc.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

/// The list's 69 lines, six of which repeat another; results of a tuning, which are lists too, are left out.
std::vector<Problem> tune_gemm_sizes(const std::string& fixtures) {
  std::vector<Problem> sizes;
  for (const auto& file : fs::directory_iterator(fixtures + "/tune_gemm")) {
    if (file.path().extension() != ".yaml") continue;
    const auto list = read_shape_list(file.path().string(), {});
    EXPECT_TRUE(list.ok()) << list.message();
    if (!list.ok() || !list->ignored.empty()) continue;
    for (const ShapeRow& row : list->rows) sizes.push_back(row.problem);
  }
  return sizes;
}

TEST(OrdersOfTuneGemm, EverySizeHasAFamilyOnThisCpu) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const auto device = open_device("cpu", {});
  ASSERT_TRUE(device.ok()) << device.message();
  const std::vector<Problem> sizes = tune_gemm_sizes(fixtures);
  EXPECT_EQ(sizes.size(), 63U);
  EXPECT_EQ(std::ranges::count_if(sizes, [](const Problem& one) { return !all_row_major(one); }), 25);
  for (const Problem& problem : sizes) {
    const auto takes = [&](const KernelFamily* family) {
      return family->name() != "reference" && family->accepts(problem).ok();
    };
    EXPECT_TRUE(std::ranges::any_of((*device)->families(), takes)) << print(problem);
    EXPECT_TRUE((*device)->fallback(problem).ok()) << (*device)->fallback(problem).message();
  }
}

TEST(OrdersOfTuneGemm, EverySizeHasAFamilyOnGpus) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  GEMMTUNE_NEEDS_NVRTC(compiler);
  CompileOnlyRuntime runtime(compiler, "sm_90a", limits_of("sm_90a"));
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto simt = gpu::make_simt_family(runtime);
  const auto wgmma = cuda::make_wgmma_family(runtime, no_driver);
  int on_tensor_cores = 0;
  for (const Problem& problem : tune_gemm_sizes(fixtures)) {
    EXPECT_TRUE(simt->accepts(problem).ok()) << simt->accepts(problem).message();
    if (all_row_major(problem) || !wgmma->accepts(problem).ok()) continue;
    ++on_tensor_cores;
    const Config config = wgmma->default_config(problem);
    EXPECT_EQ(wgmma->space(problem).build_refusal(config), "") << print(problem);
    EXPECT_FALSE(wgmma->space(problem).enumerate().empty()) << print(problem);
  }
  EXPECT_EQ(on_tensor_cores, 25);
}

}  // namespace
}  // namespace gemmtune
