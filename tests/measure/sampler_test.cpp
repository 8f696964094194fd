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

TEST_F(Sampling, EveryCallComesAfterAPassIfThePolicySaysSo) {
  Timed kernel_timed = timed(2);
  ASSERT_TRUE(sampler.prepare(kernel_timed).ok());
  EXPECT_EQ(device.parallel_passes, 0);
  device.launches.clear();
  policy.parallel_pass = true;
  ASSERT_TRUE(sampler.prepare(kernel_timed).ok());
  ASSERT_TRUE(sampler.sample(kernel_timed).ok());
  EXPECT_GT(device.parallel_passes, 0);
  EXPECT_EQ(device.parallel_passes, device.launches["k"]);
}

TEST_F(Sampling, calibrates_to_the_length_of_a_sample_within_the_iterations) {
  Timed one = timed(1);
  sampler.calibrate(one, 150);
  EXPECT_EQ(one.launches, 20);  // 3000 / 150
  sampler.calibrate(one, 1e6);
  EXPECT_EQ(one.launches, 1);
  sampler.calibrate(one, 0.5);
  EXPECT_EQ(one.launches, policy.iterations);
}

TEST_F(Sampling, warms_up_before_it_calibrates) {
  Timed one = timed(1);
  ASSERT_TRUE(sampler.prepare(one).ok());
  EXPECT_EQ(device.launches["k"], policy.warmup);
  EXPECT_EQ(one.launches, 30);
  EXPECT_EQ(*sampler.sample(one), 100);
  EXPECT_EQ(device.launches["k"], policy.warmup + 30);
}

TEST_F(Sampling, a_long_call_warms_itself) {
  device.single_calls = true;
  cost = 10 * policy.sample_microseconds;
  Timed one = timed(1);
  ASSERT_TRUE(sampler.prepare(one).ok());
  EXPECT_EQ(device.launches["k"], 1) << "no further warm-up";
  EXPECT_EQ(*sampler.sample(one), cost);
  EXPECT_EQ(device.launches["k"], 2) << "no uncounted turn";
  cost /= 2;
  ASSERT_TRUE(sampler.prepare(one).ok());
  EXPECT_EQ(device.launches["k"], 2 + policy.warmup);
}

TEST_F(Sampling, goes_on_in_the_rotation_where_the_last_sample_ended) {
  Timed one = timed(7);
  one.launches = 3;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(sampler.sample(one).ok());
  EXPECT_EQ(device.sampled_weights,
            (std::vector<const void*>{&weights[0], &weights[3], &weights[6], &weights[2]}));
}

TEST_F(Sampling, a_batch_after_another_kernel_has_an_uncounted_call_in_front) {
  Timed one = timed(1);
  const Timed* const kernels[] = {&one};
  one.launches = 4;
  ASSERT_TRUE(sampler.sample_in_turns(kernels, 9).front().ok());
  EXPECT_EQ(device.launches["k"], 5);
  one.launches = 1;
  ASSERT_TRUE(sampler.sample_in_turns(kernels, 9).front().ok());
  EXPECT_EQ(device.launches["k"], 6);
}

TEST_F(Sampling, turns_are_one_call_each_with_one_round_of_them_uncounted) {
  device.single_calls = true;
  const Timed one = timed(7);
  const Timed* const kernels[] = {&one, &one};
  std::vector<std::size_t> whose;
  const auto samples = sampler.sample_in_turns(kernels, 3, [&](std::size_t i) { whose.push_back(i); });
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(*samples[0], 100);
  EXPECT_EQ(*samples[1], 100);
  EXPECT_EQ(device.launches["k"], 8);
  ASSERT_EQ(whose.size(), 8U);
  for (std::size_t turn = 0; turn < 8; turn += 2) EXPECT_NE(whose[turn], whose[turn + 1]);
  // Both go through one rotation: no call finds the weight that the call before it has just read.
  for (std::size_t call = 0; call < 8; ++call) EXPECT_EQ(device.sampled_weights[call], &weights[call % 7]);
}

TEST_F(Sampling, a_short_call_is_repeated_within_a_turn) {
  device.single_calls = true;
  cost = 2;
  Timed one = timed(1);
  sampler.calibrate(one, cost);
  EXPECT_EQ(one.launches_per_turn, 10);  // 20 us
  EXPECT_EQ(Sampler::turns(one), (one.launches - 1) / 10 + 1);
  EXPECT_EQ(*sampler.sample(one), 2);
  EXPECT_EQ(device.launches["k"], 10 * (Sampler::turns(one) + 1));
}

// A machine that is half as fast in every other stretch of ten calls: batches after one another see different
// stretches, turns see the same ones.
TEST_F(Sampling, kernels_that_take_turns_meet_slow_stretches_alike) {
  device.single_calls = true;
  int calls = 0;
  const auto stretch = [&calls](double least) {
    return
        [&calls, least](const Problem&, Random&, double) { return least * (calls++ / 10 % 2 == 0 ? 1 : 2); };
  };
  device.add({.name = "a", .cost = stretch(100)});
  device.add({.name = "b", .cost = stretch(110)});
  const auto a = std::move(device.families()[0]->build({}, {})).value();
  const auto b = std::move(device.families()[1]->build({}, {})).value();
  weights.resize(3);
  rotation.operands.resize(3);
  const Timed timed_a{a.get(), &rotation, nullptr, 1};
  const Timed timed_b{b.get(), &rotation, nullptr, 1};
  const Timed* const kernels[] = {&timed_a, &timed_b};
  for (int round = 0; round < 10; ++round) {
    const auto samples = sampler.sample_in_turns(kernels, 10);
    EXPECT_NEAR(*samples[1] / *samples[0], 1.1, 1e-9) << round;
  }
}

// Two of three calls take 40 times as long, because another program had a processor.
class OnABusyMachine : public Sampling {
 protected:
  OnABusyMachine() { device.single_calls = true; }
  testing::FakeCost stalled(double least) {
    return [this, least](const Problem&, Random&, double) {
      if (++calls % 3 == 0) return least;
      device.waits += 39 * least;
      return 40 * least;
    };
  }
  std::unique_ptr<Kernel> kernel_of(const std::string& name, testing::FakeCost cost_of_call) {
    device.add({.name = name, .cost = std::move(cost_of_call)});
    rotation.operands.resize(1);
    return std::move(device.families().back()->build({}, {})).value();
  }
  int calls = 0;
};

TEST_F(OnABusyMachine, calls_that_waited_for_a_processor_do_not_count) {
  const auto a = kernel_of("a", stalled(100));
  const auto b = kernel_of("b", stalled(170));
  const Timed timed_a{a.get(), &rotation, nullptr, 1};
  const Timed timed_b{b.get(), &rotation, nullptr, 1};
  const Timed* const kernels[] = {&timed_a, &timed_b};
  for (int round = 0; round < 20; ++round) {
    const auto samples = sampler.sample_in_turns(kernels, 10);
    EXPECT_EQ(*samples[0], 100) << round;
    EXPECT_EQ(*samples[1], 170) << round;
  }
}

// One turn: a call as long as a sample.
TEST_F(OnABusyMachine, nor_do_long_calls) {
  const auto a = kernel_of("a", stalled(100));
  const Timed timed_a{a.get(), &rotation, nullptr, 1};
  const Timed* const alone[] = {&timed_a};
  for (int round = 0; round < 20; ++round)
    EXPECT_EQ(*sampler.sample_in_turns(alone, 1).front(), 100) << round;
}

TEST_F(OnABusyMachine, without_its_threads_no_turn_begins_but_one) {
  const auto a = kernel_of("a", stalled(100));
  const Timed timed_a{a.get(), &rotation, nullptr, 1};
  const Timed* const alone[] = {&timed_a};
  device.threads_come_together = false;
  EXPECT_EQ(*sampler.sample_in_turns(alone, 10).front(), 4000);
  EXPECT_EQ(device.launches["a"], 2) << "the uncounted one, and one";
}

TEST_F(OnABusyMachine, the_first_look_gathers_threads_after_a_slow_call) {
  const auto a = kernel_of("a", stalled(100));
  const Timed timed_a{a.get(), &rotation, nullptr, 1};
  EXPECT_EQ(**sampler.probe(timed_a, 800), 100);
  EXPECT_EQ(device.gathered, 2);
}

TEST_F(OnABusyMachine, a_long_call_is_calibrated_by_its_calm_calls) {
  const auto a = kernel_of("a", stalled(100));
  Timed timed_a{a.get(), &rotation, nullptr, 1};
  ASSERT_TRUE(sampler.prepare(timed_a).ok());
  EXPECT_EQ(timed_a.launches, 30);
}

// A kernel whose every call waits is longer than a program's share of a processor: calm calls of another one would make
// that faster than it is.
TEST_F(OnABusyMachine, calm_calls_are_compared_with_calm_calls_only) {
  const auto always = [this](const Problem&, Random&, double) {
    device.waits += 4000;
    return 5000.0;
  };
  const auto a = kernel_of("a", stalled(100));
  const auto b = kernel_of("b", always);
  for (const char* pool : {"own", "openmp"}) {
    const Timed timed_a{a.get(), &rotation, nullptr, 1};
    const Timed timed_b{b.get(), &rotation, nullptr, 1, 1, pool};
    const Timed* const kernels[] = {&timed_a, &timed_b};
    for (int round = 0; round < 20; ++round) {
      const auto samples = sampler.round(kernels);
      EXPECT_EQ(*samples[0], 4000) << pool;
      EXPECT_EQ(*samples[1], 5000) << pool;
    }
  }
}

TEST_F(OnABusyMachine, processor_times_of_all_turns_count) {
  const auto a = kernel_of("a", [this](const Problem&, Random&, double) {
    device.waits += 4000;
    return 100.0;
  });
  const Timed timed_a{a.get(), &rotation, nullptr, 1};
  const Timed* const alone[] = {&timed_a};
  policy.processor_time = true;
  EXPECT_EQ(*sampler.sample_in_turns(alone, 10).front(), 100);
  EXPECT_EQ(device.launches["a"], 11) << "the uncounted one, and ten";
  EXPECT_EQ(device.gathered, 0);
  EXPECT_EQ(device.processor_times, 11);
}

TEST_F(Sampling, a_quiet_machine_is_not_asked_after_each_call) {
  device.single_calls = true;
  const Timed one = timed(1);
  const Timed* const kernels[] = {&one};
  EXPECT_EQ(*sampler.sample_in_turns(kernels, 10).front(), 100);
  EXPECT_EQ(device.launches["k"], 11) << "no further turns";
  EXPECT_LE(device.wait_readings, 2);
}

TEST_F(Sampling, a_kernel_that_fails_leaves_the_others_their_turns) {
  device.single_calls = true;
  const Timed good = timed(1);
  device.add({.name = "bad", .cost = [](const Problem&, Random&, double) { return 0.0; }});
  const auto bad = std::move(device.families().back()->build({}, {})).value();
  const Timed failing{bad.get(), &rotation, nullptr, 1};
  const Timed* const kernels[] = {&failing, &good};
  const auto samples = sampler.sample_in_turns(kernels, 5);
  EXPECT_EQ(samples[0].code(), StatusCode::internal);
  EXPECT_EQ(*samples[1], 100);
  EXPECT_EQ(device.launches["k"], 6);
  EXPECT_EQ(device.launches["bad"], 1);
}

TEST_F(Sampling, a_round_samples_all_kernels_the_pools_one_after_another) {
  device.single_calls = true;
  const auto of_cost = [](double cost) { return [cost](const Problem&, Random&, double) { return cost; }; };
  const std::vector<double> costs{100, 300, 200, 400};
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const double cost : costs) {
    device.add({.name = std::to_string(cost), .cost = of_cost(cost)});
    kernels.push_back(std::move(device.families().back()->build({}, {})).value());
  }
  rotation.operands.resize(1);
  std::vector<Timed> timed;
  for (const auto& one : kernels) {
    const char* pool = timed.size() % 2 == 0 ? "own" : "openmp";
    timed.push_back({one.get(), &rotation, nullptr, 1, 1, pool});
  }
  timed[0].launches = 5;
  const Timed* const all[] = {&timed[0], &timed[1], &timed[2], &timed[3]};
  for (int round = 0; round < 10; ++round) {
    device.quiesced.clear();
    std::vector<std::size_t> whose;
    const auto samples = sampler.round(all, [&](std::size_t i) { whose.push_back(i); });
    ASSERT_EQ(samples.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(*samples[i], costs[i]);
    EXPECT_LE(device.quiesced.size(), 2U);
    ASSERT_EQ(whose.size(), 24U) << "the same number of turns for all, and one uncounted";
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(whose[i] % 2, whose[0] % 2);
    for (std::size_t i = 12; i < 24; ++i) EXPECT_NE(whose[i] % 2, whose[0] % 2);
  }
}

TEST_F(Sampling, first_look_gives_up_only_after_three_slow_calls) {
  const Timed one = timed(1);
  EXPECT_EQ(**sampler.probe(one, 0), 100);
  EXPECT_EQ(**sampler.probe(one, 100), 100);
  EXPECT_EQ(device.launches["k"], 2);
  EXPECT_FALSE(sampler.probe(one, 99)->has_value());
  EXPECT_EQ(device.launches["k"], 5);
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
