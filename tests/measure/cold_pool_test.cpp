#include "measure/cold_pool.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/fake_device.h"

namespace gemmtune {
namespace {

using testing::FakeDevice;

TEST(PoolShape, holds_the_target) {
  const PoolShape shape = pool_shape(1 << 20, 10 << 20, std::size_t{1} << 30);
  EXPECT_EQ(shape.copies, 10U);
  EXPECT_EQ(shape.wanted_copies, 10U);
  EXPECT_GT(shape.stride_bytes, std::size_t{1} << 20) << "not a power of two apart";
  EXPECT_EQ(shape.stride_bytes % 4096, 0U);
}

TEST(PoolShape, a_weight_larger_than_the_target_is_there_once) {
  EXPECT_EQ(pool_shape(1 << 20, 1000, 0).copies, 1U);
  EXPECT_EQ(pool_shape(1 << 20, 0, 0).copies, 1U);
}

TEST(PoolShape, memory_limits_it_to_no_less_than_one) {
  const PoolShape shape = pool_shape(1 << 20, 64 << 20, 5 << 20);
  EXPECT_EQ(shape.copies, 4U);
  EXPECT_EQ(shape.wanted_copies, 64U);
  EXPECT_LE(shape.bytes(), std::size_t{5} << 20);
  EXPECT_EQ(pool_shape(1 << 20, 64 << 20, 7).copies, 1U);
}

TEST(PoolShape, tiny_weights_count_as_the_lines_that_they_touch) {
  const PoolShape shape = pool_shape(2, 6400, 1 << 20);
  EXPECT_EQ(shape.stride_bytes, 64U);
  EXPECT_EQ(shape.copies, 100U);
  EXPECT_EQ(pool_shape(2, std::size_t{1} << 30, std::size_t{1} << 40).copies, max_pool_copies);
}

TEST(PoolLimit, is_the_policys_or_a_quarter_of_what_is_free) {
  FakeDevice device;
  device.free_bytes = 4000;
  EXPECT_EQ(pool_limit_bytes(device, {}), 1000U);
  Policy policy;
  policy.pool_limit_bytes = 77;
  EXPECT_EQ(pool_limit_bytes(device, policy), 77U);
  device.cache_bytes = 500;
  EXPECT_EQ(pool_target_bytes(device, Policy(), true), 1000U);
  EXPECT_EQ(pool_target_bytes(device, Policy(), false), 0U);
  Policy rotating;
  rotating.rotating_mb = 3;
  EXPECT_EQ(pool_target_bytes(device, rotating, true), std::size_t{3} << 20);
  EXPECT_EQ(pool_target_bytes(device, rotating, false), 0U) << "a warm tensor does not rotate";
}

TEST(ColdPool, every_copy_holds_the_weight) {
  FakeDevice device;
  std::vector<unsigned char> weight(5000);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<unsigned char>(i * 7);
  int fills = 0;
  auto pool = ColdPool::make(device, pool_shape(weight.size(), 30000, 1 << 20), [&](void* to) {
    ++fills;
    std::memcpy(to, weight.data(), weight.size());
    return Status();
  });
  ASSERT_TRUE(pool.ok()) << pool.message();
  EXPECT_EQ(fills, 1);
  const auto expect_content = [&] {
    for (std::size_t i = 0; i < pool->copies(); ++i)
      EXPECT_EQ(std::memcmp(pool->copy(i), weight.data(), weight.size()), 0) << i;
  };
  EXPECT_EQ(pool->copies(), 6U);
  expect_content();
  const std::size_t bytes = device.live_bytes;
  ASSERT_TRUE(pool->place_again().ok());
  expect_content();
  EXPECT_EQ(fills, 1) << "packing is done once";
  EXPECT_EQ(device.live_bytes, bytes);
}

TEST(ColdPool, errors_come_back) {
  FakeDevice device;
  const auto refuse = [](void*) { return Status::unsupported("no such layout"); };
  EXPECT_EQ(ColdPool::make(device, pool_shape(100, 0, 0), refuse).message(), "no such layout");
  device.free_bytes = 10;
  const auto accept = [](void*) { return Status(); };
  EXPECT_EQ(ColdPool::make(device, pool_shape(100, 0, 0), accept).code(), StatusCode::out_of_memory);
}

}  // namespace
}  // namespace gemmtune
