// What the search promises, on recorded spaces of a CPU (tests/data/recordings/README.md): how good the found
// candidate is, after how much of the exhaustive search's measuring time; that two runs agree; that the estimate of
// the remaining time is honest. "True" times are medians of all recorded samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "measure/statistics.h"
#include "tuning/problem_search.h"
#include "tuning/replay_device.h"
#include "tuning/replay_evaluator.h"
#include "tuning/time_estimate.h"
#include "tuning/transfer.h"

namespace gemmtune {
namespace {

constexpr std::size_t least_candidates = 500;

const std::vector<Recording>& recordings() {
  static const std::vector<Recording> all = [] {
    std::vector<std::string> paths;
    for (const auto& file : std::filesystem::directory_iterator(GEMMTUNE_TEST_DATA "/recordings")) {
      if (file.path().extension() == ".jsonl") paths.push_back(file.path());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<Recording> read;
    for (const std::string& path : paths) {
      auto recording = read_recording(path);
      EXPECT_TRUE(recording.ok()) << recording.message();
      if (recording.ok()) read.push_back(std::move(*recording));
    }
    return read;
  }();
  return all;
}

std::map<std::string, double> true_times(const RecordedProblem& problem) {
  std::map<std::string, std::vector<double>> samples;
  for (const RecordedScreening& call : problem.screenings) {
    auto& of = samples[call.candidate];
    of.insert(of.end(), call.outcome.microseconds.begin(), call.outcome.microseconds.end());
  }
  std::map<std::string, double> times;
  for (const auto& [name, values] : samples) {
    if (!values.empty()) times[name] = median(values);
  }
  return times;
}

double fastest(const std::map<std::string, double>& times) {
  double least = INFINITY;
  for (const auto& [name, time] : times) least = std::min(least, time);
  return least;
}

struct Searched {
  double seconds = 0;
  double quality = 0;  // the true best time over the found candidate's true time
  std::size_t candidates = 0;
  Candidate found;
};

/// One search without finals. `hints` as the tuner gives them; `budget` in seconds of the replay's clock.
Searched search(const Recording& recording, const RecordedProblem& record, const std::string& strategy,
                std::uint64_t seed, const std::vector<Candidate>& hints = {}, double budget = INFINITY) {
  ReplayDevice device(recording);
  ReplayEvaluator evaluator(recording, seed, true);
  CandidateList list = list_candidates(device, record.problem, {});
  mark_hints(hints, list.candidates);
  SearchLimits limits;
  limits.seed = seed;
  auto made = make_strategy(strategy, limits);
  const auto clock = [&] { return evaluator.seconds(); };
  const auto trials = search_problem(record.problem, list.candidates, evaluator, **made,
                                     Deadline::in(budget, clock), [](const Trial&) {});
  EXPECT_TRUE(trials.ok()) << trials.message();
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
  result.quality = fastest(truth) / truth.at(result.found.kernel_name());
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
  for (const Recording& recording : recordings()) {
    EXPECT_EQ(recording.damaged_lines, 0U);
    for (const RecordedProblem& problem : recording.problems)
      large += true_times(problem).size() >= least_candidates ? 1 : 0;
  }
  EXPECT_GE(large, 10U);
}

TEST(StagedSearch, FindsWhatTheExhaustiveFindsInATenthOfItsTime) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Bars staged;
    Bars exhaustive;
    for (const Recording& recording : recordings()) {
      Transfer transfer;
      for (const RecordedProblem& problem : recording.problems) {
        const Searched all = search(recording, problem, "exhaustive", seed);
        const Searched few =
            search(recording, problem, "staged", seed, transfer.winners_near(problem.problem));
        transfer.learn(problem.problem, few.found);
        exhaustive.add(all);
        staged.add(few);
        if (std::getenv("GEMMTUNE_VERBOSE") != nullptr) {
          fmt::print("{} seed {}: {} of {} candidates, {:.3f} of the time ({:.2f} s), quality {:.4f} (all {:.4f}) {}\n",
                     print(problem.problem), seed, few.candidates, all.candidates, few.seconds / all.seconds,
                     all.seconds, few.quality, all.quality, few.found.kernel_name());
        }
      }
    }
    if (std::getenv("GEMMTUNE_VERBOSE") != nullptr)
      fmt::print("seed {}: mean {:.4f} worst {:.4f} time {:.4f}; exhaustive mean {:.4f} worst {:.4f}\n", seed,
                 staged.mean(), staged.worst, staged.seconds / exhaustive.seconds, exhaustive.mean(),
                 exhaustive.worst);
    EXPECT_GE(staged.mean(), 0.98) << "seed " << seed;
    EXPECT_GE(staged.worst, 0.95) << "seed " << seed;
    EXPECT_LE(staged.seconds, 0.10 * exhaustive.seconds) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gemmtune
