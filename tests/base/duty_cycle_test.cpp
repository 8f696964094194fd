// A share of the machine: how long a worker rests.
#include "base/duty_cycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gemmtune {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A process on clocks of the test.
class Duty : public ::testing::Test {
 protected:
  DutyCycle cycle(double share, int cores) {
    return {share,
            cores,
            {[this] { return now_; }, [this] { return used_; },
             [this](double seconds) {
               rests_.push_back(seconds);
               now_ += seconds;
             }}};
  }
  /// `cores` cores are busy for `seconds`.
  void work(double seconds, double cores) {
    now_ += seconds;
    used_ += seconds * cores;
  }

  double now_ = 100;
  double used_ = 7;
  std::vector<double> rests_;
};

TEST_F(Duty, RestsUntilWhatWasUsedIsWithinTheShare) {
  auto duty = cycle(0.25, 2);
  work(0.5, 2);  // 1 s of processor time is a quarter of two cores in 2 s
  duty.rest();
  work(0.1, 1);
  duty.rest();
  EXPECT_THAT(rests_, ElementsAre(DoubleNear(1.5, 1e-9), DoubleNear(0.1, 1e-9)));
}

TEST_F(Duty, TimeThatOthersHadIsNoWork) {
  auto duty = cycle(0.25, 2);
  work(2, 0.4);  // a busy machine leaves it less than its share
  duty.rest();
  EXPECT_THAT(rests_, IsEmpty());
}

TEST_F(Duty, WhatWasNotUsedIsNotSavedForALongerBurst) {
  auto duty = cycle(0.25, 2);
  work(100, 0);
  duty.rest();
  work(0.5, 2);
  duty.rest();
  EXPECT_THAT(rests_, ElementsAre(DoubleNear(1.5, 1e-9)));
}

TEST_F(Duty, ShortRestsAreTakenTogether) {
  auto duty = cycle(0.5, 1);
  for (int i = 0; i < 20; ++i) {
    work(1e-4, 1);
    duty.rest();
  }
  double sum = 0;
  for (const double rest : rests_) {
    EXPECT_GE(rest, 1e-3 - 1e-9);
    sum += rest;
  }
  EXPECT_LE(rests_.size(), 2U);
  EXPECT_GE(sum, 20e-4 - 1e-3 - 1e-9);  // less than one rest may be left
  EXPECT_LE(sum, 20e-4 + 1e-9);
}

TEST_F(Duty, AllOfTheMachineNeverRests) {
  auto duty = cycle(1, 2);
  work(5, 2);
  duty.rest();
  EXPECT_THAT(rests_, IsEmpty());
}

}  // namespace
}  // namespace gemmtune
