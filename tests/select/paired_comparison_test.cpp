#include "select/paired_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "measure/statistics.h"
#include "select/paired_rounds.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PairedRounds, RatiosAreOfRoundsInWhichBothHaveAValidTime) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  PairedRounds rounds(3);
  rounds.add(std::array<std::size_t, 3>{0, 1, 2}, {{10, 20, 5}, {12, none, 6}, {0, 30, 4}});
  rounds.add(std::array<std::size_t, 2>{2, 0}, {{8, 16}});
  EXPECT_THAT(rounds.times(0), ElementsAre(10, 12, 16)) << "0 is no time";
  EXPECT_THAT(rounds.times(1), ElementsAre(20, 30));
  EXPECT_THAT(rounds.ratios(0, 2), ElementsAre(2, 2, 2));
  EXPECT_THAT(rounds.ratios(1, 0), ElementsAre(2));
  EXPECT_THAT(PairedRounds(1).times(0), IsEmpty());
}

TEST(RatioLimits, TheNoiseFloorWidensEachOfThem) {
  Policy policy;  // prefer_ratio 0.995, tie_band 0.01
  const RatioLimits quiet = ratio_limits(policy, 0.002);
  EXPECT_DOUBLE_EQ(quiet.win, 0.995);
  EXPECT_DOUBLE_EQ(quiet.tie, 1.01);
  EXPECT_DOUBLE_EQ(quiet.declared_tie, 1.012);
  const RatioLimits noisy = ratio_limits(policy, 0.03);
  EXPECT_DOUBLE_EQ(noisy.win, 0.97);
  EXPECT_DOUBLE_EQ(noisy.no_win, 0.995) << "what is slower by any amount does not win";
  EXPECT_DOUBLE_EQ(noisy.tie, 1.03);
  EXPECT_DOUBLE_EQ(noisy.declared_tie, 1.06);
}

// The second time of a kernel is 3 % shorter than the first in every round: the interval of A against A is
// narrow, but a kernel that is "3 % faster" than an equal one has won nothing.
TEST(RatioLimits, AShiftOfAAgainstAIsNoiseThoughItsIntervalIsNarrow) {
  std::vector<double> same;
  std::vector<double> ratios;
  for (int round = 0; round < 30; ++round) {
    same.push_back(0.97 + 0.0001 * (round % 3));
    ratios.push_back(0.972 + 0.0001 * (round % 2));
  }
  const Interval interval = median_interval(same, 0.95);
  EXPECT_TRUE(is_below(ratios, 1 - (interval.high - interval.low) / 2, test_alpha)) << "the half-width";
  const RatioLimits limits = ratio_limits(Policy(), noise_floor(same));
  EXPECT_FALSE(is_below(ratios, limits.win, test_alpha));
}

TEST(SignTest, NeedsEnoughRatiosOnOneSide) {
  const std::vector<double> six(6, 0.9);
  const std::vector<double> seven(7, 0.9);
  EXPECT_FALSE(is_below(six, 1, test_alpha)) << "1/64";
  EXPECT_TRUE(is_below(seven, 1, test_alpha)) << "1/128";
  EXPECT_FALSE(is_above(seven, 1, test_alpha));
  EXPECT_TRUE(is_above(std::vector<double>(7, 1.1), 1, test_alpha));
  EXPECT_FALSE(is_below({}, 1, test_alpha));
}

TEST(IsFarBelow, NeedsThreeRatiosWhichAreAllFarBelow) {
  EXPECT_TRUE(is_far_below(std::vector<double>{0.5, 0.89, 0.4}, 0.002));
  EXPECT_FALSE(is_far_below(std::vector<double>{0.5, 0.91, 0.4}, 0.002));
  EXPECT_FALSE(is_far_below(std::vector<double>{0.5, 0.6, 0.4}, 0.05)) << "ten times the noise floor are 0.5";
  EXPECT_FALSE(is_far_below(std::vector<double>{0.1, 0.1}, 0));
  EXPECT_FALSE(is_far_below({}, 0));
}

}  // namespace
}  // namespace gemmtune
