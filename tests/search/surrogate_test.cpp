// What the staged search learns from: settings as places on axes, and the surrogate over them.
#include "search/surrogate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "search/settings_grid.h"

namespace gemmtune {
namespace {

SearchPoint point(std::int64_t kc, const std::string& split) {
  SearchPoint made;
  made.candidate.family = "tiled";
  made.candidate.config.set("isa", std::string("avx2"));
  made.candidate.config.set("kc", kc);
  made.candidate.config.set("split", split);
  return made;
}

std::vector<std::size_t> all(std::span<const SearchPoint> points) {
  std::vector<std::size_t> members(points.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  return members;
}

TEST(SettingsGrid, NumbersLieInOrderAndWordsHaveNone) {
  const std::vector<SearchPoint> points = {point(1024, "m"), point(256, "n"), point(512, "mn"),
                                           point(256, "m")};
  const auto members = all(points);
  const SettingsGrid grid(points, members);
  ASSERT_EQ(grid.axes(), 2U) << "isa is the same everywhere";
  EXPECT_DOUBLE_EQ(grid.distance(0, 0, 1), 1) << "1024 and 256 are the ends";
  EXPECT_DOUBLE_EQ(grid.distance(0, 0, 2), 0.5) << "one step of two";
  EXPECT_DOUBLE_EQ(grid.distance(0, 1, 3), 0);
  EXPECT_DOUBLE_EQ(grid.distance(1, 0, 1), 1);
  EXPECT_DOUBLE_EQ(grid.distance(1, 0, 3), 0);
}

TEST(SettingsGrid, OneCandidateHasNoAxes) {
  const std::vector<SearchPoint> points = {point(256, "n")};
  const auto members = all(points);
  EXPECT_EQ(SettingsGrid(points, members).axes(), 0U);
}

/// kc 1 … 16, split a or b.
struct TwoAxes {
  std::vector<SearchPoint> points;
  std::vector<std::size_t> members;
  TwoAxes() {
    for (const char* split : {"a", "b"}) {
      for (std::int64_t kc = 1; kc <= 16; ++kc) points.push_back(point(kc, split));
    }
    members = all(points);
  }
  static double time(std::size_t i) {
    return 100 * (1 + 0.02 * std::abs(static_cast<double>(i % 16) - 5)) * (i < 16 ? 1 : 1.3);
  }
};

TEST(Surrogate, LearnsEffectsOfSingleParametersAndCarriesThemOver) {
  const TwoAxes space;
  const SettingsGrid grid(space.points, space.members);
  Surrogate surrogate(grid, std::vector<double>(32, 0));
  for (const std::size_t i : {0U, 3U, 5U, 9U, 15U, 16U, 21U}) surrogate.observe(i, TwoAxes::time(i));
  const auto believed = [&](std::size_t i) { return std::exp(surrogate.belief(i).mean); };
  EXPECT_NEAR(believed(5), TwoAxes::time(5), 4) << "what was measured is believed";
  EXPECT_NEAR(believed(12), TwoAxes::time(12), 5) << "between two that were measured";
  EXPECT_GT(believed(31), 1.05 * believed(15)) << "split b, kc 16: neither was measured with the other";
  EXPECT_LT(believed(20), believed(28));
  EXPECT_LT(surrogate.belief(5).deviation, surrogate.belief(12).deviation);
  EXPECT_LT(surrogate.belief(12).deviation, surrogate.belief(28).deviation);
}

TEST(Surrogate, BelievesTheCostModelUntilTimesSayOtherwise) {
  const TwoAxes space;
  std::vector<double> predicted;
  for (std::size_t i = 0; i < 32; ++i) predicted.push_back(TwoAxes::time(i) / 3);
  const SettingsGrid grid(space.points, space.members);
  Surrogate surrogate(grid, predicted);
  surrogate.observe(0, TwoAxes::time(0));
  for (const std::size_t i : {5U, 15U, 31U}) {
    EXPECT_NEAR(std::exp(surrogate.belief(i).mean), TwoAxes::time(i), 0.1) << "right but for its unit";
  }
  surrogate.observe(16, TwoAxes::time(0));  // split b is no slower after all
  EXPECT_LT(std::exp(surrogate.belief(31).mean), 0.93 * TwoAxes::time(31));
}

TEST(Surrogate, RepeatedObservationsAreAveraged) {
  const TwoAxes space;
  const SettingsGrid grid(space.points, space.members);
  Surrogate surrogate(grid, std::vector<double>(32, 0));
  surrogate.observe(3, 100);
  const double once = surrogate.belief(3).deviation;
  surrogate.observe(3, 104);
  EXPECT_NEAR(std::exp(surrogate.belief(3).mean), 102, 0.3);
  EXPECT_LT(surrogate.belief(3).deviation / once, 1.1) << "two samples that differ are not worse than one";
}

}  // namespace
}  // namespace gemmtune
