// What the CUDA runtime finds out about a GPU. Skips where there is none.
#include "backends/cuda/cuda_runtime.h"

#include <gtest/gtest.h>

namespace gemmtune::cuda {
namespace {

TEST(CudaRuntimeTest, TheDriverSaysHowManyClustersRunAtOnce) {
  auto runtime = CudaRuntime::open({});
  if (!runtime.ok()) GTEST_SKIP() << runtime.message();
  if ((*runtime)->compute_capability() < 90) GTEST_SKIP() << "no clusters before sm_90";
  const gpu::Limits& limits = (*runtime)->limits();
  EXPECT_EQ(limits.clusters[1], limits.multiprocessors);
  for (std::size_t blocks = 2; blocks < limits.clusters.size(); ++blocks) {
    EXPECT_GT(limits.clusters[blocks], 0) << blocks;
    EXPECT_LE(limits.clusters[blocks] * static_cast<int>(blocks), limits.multiprocessors) << blocks;
  }
}

}  // namespace
}  // namespace gemmtune::cuda
