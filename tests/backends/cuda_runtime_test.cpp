// What the CUDA driver states of a GPU. Skips where there is none.
#include <gtest/gtest.h>

#include "backends/cuda/cuda_driver.h"

namespace gemmtune::cuda {
namespace {

TEST(CudaRuntimeTest, TheDriverSaysHowManyClustersRunAtOnce) {
  auto driver = CudaDriver::open(0);
  if (!driver.ok()) GTEST_SKIP() << driver.message();
  if ((*driver)->compute_capability() < 90) GTEST_SKIP() << "no clusters before sm_90";
  const HopperLimits limits((*driver)->properties().limits, (*driver)->clusters());
  EXPECT_EQ(limits.clusters[1], limits.multiprocessors);
  for (std::size_t blocks = 2; blocks < limits.clusters.size(); ++blocks) {
    EXPECT_GT(limits.clusters[blocks], 0) << blocks;
    EXPECT_LE(limits.clusters[blocks] * static_cast<int>(blocks), limits.multiprocessors) << blocks;
  }
}

}  // namespace
}  // namespace gemmtune::cuda
