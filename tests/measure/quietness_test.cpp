#include "measure/quietness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::size_t> disturbed_rounds(const std::vector<double>& reference,
                                          double known = std::numeric_limits<double>::infinity(),
                                          double min_excess = 0.1) {
  const auto shares = disturbance(reference, known, min_excess);
  std::vector<std::size_t> rounds;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 1) rounds.push_back(i);
  }
  return rounds;
}

TEST(Quietness, ASlowReferenceMarksItsRound) {
  EXPECT_THAT(disturbed_rounds(std::vector<double>{100.0, 101, 250, 99, 100, 130, 102}), ElementsAre(2, 5));
}

TEST(Quietness, AFinalistIsGivenMoreRoom) {
  EXPECT_THAT(disturbed_rounds({100.0, 101, 250, 99, 100, 125, 102}, 100, 0.3), ElementsAre(2));
}

TEST(Quietness, MostRoundsMayBeSlow) {
  EXPECT_THAT(disturbed_rounds(std::vector<double>{200.0, 100, 210, 101, 190, 205, 100, 220}),
              ElementsAre(0, 2, 4, 5, 7));
}

TEST(Quietness, WhatDiffersLittleIsNoDisturbance) {
  EXPECT_THAT(disturbed_rounds(std::vector<double>{100.0, 104, 98, 107, 101, 99}), IsEmpty());
}

TEST(Quietness, AMachineThatIsNeverQuieterIsMeasuredByItsOwnNoise) {
  Random random(3);
  int disturbed = 0;
  for (int run = 0; run < 200; ++run) {
    std::vector<double> reference;
    for (int round = 0; round < 30; ++round) reference.push_back(100 * (1 + 0.1 * (random.uniform() - 0.5)));
    disturbed += static_cast<int>(disturbed_rounds(reference).size());
  }
  EXPECT_LE(disturbed, 6) << "of 6000 rounds that differ by 10 %";
}

TEST(Quietness, AMachineThatIsSlowAllTheTimeIsSeenByTheEarlierTimesOfTheReference) {
  const std::vector<double> slow{170.0, 171, 169, 170, 172, 170};
  EXPECT_THAT(disturbed_rounds(slow), IsEmpty());
  EXPECT_THAT(disturbed_rounds(slow, 100), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(disturbed_rounds(std::vector<double>{170.0, 101, 169, 170, 104, 170}, 100),
              ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(disturbed_rounds(slow, 165), IsEmpty()) << "3 % is no other state";
  EXPECT_EQ(quiet_level(slow), 170);
  EXPECT_EQ(quiet_level(std::vector<double>{1.0, 2}), std::numeric_limits<double>::infinity());
}

TEST(Quietness, FewRoundsAndMissingTimesAreNoDisturbance) {
  EXPECT_THAT(disturbed_rounds(std::vector<double>{100.0, 900, 100, 100}), IsEmpty());
  EXPECT_THAT(disturbed_rounds({}), IsEmpty());
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(disturbed_rounds(std::vector<double>{none, 100.0, 100, 900, 100, 100, none}), ElementsAre(3));
  EXPECT_THAT(disturbed_rounds(std::vector<double>(9, none)), IsEmpty());
}

TEST(Quietness, BusyIsMoreThanAQuarter) {
  EXPECT_FALSE((Quietness{12, 3, 0}).busy());
  EXPECT_TRUE((Quietness{12, 4, 12}).busy());
  EXPECT_FALSE(Quietness{}.busy());
  Quietness sum{12, 4, 1};
  sum += {8, 0, 2};
  EXPECT_EQ(sum, (Quietness{20, 4, 3}));
}

}  // namespace
}  // namespace gemmtune
