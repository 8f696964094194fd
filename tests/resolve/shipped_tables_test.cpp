// The rows of configs/model_configs name kernels that still can be built: one that cannot would be passed over in
// silence, and the row's shape would run untuned.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/own_families.h"
#include "formats/aiter/tuned_csv.h"
#include "support/nvrtc.h"
#include "support/paper_device.h"

namespace gemmtune::shipped_tables_test {
namespace {

TEST(ShippedTables, KernelsOfOurFamiliesCanBeBuilt) {
  NoCompiler runtime;
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  testing::PaperDevice device;
  for (auto make : {cuda::make_wgmma_family, cuda::make_skinny_family, cuda::make_wgmma_moe_family})
    device.add(make(runtime, no_driver));
  device.add(cuda::make_mxfp4_family(runtime, no_driver));
  device.add(cuda::make_mma_family(runtime));
  device.add(cuda::make_moe_decode_family(runtime));
  device.add(cuda::make_mxfp4_stream_family(runtime, runtime.limits()));
  int tables = 0;
  int kernels = 0;
  for (const auto& file : std::filesystem::directory_iterator(GEMMTUNE_MODEL_CONFIGS)) {
    if (file.path().extension() != ".csv") continue;
    const auto table = read_tuned_csv(file.path().string());
    ASSERT_TRUE(table.ok()) << table.message();
    EXPECT_FALSE(table->entries.empty()) << file.path();
    ++tables;
    for (const TunedEntry& row : table->entries) {
      for (const std::string& name : {row.kernel_name, row.pdl_kernel_name}) {
        if (name.empty() || name.starts_with("cublaslt_")) continue;
        const auto candidate = device.resolve(name, row.problem);
        EXPECT_TRUE(candidate.ok()) << file.path() << ' ' << print(row.problem) << ": "
                                    << candidate.message();
        ++kernels;
      }
    }
  }
  EXPECT_GE(tables, 10);
  EXPECT_GE(kernels, 200);
}

}  // namespace
}  // namespace gemmtune::shipped_tables_test
