// What the CUDA driver states of a GPU. Skips where there is none.
#include <gtest/gtest.h>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/libraries.h"

namespace gemmtune::cuda {
namespace {

TEST(CudaRuntimeTest, TheDriverSaysHowManyClustersRunAtOnce) {
  if (!driver().ok()) GTEST_SKIP() << driver().found.message();
  auto opened = CudaDriver::open(driver().functions, 0);
  if (!opened.ok()) GTEST_SKIP() << opened.message();
  if ((*opened)->compute_capability() < 90) GTEST_SKIP() << "no clusters before sm_90";
  const HopperLimits limits((*opened)->properties().limits, (*opened)->clusters());
  EXPECT_EQ(limits.clusters[1], limits.multiprocessors);
  for (std::size_t blocks = 2; blocks < limits.clusters.size(); ++blocks) {
    EXPECT_GT(limits.clusters[blocks], 0) << blocks;
    EXPECT_LE(limits.clusters[blocks] * static_cast<int>(blocks), limits.multiprocessors) << blocks;
  }
}

}  // namespace
}  // namespace gemmtune::cuda
