#include "dispatch/plan_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "dispatch/planner.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::small_problem;

class Plans : public ::testing::Test {
 protected:
  Plans() : device_(std::make_shared<DispatchDevice>()) {
    device_->device = std::make_unique<test::FakeDevice>();
  }
  PlanRef plan(std::int64_t m) { return *make_plan(device_, tables_, small_problem(m), {}); }
  static PlanKey key(std::int64_t m, std::uint64_t generation = 0) { return {small_problem(m), generation}; }

  std::shared_ptr<DispatchDevice> device_;
  TableSet tables_;
};

TEST_F(Plans, WholeProblemAndGenerationAreTheKey) {
  PlanCache cache;
  const PlanRef one = plan(1);
  cache.insert(key(1), one);
  EXPECT_EQ(cache.find(key(1)).get(), one.get());
  EXPECT_FALSE(cache.find(key(2)));
  EXPECT_FALSE(cache.find(key(1, 1)));
  PlanKey other = key(1);
  other.problem.alignment = 64;
  EXPECT_FALSE(cache.find(other));
  other = key(1);
  other.problem.weight_layout = WeightLayout::panel16;
  EXPECT_FALSE(cache.find(other));
  other = key(1);
  other.problem.bias = true;
  EXPECT_FALSE(cache.find(other));
}

TEST_F(Plans, TheFirstPlanOfAKeyStays) {
  PlanCache cache;
  const PlanRef first = plan(1);
  const PlanRef second = plan(1);
  cache.insert(key(1), first);
  cache.insert(key(1), second);
  EXPECT_EQ(cache.find(key(1)).get(), first.get());
  EXPECT_EQ(cache.size(), 1U);
}

TEST_F(Plans, DropsTheLeastRecentlyUsed) {
  PlanCache cache(3, 1);
  for (std::int64_t m = 1; m <= 3; ++m) cache.insert(key(m), plan(m));
  EXPECT_TRUE(cache.find(key(1)));  // now 2 is the oldest
  cache.insert(key(4), plan(4));
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_FALSE(cache.find(key(2)));
  EXPECT_TRUE(cache.find(key(1)));
  EXPECT_TRUE(cache.find(key(3)));
  EXPECT_TRUE(cache.find(key(4)));
}

TEST_F(Plans, ShardsTogetherHoldTheCapacity) {
  PlanCache cache(64, 16);
  for (std::int64_t m = 1; m <= 64; ++m) cache.insert(key(m), plan(m));
  EXPECT_EQ(cache.size(), 64U);
  for (std::int64_t m = 1; m <= 64; ++m) EXPECT_TRUE(cache.find(key(m))) << m;
  for (std::int64_t m = 65; m <= 200; ++m) {
    cache.insert(key(m), plan(m));
    EXPECT_LE(cache.size(), 64U);
    EXPECT_TRUE(cache.find(key(m))) << m;
  }
}

TEST_F(Plans, ADroppedPlanLivesAsLongAsItIsHeld) {
  PlanCache cache(1, 1);
  const PlanRef held = plan(1);
  cache.insert(key(1), held);
  cache.insert(key(2), plan(2));
  EXPECT_FALSE(cache.find(key(1)));
  EXPECT_EQ(held->problem().m, 1);
  cache.clear();
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_FALSE(cache.find(key(2)));
}

}  // namespace
}  // namespace gemmtune
