// A kernel that faults: the device says so and stays lost for the process. A program of its own, because
// nothing on the GPU works after it. Skips where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "backends/backend.h"
#include "backends/cuda/cuda_backend.h"

namespace gemmtune {
namespace {

/// Writes just past a buffer that ends where its addresses end.
const gpu::Source& past_the_end() {
  static const gpu::Source source{
      "past_the_end", "extern \"C\" __global__ void k(char* p, long long at) { p[at] = 1; }\n", {}, "k"};
  return source;
}

TEST(CudaFault, AnIllegalAccessIsReportedAndTheDeviceStaysLost) {
  DeviceRequest request;
  request.text = "cuda:0";
  auto device = open_device("cuda", request);
  if (!device.ok()) GTEST_SKIP() << device.message();
  auto runtime = cuda::open_runtime(0, {});
  ASSERT_TRUE(runtime.ok()) << runtime.message();
  auto program = (*runtime)->load(past_the_end());
  ASSERT_TRUE(program.ok()) << program.message();
  auto buffer = (*device)->allocate(1000, Placement::page_end);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  void* data = (*buffer)->data();
  const auto write_at = [&](long long at) {
    void* arguments[] = {&data, &at};
    return (*program)->launch({}, arguments, {});
  };

  ASSERT_TRUE(write_at(999).ok());
  EXPECT_TRUE((*device)->synchronize().ok());
  EXPECT_TRUE((*device)->health().ok());

  ASSERT_TRUE(write_at(1000).ok());
  const Status fault = (*device)->synchronize();
  EXPECT_THAT(fault.message(), ::testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ((*device)->health().message(), fault.message());
  // The first fault stays the answer; nothing else works.
  EXPECT_FALSE((*device)->fill(data, 0, 1).ok());
  EXPECT_EQ((*device)->health().message(), fault.message());
}

}  // namespace
}  // namespace gemmtune
