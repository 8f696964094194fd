// What tuning is worth, said before: intervals that hold the gains of recorded spaces. On the recordings' clock.
#include "tuning/worth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "evaluate/replay/replay_evaluator.h"
#include "support/recorded_spaces.h"
#include "tuning/tuner.h"

namespace gemmtune::worth_test {
namespace {

TEST(ExpectedSpeedup, HoldsWhatWasSeenAndEndsAtTheRoof) {
  const ExpectedSpeedup seen = expected_speedup(1.5, Interval{1.4, 1.6}, 16, 1000, 0);
  EXPECT_GE(seen.speedup, 1.5);
  EXPECT_LE(seen.interval.low, 1.4 + 1e-9);
  EXPECT_GT(seen.interval.high, 1.6);
  const ExpectedSpeedup nothing = expected_speedup(1.0, {}, 16, 1000, 0.99);
  EXPECT_LT(nothing.interval.high, 1.05) << "the default reads the weight as fast as it can be read";
  EXPECT_EQ(expected_speedup(0.7, {}, 16, 16, 0).speedup, 1) << "all were tried, and the default stays";
  EXPECT_LT(expected_speedup(1, {}, 990, 1000, 0).interval.high,
            expected_speedup(1, {}, 16, 1000, 0).interval.high);
}

TEST(Worth, IsWeightedByCalls) {
  Worth worth;
  for (const double speedup : {1.0, 2.0}) {
    ShapeWorth& shape = worth.shapes.emplace_back();
    shape.shape.calls = speedup > 1 ? 1 : 9;
    shape.default_microseconds = 10;
    shape.speedup = speedup;
    shape.speedup_interval = {speedup, speedup};
  }
  worth.shapes.emplace_back().why_not = "not reached in the time";
  add_up(worth);
  EXPECT_EQ(worth.measured, 2U);
  EXPECT_NEAR(worth.default_microseconds, 100, 1e-9);
  EXPECT_NEAR(worth.saved_share, 0.05, 1e-9);
  EXPECT_NEAR(worth.saved_interval.low, 0.05, 1e-9);
  EXPECT_NEAR(worth.saved_interval.high, 0.05, 1e-9);
}

struct SilentObserver final : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
};

TuneRequest request_of(const testing::Recorded& recorded, const std::vector<std::size_t>& problems,
                       std::uint64_t seed) {
  TuneRequest request;
  request.policy.sample_microseconds = recorded.recording.run.policy.sample_microseconds;
  request.policy.seed = seed;
  request.confirmations = 1;
  for (const std::size_t i : problems) {
    request.shapes.emplace_back();
    request.shapes.back().problem = recorded.recording.problems[i].problem;
    request.shapes.back().calls = recorded.recording.problems[i].calls;
  }
  return request;
}

/// The speed-up of each problem in a whole run.
std::vector<double> tuned_speedups(testing::Recorded& recorded) {
  std::vector<std::size_t> all(recorded.recording.problems.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  TuneRequest request = request_of(recorded, all, 7);
  ReplayEvaluator evaluator(recorded.recording, 7, true);
  request.clock = [&] { return evaluator.seconds(); };
  SilentObserver observer;
  const auto summary = tune(recorded.device, evaluator, request, observer);
  EXPECT_TRUE(summary.ok()) << summary.message();
  std::vector<double> speedups;
  for (const ItemReport& report : summary->items)
    speedups.push_back(report.row() != nullptr ? report.row()->speedup.value_or(1) : 1);
  return speedups;
}

struct Case {
  std::string name;
  double truth = 0;
  Worth worth;
  bool holds() const {
    constexpr double rounding = 0.005;
    return worth.saved_interval.low - rounding <= truth && truth <= worth.saved_interval.high + rounding;
  }
};

Case case_of(testing::Recorded& recorded, const std::vector<double>& speedups,
             const std::vector<std::size_t>& problems, std::uint64_t seed) {
  TuneRequest request = request_of(recorded, problems, seed);
  ReplayEvaluator evaluator(recorded.recording, seed, true);
  request.clock = [&] { return evaluator.seconds(); };
  auto worth = estimate_worth(recorded.device, evaluator, request, 0, {});
  EXPECT_TRUE(worth.ok()) << worth.message();
  Case one{
      fmt::format("{} {}", recorded.recording.run.device.gfx, short_name(request.shapes.front().problem)), 0,
      std::move(*worth)};
  double after = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const ShapeWorth& shape = one.worth.shapes[i];
    const double speedup = speedups[problems[i]];
    after += static_cast<double>(std::max<std::int64_t>(1, shape.shape.calls)) * shape.default_microseconds /
             speedup;
    testing::say("rest {} {} {:.4f} {:.4f} {} {}", problems[i], one.name,
                 shape.default_microseconds / shape.best_microseconds, speedup, shape.tried, shape.expected);
  }
  one.truth = 1 - after / one.worth.default_microseconds;
  testing::say("{}: measured {:.3f}, expected {:.3f} ({:.3f} to {:.3f}){}", one.name, one.truth,
               one.worth.saved_share, one.worth.saved_interval.low, one.worth.saved_interval.high,
               one.holds() ? "" : "  OUT");
  return one;
}

/// Cases of two problems each. The constants of worth.cpp are quantiles over the problems of even index alone; `held_out`: those of
/// odd index.
std::vector<Case> recorded_cases(bool held_out) {
  std::vector<Case> cases;
  for (testing::RecordedList* list : {&testing::recordings(), &testing::gpu_recordings()}) {
    for (testing::Recorded& recorded : *list) {
      const std::vector<double> speedups = tuned_speedups(recorded);
      const std::size_t count = recorded.recording.problems.size();
      for (std::size_t i = held_out ? 1 : 0; i < count; i += 2)
        for (const std::uint64_t seed : {1, 2})
          cases.push_back(case_of(recorded, speedups, {i, (i + 2) % count}, seed));
    }
  }
  return cases;
}

/// Each held-out shape alone: cases that share nothing. GEMMTUNE_VERBOSE=1 prints what bench/results/worth.csv has.
TEST(RecordedWorth, NineOfTenIntervalsHoldTheGainOfAShapeThatNoConstantWasChosenBy) {
  std::vector<Case> cases;
  for (testing::RecordedList* list : {&testing::recordings(), &testing::gpu_recordings()}) {
    for (testing::Recorded& recorded : *list) {
      const std::vector<double> speedups = tuned_speedups(recorded);
      for (std::size_t i = 1; i < recorded.recording.problems.size(); i += 2) {
        const Case& one = cases.emplace_back(case_of(recorded, speedups, {i}, 3));
        const ShapeWorth& shape = one.worth.shapes.front();
        testing::say("worth.csv {},{},{},{},{:.4f},{:.4f},{:.4f},{:.4f},{}",
                     recorded.recording.run.device.gfx, print(shape.shape.problem), shape.tried,
                     shape.kernels, one.worth.saved_share, one.worth.saved_interval.low,
                     one.worth.saved_interval.high, one.truth, one.holds() ? "yes" : "no");
      }
    }
  }
  ASSERT_GE(cases.size(), 10U);
  const auto held = std::ranges::count_if(cases, &Case::holds);
  EXPECT_GE(10 * held, static_cast<std::int64_t>(9 * cases.size())) << held << " of " << cases.size();
}

TEST(RecordedWorth, NineOfTenIntervalsHoldTheGainOfHeldOutShapes) {
  const std::vector<Case> cases = recorded_cases(true);
  ASSERT_GE(cases.size(), 20U);
  const auto held = std::ranges::count_if(cases, &Case::holds);
  EXPECT_GE(10 * held, static_cast<std::int64_t>(9 * cases.size())) << held << " of " << cases.size();
  double width = 0;
  for (const Case& one : cases) width += one.worth.saved_interval.high - one.worth.saved_interval.low;
  EXPECT_LT(width / static_cast<double>(cases.size()), 0.2)
      << "an interval of everything would hold all gains";
}

TEST(RecordedWorth, HoldsOnTheShapesThatItWasFittedTo) {
  const std::vector<Case> cases = recorded_cases(false);
  const auto held = std::ranges::count_if(cases, &Case::holds);
  EXPECT_GE(10 * held, static_cast<std::int64_t>(9 * cases.size())) << held << " of " << cases.size();
}

}  // namespace
}  // namespace gemmtune::worth_test
