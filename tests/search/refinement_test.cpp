// The end of a staged search: neighbours on a grid of settings, and what is tried around the winners.
#include "search/refinement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::UnorderedElementsAre;

constexpr auto next_value = SettingsGrid::Reach::next_value;
constexpr auto any_value = SettingsGrid::Reach::any_value;

SearchPoint point_of(const std::string& text) {
  SearchPoint point;
  point.candidate.family = "f";
  point.candidate.config = parse_kernel_name("f_r1_" + text, {"mr", "nr", "kc", "split"})->config;
  return point;
}

class RefinementTest : public ::testing::Test {
 protected:
  /// Register tiles 16x64, 16x32, 32x32 and 64x16; kc 128 to 1024; the first one is the default.
  RefinementTest() {
    for (const char* tile : {"mr16_nr64", "mr16_nr32", "mr32_nr32", "mr64_nr16"}) {
      for (const char* kc : {"1024", "512", "256", "128"}) {
        for (const char* split : {"m", "n"})
          points_.push_back(point_of(std::string(tile) + "_kc" + kc + "_split" + split));
      }
    }
    for (std::size_t i = 0; i < points_.size(); ++i) members_.push_back(i);
  }
  std::string text(std::size_t i) const { return points_[i].candidate.config.text(); }
  std::size_t at(const std::string& wanted) const {
    for (std::size_t i = 0; i < points_.size(); ++i)
      if (text(i) == wanted) return i;
    ADD_FAILURE() << wanted;
    return 0;
  }
  std::set<std::string> around(const std::string& centre, SettingsGrid::Reach reach) const {
    std::set<std::string> texts;
    for (const std::size_t i : SettingsGrid(points_, members_).neighbours(at(centre), reach))
      texts.insert(text(i));
    return texts;
  }
  /// Refines a search that has measured `begin`; answers what was found.
  std::set<std::string> refine(const std::vector<std::string>& begin,
                               const std::function<double(const Config&)>& time) {
    Refinement::Families families;
    families.push_back(std::make_unique<ExploredFamily>(points_, members_));
    const auto measure = [&](std::size_t i, int samples) {
      const double microseconds = time(points_[i].candidate.config);
      points_[i].samples.insert(points_[i].samples.end(), static_cast<std::size_t>(samples), microseconds);
      families.front()->surrogate.observe(i, microseconds);
    };
    std::vector<std::size_t> survivors;
    for (const std::string& name : begin) {
      survivors.push_back(at(name));
      measure(survivors.back(), 3);
    }
    Refinement refinement(points_, families, survivors, 3);
    int steps = 0;
    for (SearchStep step = refinement.next(points_); !step.candidates.empty();
         step = refinement.next(points_)) {
      EXPECT_GT(step.samples, 0);
      for (const std::size_t i : step.candidates) {
        tried_.insert(text(i));
        measure(i, step.samples);
      }
      if (++steps > 100) {
        ADD_FAILURE() << "no end";
        break;
      }
    }
    std::set<std::string> found;
    for (const std::size_t i : refinement.found()) {
      EXPECT_GE(points_[i].samples.size(), 3U) << text(i);
      found.insert(text(i));
    }
    return found;
  }

  std::vector<SearchPoint> points_;
  std::vector<std::size_t> members_;
  std::set<std::string> tried_;
};

TEST_F(RefinementTest, NeighboursDifferByTheNextValueOfOneAxis) {
  EXPECT_THAT(
      around("mr16_nr32_kc256_splitm", next_value),
      UnorderedElementsAre("mr16_nr32_kc128_splitm", "mr16_nr32_kc512_splitm", "mr16_nr32_kc256_splitn",
                           "mr16_nr64_kc256_splitm", "mr32_nr32_kc256_splitm",
                           // nr 16 is possible beside mr 64 only.
                           "mr64_nr16_kc256_splitm"));
}

TEST_F(RefinementTest, AValueThatIsPossibleBesideAnotherOneOnlyTakesTheNearestOfThose) {
  // mr 32 has nr 32 only, and mr 64 is two steps away.
  const auto close = around("mr16_nr64_kc1024_splitm", next_value);
  EXPECT_THAT(close, Contains("mr32_nr32_kc1024_splitm"));
  EXPECT_EQ(close.count("mr64_nr16_kc1024_splitm"), 0U);
  EXPECT_EQ(close.count("mr32_nr32_kc512_splitm"), 0U) << "three settings differ";
}

TEST_F(RefinementTest, AnyValueReachesAllSingleDepartures) {
  const auto close = around("mr16_nr64_kc1024_splitm", any_value);
  EXPECT_THAT(close, Contains("mr16_nr64_kc128_splitm"));
  EXPECT_THAT(close, Contains("mr64_nr16_kc1024_splitm"));
  EXPECT_EQ(close.count("mr16_nr64_kc128_splitn"), 0U) << "two settings differ";
}

TEST_F(RefinementTest, TwoRunsThatFoundTwoOfManyEqualOnesKnowEachOthers) {
  const auto flat = [](const Config& config) { return config.number("kc") >= 512 ? 100.0 : 130.0; };
  const auto first = refine({"mr16_nr64_kc1024_splitm", "mr64_nr16_kc512_splitn"}, flat);
  for (SearchPoint& point : points_) point.samples.clear();
  const auto second = refine({"mr16_nr64_kc1024_splitm", "mr16_nr32_kc512_splitn"}, flat);
  const std::string usual = "mr16_nr64_kc1024_splitm";
  EXPECT_THAT(first, Contains(usual)) << "both walks end there";
  EXPECT_THAT(second, Contains(usual));
  for (const char* equal : {"mr16_nr32_kc1024_splitm", "mr32_nr32_kc1024_splitm", "mr16_nr64_kc512_splitm"}) {
    EXPECT_THAT(first, Contains(equal));
    EXPECT_THAT(second, Contains(equal));
  }
}

TEST_F(RefinementTest, WhatIsSlowerIsTriedOnceAndNotKept) {
  const auto only_default = [](const Config& config) {
    return config.text() == "mr16_nr64_kc1024_splitm" ? 100.0 : 150.0;
  };
  const auto found = refine({"mr16_nr64_kc1024_splitm"}, only_default);
  EXPECT_THAT(found, UnorderedElementsAre("mr16_nr64_kc1024_splitm"));
  EXPECT_THAT(tried_, Contains("mr16_nr64_kc128_splitm")) << "all around the default are tried";
  for (std::size_t i = 1; i < points_.size(); ++i) EXPECT_LE(points_[i].samples.size(), 1U) << text(i);
}

TEST_F(RefinementTest, FailedNeighboursAreNotAskedForAgain) {
  points_[at("mr16_nr64_kc512_splitm")].failed = true;
  refine({"mr16_nr64_kc1024_splitm"}, [](const Config&) { return 100.0; });
  EXPECT_EQ(tried_.count("mr16_nr64_kc512_splitm"), 0U);
}

}  // namespace
}  // namespace gemmtune
