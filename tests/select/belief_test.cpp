// When times of finals are believed.
#include "select/belief.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

PairEvidence calm() {
  PairEvidence evidence;
  evidence.rounds = {100, 80};
  evidence.screened = {103, 79};
  evidence.screening_deviation = 0.01;
  return evidence;
}

TEST(Belief, TimesThatAgreeAreBelieved) {
  EXPECT_THAT(doubt_of(calm()), IsEmpty());
  EXPECT_THAT(doubt_of_win(calm()), IsEmpty());
}

TEST(Belief, AKernelThreeTimesOffItsScreeningIsDoubted) {
  PairEvidence evidence = calm();
  evidence.rounds.default_us = 290;
  EXPECT_THAT(doubt_of(evidence), IsEmpty());
  evidence.rounds.default_us = 310;
  EXPECT_THAT(doubt_of(evidence), HasSubstr("the default took 310 us, and 103 us in screening"));
  evidence = calm();
  evidence.rounds.kernel_us = 79.0 / 3.1;
  EXPECT_THAT(doubt_of(evidence), HasSubstr("the kernel took"));
  evidence.screened.kernel_us = 0;
  EXPECT_THAT(doubt_of(evidence), IsEmpty()) << "it was not screened";
}

TEST(Belief, ADefaultTenTimesAboveTheRoofIsDoubted) {
  PairEvidence evidence = calm();
  evidence.roof_microseconds = 10.1;
  EXPECT_THAT(doubt_of(evidence), IsEmpty());
  evidence.roof_microseconds = 9.9;
  EXPECT_THAT(doubt_of(evidence), HasSubstr("reading its weight 9.9 us"));
}

TEST(Belief, RoundsOfTwoCallsMustAgreeWithinAFifth) {
  PairEvidence evidence = calm();
  evidence.other_ratio = 1.25 * 1.19;
  EXPECT_THAT(doubt_of(evidence), IsEmpty());
  evidence.other_ratio = 1.25 / 1.21;
  EXPECT_THAT(doubt_of(evidence), Not(IsEmpty()));
  EXPECT_TRUE(agree(100, 119));
  EXPECT_FALSE(agree(100, 121));
  EXPECT_FALSE(agree(PairTimes{100, 80}, PairTimes{100, 120}));
}

TEST(Belief, AKernelThatWasNotAheadInScreeningDoesNotWinByMuch) {
  PairEvidence evidence = calm();
  evidence.screened = {100, 102};
  EXPECT_THAT(doubt_of_win(evidence), HasSubstr("in screening")) << "1.25 in rounds";
  evidence.rounds = {100, 90};
  EXPECT_THAT(doubt_of_win(evidence), IsEmpty()) << "the two ratios agree";
  evidence = calm();
  evidence.screened = {100, 95};
  EXPECT_THAT(doubt_of_win(evidence), IsEmpty()) << "ahead in both";
  evidence.screening_deviation = 0.05;
  evidence.screened = {100, 97};
  EXPECT_THAT(doubt_of_win(evidence), Not(IsEmpty())) << "screening varies more than that";
  evidence.screening_deviation = 0;
  EXPECT_THAT(doubt_of_win(evidence), IsEmpty()) << "screening is not asked";
}

TEST(Belief, TheFirstSamplesAreAViewOfTheirOwn) {
  PairEvidence evidence = calm();
  evidence.early = {100, 104};
  EXPECT_THAT(doubt_of_win(evidence), HasSubstr("was 0.9615 in screening"));
}

}  // namespace
}  // namespace gemmtune
