// The walk from a fast candidate towards its family's default.
#include "search/plainer_walk.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

namespace gemmtune {
namespace {

class PlainerWalkTest : public ::testing::Test {
 protected:
  /// Three settings of three values each; a0_b0_c0 is the default.
  PlainerWalkTest() {
    for (int a = 0; a < 3; ++a) {
      for (int b = 0; b < 3; ++b) {
        for (int c = 0; c < 3; ++c) {
          SearchPoint point;
          point.candidate.family = "f";
          point.candidate.config.set("a", a);
          point.candidate.config.set("b", b);
          point.candidate.config.set("c", c);
          points_.push_back(point);
        }
      }
    }
  }
  static std::string text(const SearchPoint& point) { return point.candidate.config.text(); }
  std::size_t at(const std::string& wanted) const {
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (text(points_[i]) == wanted) return i;
    }
    ADD_FAILURE() << wanted;
    return 0;
  }
  /// Walks from `begin`, measuring what is asked for; answers where it ended.
  std::string walk(const std::string& begin, const std::function<double(const Config&)>& time,
                   double room = 0.02) {
    const auto measure = [&](SearchPoint& point) { point.samples.assign(3, time(point.candidate.config)); };
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (!missing_.contains(text(points_[i]))) members.push_back(i);
    }
    measure(points_[at(begin)]);
    PlainerWalk walk(points_, members, at(begin), room);
    while (const auto next = walk.next(points_, 3)) {
      EXPECT_LT(points_[*next].samples.size(), 3U) << "measured already";
      measure(points_[*next]);
      if (++measured_ > 20) break;
    }
    return text(points_[walk.reached()]);
  }

  std::vector<SearchPoint> points_;
  std::set<std::string> missing_;
  int measured_ = 0;
};

TEST_F(PlainerWalkTest, GivesUpWhatCostsNothing) {
  const auto only_b = [](const Config& config) { return config.number("b") == 2 ? 80.0 : 100.0; };
  EXPECT_EQ(walk("a2_b2_c1", only_b), "a0_b2_c0");
  EXPECT_LE(measured_, 4);
}

TEST_F(PlainerWalkTest, FromEverywhereInAFlatBasinItEndsAtTheSamePlace) {
  const auto only_b = [](const Config& config) { return config.number("b") == 2 ? 80.0 : 100.0; };
  for (const char* begin : {"a1_b2_c0", "a0_b2_c2", "a2_b2_c2", "a1_b2_c1"}) {
    for (SearchPoint& point : points_) point.samples.clear();
    EXPECT_EQ(walk(begin, only_b), "a0_b2_c0") << begin;
  }
}

TEST_F(PlainerWalkTest, ReachesTheDefaultWhereNothingMatters) {
  EXPECT_EQ(walk("a2_b1_c2", [](const Config&) { return 50.0; }), "a0_b0_c0");
}

TEST_F(PlainerWalkTest, SmallCostsDoNotAddUp) {
  // Each step back costs 1.5 %: one fits into the room of 2 %, two do not.
  const auto time = [](const Config& config) {
    double cost = 100;
    for (const char* key : {"a", "b", "c"}) cost *= config.number(key) == 0 ? 1.015 : 1.0;
    return cost;
  };
  EXPECT_EQ(walk("a1_b1_c1", time), "a0_b1_c1");
}

TEST_F(PlainerWalkTest, GoesAroundWhatIsNotThere) {
  // a2 can be given up only once c has been.
  missing_ = {"a0_b0_c1"};
  EXPECT_EQ(walk("a2_b0_c1", [](const Config&) { return 50.0; }), "a0_b0_c0");
}

TEST_F(PlainerWalkTest, GivesUpTwoAtOnceWhereNeitherGoesAlone) {
  missing_ = {"a0_b1_c0", "a1_b0_c0"};
  EXPECT_EQ(walk("a1_b1_c0", [](const Config&) { return 50.0; }), "a0_b0_c0");
}

TEST_F(PlainerWalkTest, WhatFailedIsNoStep) {
  points_[at("a0_b2_c1")].failed = true;
  EXPECT_EQ(walk("a2_b2_c1", [](const Config& config) { return config.number("b") == 2 ? 80.0 : 100.0; }),
            "a0_b2_c0");
}

}  // namespace
}  // namespace gemmtune
