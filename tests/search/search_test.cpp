// Every strategy on tiny spaces whose best candidate is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "search/strategy.h"

namespace gemmtune {
namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

/// A space of two families over a smooth cost with one best point (of family fast: best % 3 != 0), and what
/// was asked of it.
struct TinySpace {
  std::vector<SearchPoint> points;
  std::vector<double> cost;
  std::vector<std::size_t> asked;  // in order, with repetitions
  double seconds_per_sample = 0;
  double seconds_left = endless;

  explicit TinySpace(std::size_t count, std::size_t best) {
    for (std::size_t i = 0; i < count; ++i) {
      SearchPoint point;
      point.candidate.family = i % 3 == 0 ? "slow" : "fast";
      point.candidate.config.set("kc", static_cast<std::int64_t>(i));
      points.push_back(point);
      const double distance = std::abs(static_cast<double>(i) - static_cast<double>(best));
      cost.push_back(10 + distance + (i % 3 == 0 ? 40 : 0));
    }
  }

  /// Runs the whole search. Samples carry a small deterministic ripple. Answers the index of the smallest
  /// sample.
  std::size_t search(Strategy& strategy, const std::set<std::size_t>& failing = {}) {
    for (int steps = 0; steps < 1000; ++steps) {
      const SearchStep step = strategy.next(points, seconds_left);
      if (step.candidates.empty()) return best();
      for (const std::size_t i : step.candidates) {
        asked.push_back(i);
        seconds_left -= seconds_per_sample * step.samples;
        if (failing.contains(i)) {
          points[i].failed = true;
          continue;
        }
        for (int s = 0; s < step.samples; ++s) {
          points[i].samples.push_back(cost[i] *
                                      (1 + 0.001 * static_cast<double>(points[i].samples.size() % 3)));
        }
      }
    }
    ADD_FAILURE() << "the search does not end";
    return 0;
  }

  std::size_t best() const {
    std::size_t found = points.size();
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].failed || points[i].samples.empty()) continue;
      if (found == points.size() || points[i].samples[0] < points[found].samples[0]) found = i;
    }
    return found;
  }
};

class EveryStrategy : public ::testing::TestWithParam<const StrategyInfo*> {
 protected:
  std::unique_ptr<Strategy> make(std::uint64_t seed = 1) {
    SearchLimits limits;
    limits.seed = seed;
    return GetParam()->make(limits);
  }
};

std::vector<const StrategyInfo*> strategies() {
  std::vector<const StrategyInfo*> list;
  for (const StrategyInfo& info : all_strategies()) list.push_back(&info);
  return list;
}

INSTANTIATE_TEST_SUITE_P(All, EveryStrategy, ::testing::ValuesIn(strategies()),
                         [](const auto& instance) { return std::string(instance.param->name); });

TEST_P(EveryStrategy, FindsTheKnownBest) {
  for (const std::size_t best : {1U, 37U, 50U, 98U}) {
    TinySpace space(100, best);
    EXPECT_EQ(space.search(*make()), best);
    EXPECT_GE(space.points[best].samples.size(), 3U) << "the best has all its screening samples";
  }
}

TEST_P(EveryStrategy, AsksTheSameForTheSameSeed) {
  TinySpace first(60, 20);
  TinySpace second(60, 20);
  first.search(*make(7));
  second.search(*make(7));
  EXPECT_EQ(first.asked, second.asked);
}

TEST_P(EveryStrategy, NeverRepeatsAFailedPoint) {
  TinySpace space(50, 20);
  const std::set<std::size_t> failing{20, 21, 3, 49};
  EXPECT_EQ(space.search(*make(), failing), 19U);
  for (const std::size_t i : failing)
    EXPECT_EQ(std::count(space.asked.begin(), space.asked.end(), i), 1) << i;
}

TEST_P(EveryStrategy, LeavesOutPointsThatFailedBefore) {
  TinySpace space(50, 20);
  space.points[20].failed = true;
  space.search(*make());
  EXPECT_EQ(std::count(space.asked.begin(), space.asked.end(), 20U), 0);
}

TEST_P(EveryStrategy, EndsWhenTheTimeIsOver) {
  TinySpace space(1000, 500);
  space.seconds_per_sample = 0.01;
  space.seconds_left = 1;  // for 100 samples of at least 1000
  space.search(*make());
  EXPECT_GE(space.asked.size(), 20U);
  EXPECT_LE(space.asked.size(), 150U);
  EXPECT_TRUE(make()->next(TinySpace(10, 3).points, 0).candidates.empty()) << "no time at all";
}

TEST_P(EveryStrategy, EndsWhenNothingIsMeasured) {
  TinySpace space(40, 3);
  auto strategy = make();
  int steps = 0;
  while (!strategy->next(space.points, endless).candidates.empty()) ASSERT_LT(++steps, 50);
}

TEST_P(EveryStrategy, TakesAnEmptySpaceAndOnePoint) {
  EXPECT_TRUE(make()->next({}, endless).candidates.empty());
  TinySpace one(1, 0);
  EXPECT_EQ(one.search(*make()), 0U);
}

std::unique_ptr<Strategy> staged() { return make_strategy("staged", {}).value(); }

TEST(Staged, BeginsWithHintsThenDefaultsThenTheBestPredicted) {
  TinySpace space(9, 1);  // 0, 3, 6: family slow; the rest: fast
  for (std::size_t i = 0; i < 9; ++i) space.points[i].predicted = 100 - static_cast<double>(i);
  space.points[8].predicted = 0;  // no opinion: last of its family
  space.points[2].hint = 2;
  space.points[5].hint = 1;
  const SearchStep step = staged()->next(space.points, endless);
  EXPECT_THAT(step.candidates, ::testing::ElementsAre(5, 2, 0, 1, 6, 7, 3, 4, 8));
  EXPECT_EQ(step.samples, 1);
}

TEST(Staged, AWrongHintCostsOneTry) {
  TinySpace space(300, 200);
  space.points[1].hint = 1;
  EXPECT_EQ(space.search(*staged()), 200U);
  EXPECT_EQ(space.asked.front(), 1U);
}

TEST(Staged, ABudgetStarvesNoFamily) {
  TinySpace space(3000, 1500);
  for (std::size_t i = 0; i < 3000; ++i) {
    if (i >= 2990) space.points[i].candidate.family = "late";
    space.points[i].predicted = i >= 2990 ? 1e6 : 1;  // the model thinks little of it
  }
  space.seconds_per_sample = 0.01;
  space.seconds_left = 1;
  space.search(*staged());
  std::map<std::string, int> measured;
  for (const SearchPoint& point : space.points) measured[point.candidate.family] += !point.samples.empty();
  for (const char* family : {"late", "slow", "fast"}) EXPECT_GE(measured[family], 4) << family;
}

TEST(Staged, LooksAtFewOfALargeSpaceAndTakesMoreSamplesOfTheBest) {
  TinySpace space(2000, 1001);
  EXPECT_NEAR(static_cast<double>(space.search(*staged())), 1001, 20) << "2 % slower at most";
  std::size_t looked_at = 0;
  std::size_t total = 0;
  for (const SearchPoint& point : space.points) {
    looked_at += point.samples.empty() ? 0 : 1;
    total += point.samples.size();
  }
  EXPECT_LE(looked_at, expected_trials("staged", 2000));
  EXPECT_LE(total, looked_at + 80);
  EXPECT_EQ(space.points[space.best()].samples.size(), 6U) << "twice the usual number";
}

TEST(Staged, NamesAheadWhatItAsksForLater) {
  TinySpace space(600, 301);
  auto strategy = staged();
  std::set<std::size_t> named;
  int explored = 0;
  int foreseen = 0;
  for (SearchStep step = strategy->next(space.points, endless); !step.candidates.empty();
       step = strategy->next(space.points, endless)) {
    const bool exploring = step.candidates.size() == 1 && space.points[step.candidates[0]].samples.empty();
    if (exploring && !named.empty()) {
      ++explored;
      foreseen += named.contains(step.candidates[0]) ? 1 : 0;
    }
    const auto likely = strategy->likely_next(space.points);
    EXPECT_LE(likely.size(), 16U);
    for (const std::size_t i : likely) EXPECT_TRUE(space.points[i].samples.empty()) << i;
    named.insert(likely.begin(), likely.end());
    for (const std::size_t i : step.candidates)
      space.points[i].samples.insert(space.points[i].samples.end(), static_cast<std::size_t>(step.samples),
                                     space.cost[i]);
  }
  EXPECT_GE(explored, 20);
  EXPECT_GE(foreseen, explored / 2);
}

TEST(Staged, MeasuresASmallSpaceWhole) {
  TinySpace space(60, 20);
  space.search(*staged());
  for (std::size_t i = 0; i < 60; ++i) EXPECT_GE(space.points[i].samples.size(), 1U) << i;
}

TEST(Staged, KeepsTheBestOfEachFamilyToTheEnd) {
  TinySpace space(100, 50);  // family slow is 4 times slower
  space.search(*staged());
  std::size_t most = 0;
  for (std::size_t i = 0; i < 100; i += 3) most = std::max(most, space.points[i].samples.size());
  EXPECT_GE(most, 3U);
}

TEST(TwoPhase, TakesOneSampleOfAllThenMoreOfTheBestTwenty) {
  TinySpace space(300, 100);
  auto strategy = make_strategy("two_phase", {}).value();
  EXPECT_EQ(space.search(*strategy), 100U);
  std::map<std::size_t, int> counts;
  for (const SearchPoint& point : space.points) ++counts[point.samples.size()];
  EXPECT_THAT(counts, ::testing::ElementsAre(::testing::Pair(1U, 280), ::testing::Pair(3U, 20)));
}

TEST(Random, AnotherSeedAsksInAnotherOrder) {
  SearchLimits one;
  SearchLimits two;
  two.seed = 2;
  const TinySpace space(50, 3);
  EXPECT_NE((*make_strategy("random", one))->next(space.points, endless).candidates,
            (*make_strategy("random", two))->next(space.points, endless).candidates);
}

TEST(MakeStrategy, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const auto strategy = make_strategy("genetic", {});
  ASSERT_FALSE(strategy.ok());
  std::string known;
  for (const StrategyInfo& info : all_strategies())
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  EXPECT_EQ(strategy.message(), "search strategy 'genetic', expected one of " + known);
}

}  // namespace
}  // namespace gemmtune
