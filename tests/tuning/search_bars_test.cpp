// What the search promises, on recorded spaces of a CPU (tests/data/recordings/README.md): how good the found
// candidate is, after how much of the exhaustive search's measuring time; that two runs agree; that the
// estimate of the remaining time is honest. "True" times are medians of all recorded samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "evaluate/replay/replay_evaluator.h"
#include "measure/statistics.h"
#include "support/recorded_spaces.h"
#include "tuning/problem_search.h"
#include "tuning/problem_tuner.h"
#include "tuning/time_estimate.h"
#include "tuning/transfer.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

using testing::fastest;
using testing::gpu_recordings;
using testing::Recorded;
using testing::RecordedList;
using testing::recordings;
using testing::say;
using testing::seeds;
using testing::true_times;

constexpr std::size_t min_candidates = 500;

/// The problems of tests/data/recordings/held_out.
const std::set<std::string>& held_out() {
  static const std::set<std::string> problems = [] {
    std::set<std::string> listed;
    const auto text = read_file(GEMMTUNE_TEST_DATA "/recordings/held_out");
    EXPECT_TRUE(text.ok()) << text.message();
    if (!text.ok()) return listed;
    for (const std::string_view line : split(*text, '\n')) {
      if (!trim(line).empty() && line.front() != '#') listed.emplace(trim(line));
    }
    return listed;
  }();
  return problems;
}

bool is_held_out(const RecordedProblem& problem) { return held_out().contains(print(problem.problem)); }

struct Searched {
  double seconds = 0;
  double quality = 0;  // the true best time over the found candidate's true time
  std::size_t candidates = 0;
  Candidate found;
};

/// One search without finals. `hints` as the tuner gives them; `budget` in seconds of the replay's clock.
Searched search(const Recorded& recorded, const RecordedProblem& record, const std::string& strategy,
                std::uint64_t seed, const std::vector<std::string>& hints = {}, double budget = INFINITY,
                const CandidateFilter& filter = {}) {
  ReplayEvaluator evaluator(recorded.recording, seed, true);
  CandidateList list = list_candidates(recorded.device, record.problem, filter);
  mark_hints(candidates_named(hints, recorded.device, record.problem), list.candidates);
  SearchLimits limits;
  limits.seed = seed;
  auto made = make_strategy(strategy, limits);
  const auto clock = [&] { return evaluator.seconds(); };
  const auto searched = search_problem(record.problem, list.candidates, evaluator, **made,
                                       {Deadline::in(budget, clock)}, {[](const Trial&) {}});
  EXPECT_TRUE(searched.ok()) << searched.message();
  const std::vector<Trial>* const trials = &searched->trials;
  Searched result;
  result.seconds = evaluator.seconds();
  result.candidates = trials->size();
  std::size_t most = 0;
  for (const Trial& trial : *trials) most = std::max(most, trial.outcome.microseconds.size());
  double least = INFINITY;
  const auto truth = true_times(record);
  for (const Trial& trial : *trials) {
    if (trial.outcome.microseconds.size() < most) continue;
    const double time = median(trial.outcome.microseconds);
    if (time >= least) continue;
    least = time;
    result.found = trial.candidate;
  }
  // A recording also holds what this search may not try: dependent launches, or all but these.
  std::map<std::string, double> listed;
  for (const ListedCandidate& one : list.candidates) {
    const auto known = truth.find(one.candidate.kernel_name());
    if (known != truth.end()) listed.insert(*known);
  }
  result.quality = fastest(listed) / truth.at(result.found.kernel_name());
  return result;
}

struct Bars {
  double logarithms = 0;
  double worst = 1;
  double seconds = 0;
  int count = 0;
  void add(const Searched& searched) {
    logarithms += std::log(searched.quality);
    worst = std::min(worst, searched.quality);
    seconds += searched.seconds;
    ++count;
  }
  double mean() const { return std::exp(logarithms / count); }
};

TEST(RecordedSpaces, AreTenShapesOfFiveHundredCandidates) {
  std::size_t large = 0;
  for (const Recorded& recorded : recordings()) {
    EXPECT_EQ(recorded.recording.damaged_lines, 0U);
    for (const RecordedProblem& problem : recorded.recording.problems)
      large += true_times(problem).size() >= min_candidates ? 1 : 0;
  }
  EXPECT_GE(large, 10U);
}

TEST(RecordedSpaces, TwoOfEachMachineAreHeldOut) {
  std::size_t found = 0;
  for (RecordedList* list : {&recordings(), &gpu_recordings()}) {
    for (const Recorded& recorded : *list) {
      const auto& problems = recorded.recording.problems;
      const auto held = std::count_if(problems.begin(), problems.end(), is_held_out);
      EXPECT_EQ(held, 2) << recorded.recording.run.device.model;
      found += static_cast<std::size_t>(held);
    }
  }
  EXPECT_EQ(found, held_out().size()) << "a line of held_out that is no recorded problem";
}

void say(const Searched& few, const Searched& all, const Problem& problem, std::uint64_t seed) {
  say("{} seed {}: {} of {} candidates, {:.3f} of {:.2f} s, quality {:.4f} (all {:.4f}) {}", print(problem),
      seed, few.candidates, all.candidates, few.seconds / all.seconds, all.seconds, few.quality, all.quality,
      few.found.kernel_name());
}

/// One strategy against another one, of the spaces that constants may be chosen by or of those held out.
struct Compared {
  Bars staged;
  Bars exhaustive;
  void say(std::string_view which) const {
    testing::say("{}: mean {:.4f} worst {:.4f} time {:.4f}; exhaustive mean {:.4f} worst {:.4f}", which,
                 staged.mean(), staged.worst, staged.seconds / exhaustive.seconds, exhaustive.mean(),
                 exhaustive.worst);
  }
};

TEST(StagedSearch, FindsWhatTheExhaustiveFindsInATenthOfItsTime) {
  for (const std::uint64_t seed : seeds({1, 2, 3}, 1)) {
    std::map<bool, Compared> compared;  // by: held out
    for (const Recorded& recorded : recordings()) {
      Transfer transfer;
      for (const RecordedProblem& problem : recorded.recording.problems) {
        const Searched all = search(recorded, problem, "exhaustive", seed);
        const Searched few =
            search(recorded, problem, "staged", seed, transfer.winners_near(problem.problem));
        transfer.learn(problem.problem, few.found.kernel_name());
        compared[is_held_out(problem)].exhaustive.add(all);
        compared[is_held_out(problem)].staged.add(few);
        say(few, all, problem.problem, seed);
      }
    }
    for (const auto& [held, of] : compared) {
      const std::string which = fmt::format("{}, seed {}", held ? "held out" : "known", seed);
      of.say(which);
      EXPECT_GE(of.staged.mean(), 0.98) << which;
      EXPECT_GE(of.staged.worst, 0.95) << which;
      EXPECT_LE(of.staged.seconds, 0.10 * of.exhaustive.seconds) << which;
    }
  }
}

/// On a GPU spaces have 80 to 440 plain candidates, of which `staged` measures at least 60, however few there
/// are: small spaces have no time to win.
constexpr std::size_t many_gpu_candidates = 150;

TEST(GpuSpaces, StagedFindsWhatTheExhaustiveFinds) {
  for (const bool dependent : {false, true}) {
    CandidateFilter filter;
    filter.dependent = dependent;
    std::map<bool, Compared> compared;  // by: held out
    Compared large;                     // both
    for (const Recorded& recorded : gpu_recordings()) {
      EXPECT_EQ(recorded.recording.damaged_lines, 0U);
      for (const RecordedProblem& problem : recorded.recording.problems) {
        for (const std::uint64_t seed : {1, 2, 3}) {
          const Searched all = search(recorded, problem, "exhaustive", seed, {}, INFINITY, filter);
          const Searched few = search(recorded, problem, "staged", seed, {}, INFINITY, filter);
          compared[is_held_out(problem)].exhaustive.add(all);
          compared[is_held_out(problem)].staged.add(few);
          if (all.candidates > many_gpu_candidates) {
            large.exhaustive.add(all);
            large.staged.add(few);
          }
          say(few, all, problem.problem, seed);
        }
      }
    }
    int count = 0;
    for (const auto& [held, of] : compared) {
      const std::string which = fmt::format("{}, dependent {}", held ? "held out" : "known", dependent);
      of.say(which);
      EXPECT_GE(of.staged.mean(), 0.995) << which;
      EXPECT_GE(of.staged.worst, 0.98) << which;
      count += of.staged.count;
    }
    EXPECT_GE(count, 36);
    EXPECT_GT(large.exhaustive.seconds, 0);
    EXPECT_LE(large.staged.seconds, 0.40 * large.exhaustive.seconds);
  }
}

TEST(StagedSearch, BeatsRandomAtEqualTime) {
  Bars staged;
  Bars random;
  for (const Recorded& recorded : recordings()) {
    for (const RecordedProblem& problem : recorded.recording.problems) {
      for (const std::uint64_t seed : seeds({1, 2}, 1)) {
        const Searched few = search(recorded, problem, "staged", seed);
        staged.add(few);
        random.add(search(recorded, problem, "random", seed, {}, few.seconds));
      }
    }
  }
  say("staged without hints: mean {:.4f} worst {:.4f}; random in the same time: mean {:.4f} worst {:.4f}",
      staged.mean(), staged.worst, random.mean(), random.worst);
  EXPECT_GT(staged.mean(), random.mean() + 0.02);
  EXPECT_GT(staged.worst, random.worst);
}

/// A run's winner, and what it knew of another run's.
std::string beside(const ProblemResult& run, const Settled& settled, const std::string& other) {
  std::string text =
      fmt::format("{} {:.2f} ({}, noise floor {:.3f}, {} ties)", settled.winner->candidate.kernel_name(),
                  settled.microseconds, to_string(settled.verdict), settled.noise_floor, settled.ties.size());
  const bool tie = std::count(settled.ties.begin(), settled.ties.end(), other) > 0;
  for (const Trial& trial : run.trials) {
    if (trial.candidate.kernel_name() != other || trial.outcome.microseconds.empty()) continue;
    return text + fmt::format(", the other {:.2f} of {} samples, {}", median(trial.outcome.microseconds),
                              trial.outcome.microseconds.size(), tie ? "a tie" : "no tie");
  }
  return text + ", the other never tried";
}

/// Two runs agree where the names are equal or each stands in the other's tie set. In these recordings dozens
/// of candidates are within the noise of the fastest.
TEST(StagedSearch, TwoRunsNameTheSameWinner) {
  const auto all_seeds = seeds({1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}, 2);
  int pairs = 0;
  int same = 0;
  int as_fast = 0;
  double max_apart = 0;
  for (const Recorded& recorded : recordings()) {
    TuneRequest request;
    request.strategy = "staged";
    for (const RecordedProblem& problem : recorded.recording.problems) {
      const auto truth = true_times(problem);
      const auto run = [&](std::uint64_t seed) {
        ReplayEvaluator evaluator(recorded.recording, seed, true);
        request.policy.seed = seed;
        const Deadline never = Deadline::never([&] { return evaluator.seconds(); });
        return tune_problem(recorded.device, evaluator, request, problem.problem, std::nullopt,
                            TuningVisit(never), {[](const Trial&) {}});
      };
      for (const std::uint64_t seed : all_seeds) {
        const ProblemResult first = run(seed);
        const ProblemResult second = run(seed + 100);
        ASSERT_EQ(first.layouts.size(), second.layouts.size());
        for (std::size_t i = 0; i < first.layouts.size(); ++i) {
          const Settled& a = first.layouts[i].settled;
          const Settled& b = second.layouts[i].settled;
          const std::string name_a = a.winner->candidate.kernel_name();
          const std::string name_b = b.winner->candidate.kernel_name();
          const bool tied = std::count(a.ties.begin(), a.ties.end(), name_b) > 0 &&
                            std::count(b.ties.begin(), b.ties.end(), name_a) > 0;
          ++pairs;
          same += name_a == name_b || tied ? 1 : 0;
          const double apart = std::abs(std::log(truth.at(name_a) / truth.at(name_b)));
          as_fast += apart <= 0.05 ? 1 : 0;
          max_apart = std::max(max_apart, apart);
          if (name_a != name_b && !tied)
            say("{} seed {}: {} | {}", print(problem.problem), seed, beside(first, a, name_b),
                beside(second, b, name_a));
        }
      }
    }
  }
  say("same winner: {} of {}; within 5 %: {}, most apart {:.3f}", same, pairs, as_fast, max_apart);
  EXPECT_GE(pairs, 18 * static_cast<int>(all_seeds.size()));
  EXPECT_GE(same, 0.99 * pairs);
  EXPECT_GE(as_fast, 0.95 * pairs);
}

/// What was thought to be left when each shape ended.
struct EstimateObserver final : RunObserver {
  EstimateObserver(const Device& device, const TuneRequest& request) : estimate(device, request) {}
  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override {
    estimate.begin(waiting, evaluators);
  }
  void problem_started(std::size_t index, std::size_t, const ShapeRow&) override { estimate.started(index); }
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t index, const ItemReport& report) override {
    estimate.done(index, report.seconds);
    gone += report.seconds;
    estimates.emplace_back(gone, estimate.remaining().value_or(-1));
  }
  RunEstimate estimate;
  double gone = 0;
  std::vector<std::pair<double, double>> estimates;  // seconds gone, seconds that were thought to be left
};

TEST(RemainingTime, IsWithinAQuarterAfterTheFirstTenth) {
  for (const std::string strategy : {"staged", "exhaustive"}) {
    for (Recorded& recorded : recordings()) {
      ReplayEvaluator evaluator(recorded.recording, 1, true);
      TuneRequest request;
      request.strategy = strategy;
      request.clock = [&] { return evaluator.seconds(); };
      for (const RecordedProblem& problem : recorded.recording.problems) {
        request.shapes.emplace_back();
        request.shapes.back().problem = problem.problem;
      }
      EstimateObserver observer(recorded.device, request);
      ASSERT_TRUE(tune(recorded.device, evaluator, request, observer).ok());
      const auto after_a_tenth =
          std::find_if(observer.estimates.begin(), observer.estimates.end(),
                       [&](const auto& at) { return at.first >= 0.1 * observer.gone; });
      ASSERT_NE(after_a_tenth, observer.estimates.end());
      const double left = observer.gone - after_a_tenth->first;
      say("{}: after {:.1f} of {:.1f} s, thought {:.1f} left, were {:.1f}", strategy, after_a_tenth->first,
          observer.gone, after_a_tenth->second, left);
      EXPECT_NEAR(after_a_tenth->second, left, 0.25 * left) << strategy;
    }
  }
}

double rank_correlation(std::vector<double> a, std::vector<double> b) {
  const auto ranks = [](std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
    std::vector<double> rank(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
    values = std::move(rank);
  };
  ranks(a);
  ranks(b);
  const double middle = static_cast<double>(a.size() - 1) / 2;
  double covariance = 0;
  double variance = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    covariance += (a[i] - middle) * (b[i] - middle);
    variance += (a[i] - middle) * (a[i] - middle);
  }
  return covariance / variance;
}

/// The recorded predictions are those of the families' cost models (`record_spaces --repredict` renews them).
TEST(CostModels, RankTheRecordedSpaces) {
  std::map<std::string, std::vector<double>> correlations;
  for (const Recorded& recorded : recordings()) {
    for (const RecordedProblem& problem : recorded.recording.problems) {
      const auto truth = true_times(problem);
      for (const RecordedSpace& space : problem.spaces) {
        std::vector<double> predicted;
        std::vector<double> measured;
        for (const RecordedConfig& config : space.configs) {
          const auto time = truth.find(config.kernel_name);
          if (time == truth.end()) continue;
          predicted.push_back(config.predicted);
          measured.push_back(time->second);
        }
        if (measured.size() < 100) continue;
        correlations[space.family].push_back(rank_correlation(predicted, measured));
      }
    }
  }
  for (auto& [family, values] : correlations) {
    say("{}: rank correlation {:.2f} in the median, least {:.2f}", family, median(values),
        *std::min_element(values.begin(), values.end()));
    EXPECT_GE(median(values), 0.7) << family;
    EXPECT_GE(*std::min_element(values.begin(), values.end()), 0.35) << family;
  }
  EXPECT_GE(correlations.size(), 2U);
}

}  // namespace
}  // namespace gemmtune
