#include "measure/sampler.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "support/fake_device.h"

namespace gemmtune {
namespace {

using testing::FakeDevice;

class Sampling : public ::testing::Test {
 protected:
  // A kernel that takes what `cost` holds.
  Timed timed(std::size_t copies) {
    device.add({.name = "k", .cost = [this](const Problem&, Random&, double) { return cost; }});
    kernel = std::move(device.families().back()->build({}, {})).value();
    weights.resize(copies);
    rotation.operands.resize(copies);
    for (std::size_t i = 0; i < copies; ++i) rotation.operands[i].w = &weights[i];
    return {kernel.get(), &rotation, nullptr, 1};
  }

  FakeDevice device;
  Policy policy;
  Sampler sampler{device, policy};
  double cost = 100;
  std::unique_ptr<Kernel> kernel;
  std::vector<char> weights;
  Rotation rotation;
};

TEST_F(Sampling, calibrates_to_the_length_of_a_sample_within_the_iterations) {
  Timed one = timed(1);
  sampler.calibrate(one, 150);
  EXPECT_EQ(one.launches, 14);  // ceil(2000 / 150)
  sampler.calibrate(one, 1e6);
  EXPECT_EQ(one.launches, 1);
  sampler.calibrate(one, 0.5);
  EXPECT_EQ(one.launches, policy.iterations);
}

TEST_F(Sampling, warms_up_before_it_calibrates) {
  Timed one = timed(1);
  ASSERT_TRUE(sampler.prepare(one).ok());
  EXPECT_EQ(device.launches["k"], policy.warmup);
  EXPECT_EQ(one.launches, 20);
  EXPECT_EQ(*sampler.sample(one), 100);
  EXPECT_EQ(device.launches["k"], policy.warmup + 20);
}

TEST_F(Sampling, goes_on_in_the_rotation_where_the_last_sample_ended) {
  Timed one = timed(7);
  one.launches = 3;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(sampler.sample(one).ok());
  EXPECT_EQ(device.sampled_weights,
            (std::vector<const void*>{&weights[0], &weights[3], &weights[6], &weights[2]}));
}

TEST_F(Sampling, an_interleaved_sample_has_an_uncounted_call_in_front) {
  Timed one = timed(1);
  one.launches = 4;
  ASSERT_TRUE(sampler.sample_interleaved(one).ok());
  EXPECT_EQ(device.launches["k"], 5);
  one.launches = 1;
  ASSERT_TRUE(sampler.sample_interleaved(one).ok());
  EXPECT_EQ(device.launches["k"], 6);
}

TEST_F(Sampling, first_look_gives_up_only_after_two_slow_calls) {
  const Timed one = timed(1);
  EXPECT_EQ(**sampler.first_look(one, 0), 100);
  EXPECT_EQ(**sampler.first_look(one, 100), 100);
  EXPECT_EQ(device.launches["k"], 2);
  EXPECT_FALSE(sampler.first_look(one, 99)->has_value());
  EXPECT_EQ(device.launches["k"], 4);
}

TEST_F(Sampling, a_time_that_is_none_is_an_error) {
  const Timed one = timed(1);
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    cost = bad;
    EXPECT_EQ(sampler.sample(one).code(), StatusCode::internal);
  }
}

}  // namespace
}  // namespace gemmtune
