#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "measure/policy.h"

namespace gemmtune {
namespace {

TEST(Statistics, median_of_odd_and_even_counts) {
  EXPECT_EQ(median(std::vector{3.0}), 3);
  EXPECT_EQ(median(std::vector{9.0, 1.0, 5.0}), 5);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 3.0, 100.0}), 3.5);
  EXPECT_EQ(median(std::vector{2.0, 2.0}), 2);
}

TEST(Statistics, geometric_mean_of_ratios) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector{2.0, 0.5}), 1);
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector{1.0, 8.0, 27.0}), 6);
  EXPECT_EQ(geometric_mean({}), 0);
}

TEST(Statistics, one_stall_moves_neither_median_nor_interval_much) {
  std::vector<double> samples;
  for (int i = 0; i < 21; ++i) samples.push_back(100 + i);
  const Interval quiet = median_interval(samples, 0.95);
  samples.back() = 1e9;
  EXPECT_EQ(median(samples), 110);
  EXPECT_EQ(median_interval(samples, 0.95).high, quiet.high);
}

// Known depths: for n = 15 the 95 % interval of a median runs from the 4th to the 12th of the sorted values
// (e.g. Conover, Practical Nonparametric Statistics, table of the binomial with p = 1/2).
TEST(Statistics, median_interval_has_the_known_ranks) {
  std::vector<double> samples;
  for (int i = 1; i <= 15; ++i) samples.push_back(i);
  EXPECT_EQ(median_interval(samples, 0.95).low, 4);
  EXPECT_EQ(median_interval(samples, 0.95).high, 12);
  EXPECT_EQ(median_interval(samples, 0.99).low, 3);
  EXPECT_EQ(median_interval(samples, 0.9999999).low, 1) << "too few samples: the whole range";
  EXPECT_EQ(median_interval(samples, 0.9999999).high, 15);
  EXPECT_EQ(median_interval(std::vector{7.0}, 0.95).low, 7);
  EXPECT_EQ(median_interval(std::vector{7.0, 9.0}, 0.95).high, 9);
}

TEST(Statistics, median_interval_covers_as_often_as_it_says) {
  Random random(1);
  for (const int n : {9, 15, 30, 60}) {
    int covered = 0;
    for (int run = 0; run < 2000; ++run) {
      std::vector<double> samples;
      for (int i = 0; i < n; ++i) samples.push_back(std::exp(3 * random.uniform()));  // skewed; median e^1.5
      const Interval interval = median_interval(samples, 0.95);
      if (interval.low <= std::exp(1.5) && std::exp(1.5) <= interval.high) ++covered;
    }
    EXPECT_GE(covered, 1870) << n;
  }
}

TEST(Statistics, many_samples_do_not_underflow) {
  std::vector<double> samples;
  for (int i = 0; i < 5000; ++i) samples.push_back(i);
  const Interval interval = median_interval(samples, 0.95);
  EXPECT_NEAR(interval.low, 2430, 3);  // n/2 − 1.96·√n/2
  EXPECT_NEAR(interval.high, 2569, 3);
  EXPECT_NEAR(sign_test_below(samples, 2500), 0.5, 0.02);
}

TEST(Statistics, spread_is_half_of_the_interval) {
  std::vector<double> samples;
  for (int i = 1; i <= 15; ++i) samples.push_back(i);
  EXPECT_EQ(spread(samples), 4);
  EXPECT_EQ(spread(std::vector{5.0}), 0);
}

TEST(Statistics, sign_test_is_the_binomial_tail) {
  const auto ratios = [](int below, int above) {
    std::vector<double> all(static_cast<std::size_t>(below), 0.9);
    all.insert(all.end(), static_cast<std::size_t>(above), 1.1);
    return all;
  };
  EXPECT_DOUBLE_EQ(sign_test_below(ratios(3, 0), 1), 0.125);
  EXPECT_NEAR(sign_test_below(ratios(14, 1), 1), 16.0 / 32768, 1e-12);
  EXPECT_NEAR(sign_test_below(ratios(0, 5), 1), 1, 1e-12);
  EXPECT_NEAR(sign_test_below(ratios(2, 2), 1), 11.0 / 16, 1e-12);
  EXPECT_NEAR(sign_test_below(std::vector{1.0, 1.0, 1.0}, 1), 1, 1e-12) << "equal counts as not below";
  EXPECT_EQ(sign_test_below({}, 1), 1);
}

TEST(NoiseFloor, is_the_farther_end_of_the_interval_from_1) {
  std::vector<double> around_1;
  std::vector<double> shifted;
  for (int i = -10; i <= 10; ++i) {
    around_1.push_back(1 + 0.001 * i);
    shifted.push_back(1.05 + 0.001 * i);
  }
  EXPECT_NEAR(noise_floor(around_1), 0.005, 1e-9) << "x(6) and x(16) of 21";
  EXPECT_NEAR(noise_floor(shifted), 0.055, 1e-9) << "not the half-width, 0.005";
  for (double& ratio : shifted) ratio -= 0.1;
  EXPECT_NEAR(noise_floor(shifted), 0.055, 1e-9);
  EXPECT_EQ(noise_floor({}), 0);
}

TEST(Policy, text_names_what_a_time_means_and_nothing_else) {
  Policy policy;
  const std::string text = policy.text();
  EXPECT_EQ(text, "cache=weights-cold warmup=5 iters=101 sample_us=3000 data=normal1");
  Policy other = policy;
  other.seed = 9;
  other.round_limit = 12;
  other.pool_limit_bytes = 1;
  EXPECT_EQ(other.text(), text);
  other.cache = CacheMode::warm;
  EXPECT_NE(other.text(), text);
  other = policy;
  other.iterations = 50;
  EXPECT_NE(other.text(), text);
  other = policy;
  other.processor_time = true;
  EXPECT_EQ(other.text(), text + " clock=processor");
}

TEST(LowerQuartile, lies_between_order_statistics) {
  EXPECT_EQ(lower_quartile(std::vector<double>{7}), 7);
  EXPECT_EQ(lower_quartile(std::vector<double>{5, 1, 3, 2, 4}), 2);
  EXPECT_EQ(lower_quartile(std::vector<double>{4, 2}), 2.5);
  EXPECT_EQ(lower_quartile(std::vector<double>{1, 2, 3, 1000}), 1.75);
}

}  // namespace
}  // namespace gemmtune
