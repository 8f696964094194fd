// Budgets: which problem is worked on next, and what is left of a result where the time is short. On recorded
// spaces the clock is the recording's.
#include "tuning/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "evaluate/replay/replay_evaluator.h"
#include "support/recorded_spaces.h"
#include "tuning/tuner.h"

namespace gemmtune::budget_test {
namespace {

using ::testing::ElementsAre;

/// Problems that cost and gain what a test says, worked on by one evaluator.
class Simulation {
 public:
  struct Of {
    double calls = 1;
    double candidate_seconds = 0.01;
    double median_share = 1;  // of them is the median, that of candidates that wait for no compiler
    double set_up_seconds = 0;
    double finals_seconds = 0.1;  // the shortest; whole ones take four times as long
    double gain = 0.1;            // of the search behind the first visit
    std::int64_t m = 0;           // 0: another one for each of eight items
    std::int64_t n = 64;
    std::optional<std::size_t> group = {};  // none: its own
  };
  struct Done {
    std::size_t item = 0;
    double seconds = 0;
    bool settles = false;
    bool is_cut = false;
  };

  explicit Simulation(std::vector<Of> of) : of_(std::move(of)), tried_(of_.size()) {}

  std::vector<Done> run(double seconds) {
    RunBudget budget({seconds, 0, [this] { return now; }, 1, true});
    std::vector<BudgetItem> items;
    for (std::size_t i = 0; i < of_.size(); ++i) {
      Problem problem;
      problem.m = of_[i].m > 0 ? of_[i].m : 16 << i % 8;
      problem.n = of_[i].n;
      problem.k = 64;
      items.push_back({problem, of_[i].calls, of_[i].group.value_or(i), true});
    }
    budget.share_among(items);
    std::vector<Done> done;
    while (const auto visit = budget.next(0)) {
      const std::size_t i = *visit->item;
      const Of& of = of_[i];
      const double begin = now;
      now += of.set_up_seconds;
      const TuningVisit& tuning = visit->tuning;
      const Deadline searching = tuning.settles ? tuning.deadline.part(tuning.search_share) : tuning.deadline;
      std::size_t looked_at = 0;
      while (tried_[i] < expected && looked_at < tuning.max_candidates &&
             (looked_at == 0 || !searching.over())) {
        now += of.candidate_seconds;
        ++tried_[i];
        ++looked_at;
      }
      VisitFigures figures;
      figures.tried = tried_[i];
      figures.expected = expected;
      figures.candidate_seconds = of.candidate_seconds * of.median_share;
      figures.set_up_seconds = of.set_up_seconds;
      figures.shortest_finals_seconds = of.finals_seconds;
      figures.whole_finals_seconds = 4 * of.finals_seconds;
      const double part = static_cast<double>(tried_[i]) / static_cast<double>(expected);
      figures.microseconds = 100 * std::exp(-of.gain * part);
      figures.is_cut = tried_[i] < expected;
      if (tuning.settles) {
        const double left = tuning.deadline.seconds_left();
        figures.is_cut = figures.is_cut || left < 4 * of.finals_seconds;
        now += std::clamp(left, of.finals_seconds, 4 * of.finals_seconds);
      }
      budget.done(*visit, figures);
      done.push_back({i, now - begin, tuning.settles, figures.is_cut});
    }
    return done;
  }

  static constexpr std::size_t expected = 100;
  double now = 0;

 private:
  std::vector<Of> of_;
  std::vector<std::size_t> tried_;
};

std::vector<std::size_t> items_of(const std::vector<Simulation::Done>& done) {
  std::vector<std::size_t> items;
  for (const auto& each : done) items.push_back(each.item);
  return items;
}

/// Four weights at 25 M each, a group a weight (packed rows agree on a layout) or a problem.
std::vector<Simulation::Of> a_servers_list(bool is_packed) {
  std::vector<Simulation::Of> list;
  for (std::size_t weight = 0; weight < 4; ++weight) {
    const auto n = static_cast<std::int64_t>(64 << weight);
    std::vector<std::int64_t> ms{1, 2, 4};
    for (std::int64_t m = 8; m <= 128; m += 8) ms.push_back(m);
    for (std::int64_t m = 256; m <= 8192; m *= 2) ms.push_back(m);
    for (const std::int64_t m : ms) {
      list.push_back({.m = m, .n = n});
      if (is_packed) list.back().group = weight;
    }
  }
  return list;
}

TEST(RunBudget, AListThatIsTooLongGetsEveryWeightFromTheFewestRowsToTheMost) {
  for (const bool is_packed : {true, false}) {
    const auto list = a_servers_list(is_packed);
    Simulation simulation(list);
    std::map<std::int64_t, std::set<std::int64_t>> rows;  // n -> M
    for (const auto& each : simulation.run(12)) {
      if (each.settles) rows[list[each.item].n].insert(list[each.item].m);
    }
    EXPECT_EQ(rows.size(), 4U) << is_packed;
    for (const auto& [n, ms] : rows) {
      EXPECT_GE(ms.size(), 5U) << n;
      EXPECT_LE(ms.size(), 22U) << n << ": the list was not too long";
      EXPECT_EQ(*ms.begin(), 1) << n;
      EXPECT_EQ(*ms.rbegin(), 8192) << n;
      std::int64_t before = 1;
      for (const std::int64_t m : ms) {
        EXPECT_LE(m, 16 * before) << n;
        before = m;
      }
    }
  }
}

TEST(RunBudget, WithoutABudgetEachProblemIsVisitedOnceInItsOrder) {
  Simulation simulation({{.calls = 1}, {.calls = 100}, {.calls = 10}});
  const auto done = simulation.run(0);
  EXPECT_THAT(items_of(done), ElementsAre(0, 1, 2));
  for (const auto& each : done) EXPECT_FALSE(each.is_cut);
}

TEST(RunBudget, AllHaveAFirstVisitBeforeOneHasASecond) {
  Simulation simulation({{}, {}, {}, {}});
  const auto done = simulation.run(6);
  ASSERT_GE(done.size(), 8U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[i].item, i);
    EXPECT_FALSE(done[i].settles);
    EXPECT_NEAR(done[i].seconds, 0.16, 1e-9) << "the first candidates";
  }
  std::set<std::size_t> settled;
  for (std::size_t i = 4; i < 8; ++i) {
    EXPECT_TRUE(done[i].settles);
    settled.insert(done[i].item);
  }
  EXPECT_EQ(settled.size(), 4U) << "then each is settled";
}

TEST(RunBudget, WithTimeForAllNothingIsCut) {
  Simulation simulation({{}, {.candidate_seconds = 0.03}, {.calls = 9, .candidate_seconds = 0.002}, {}});
  const auto done = simulation.run(1.2 * (4 * 0.4 + 1 + 3 + 0.2 + 1));
  EXPECT_EQ(done.size(), 8U);
  for (std::size_t i = 4; i < done.size(); ++i) EXPECT_FALSE(done[i].is_cut) << done[i].item;
}

TEST(RunBudget, TimeGoesWhereCallsAreAndNobodyIsLeftWithoutAResult) {
  Simulation simulation({{}, {.calls = 1000}, {}, {}});
  const auto done = simulation.run(3);
  std::map<std::size_t, double> further;  // seconds
  std::set<std::size_t> settled;
  for (const auto& each : done) {
    if (!each.settles) continue;
    further[each.item] += each.seconds;
    settled.insert(each.item);
  }
  EXPECT_EQ(settled.size(), 4U);
  EXPECT_GT(further[1], 2 * further[0]);
  EXPECT_GT(further[1], 2 * further[3]);
  EXPECT_LT(simulation.now, 3.3);
}

TEST(RunBudget, NoTimeIsLeftOverWhileAProblemIsCut) {
  for (const double budget : {1.5, 2.0, 3.0, 4.0, 5.0}) {
    // The third one costs a tenth of what its first visit lets expect: the others get that.
    Simulation simulation({{.set_up_seconds = 0.1}, {}, {.gain = 0}, {.calls = 5}});
    const auto done = simulation.run(budget);
    std::map<std::size_t, bool> is_cut;
    for (const auto& each : done) is_cut[each.item] = each.is_cut;
    const bool any = std::any_of(is_cut.begin(), is_cut.end(), [](const auto& each) { return each.second; });
    if (any) {
      EXPECT_GT(simulation.now, 0.95 * budget);
    }
    EXPECT_LT(simulation.now, 1.1 * budget + 0.2);
  }
}

// Reported: the exhaustive search of 7,960 kernels, of which one in ten waited for the compiler, was visited 1,230 times:
// each time for as long as the rest would take without a compiler.
TEST(RunBudget, ASearchThatTakesLongerThanExpectedGetsWhatNobodyNeeds) {
  Simulation simulation({{.candidate_seconds = 0.1, .median_share = 0.03}});
  const auto done = simulation.run(15);
  EXPECT_LE(done.size(), 3U);
  EXPECT_FALSE(done.back().is_cut);
}

TEST(RunBudget, ABudgetThatIsOverLeavesOneResult) {
  Simulation simulation({{}, {.calls = 5}, {}});
  const auto done = simulation.run(1e-6);
  EXPECT_THAT(items_of(done), ElementsAre(1, 1));
  EXPECT_TRUE(done.back().settles);
}

TEST(RunBudget, AListThatIsTooLongIsSettledFromTheMostCalledOn) {
  std::vector<Simulation::Of> many(1000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i].calls = i % 10 == 3 ? 100 : 1;
  Simulation simulation(many);
  const auto done = simulation.run(10);
  std::set<std::size_t> settled;
  for (const auto& each : done) {
    if (each.settles) settled.insert(each.item);
    EXPECT_EQ(each.item % 10, 3U);
  }
  EXPECT_GT(settled.size(), 20U);
  const auto items = items_of(done);
  EXPECT_EQ(settled.size(), std::set<std::size_t>(items.begin(), items.end()).size());
  EXPECT_LT(simulation.now, 10.5);
}

struct NoObserver final : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
};

/// All problems of recordings tuned with a budget, one list a recording.
struct Tuned {
  double seconds = 0;
  std::map<std::string, double> microseconds;  // true ones of the winners, by problem
  std::map<std::string, double> calls;
};

Tuned tune_recorded(testing::Recorded& recorded, std::uint64_t seed, double budget,
                    RunObserver* observer = nullptr) {
  ReplayEvaluator evaluator(recorded.recording, seed, true);
  TuneRequest request;
  request.policy.sample_microseconds = recorded.recording.run.policy.sample_microseconds;
  request.policy.seed = seed;
  request.clock = [&] { return evaluator.seconds(); };
  request.budget_seconds = budget;
  request.confirmations = 1;
  for (const RecordedProblem& problem : recorded.recording.problems) {
    request.shapes.emplace_back();
    request.shapes.back().problem = problem.problem;
    request.shapes.back().calls = problem.calls;
  }
  NoObserver silent;
  auto summary = tune(recorded.device, evaluator, request, observer != nullptr ? *observer : silent);
  EXPECT_TRUE(summary.ok()) << summary.message();
  Tuned tuned;
  tuned.seconds = evaluator.seconds();
  for (std::size_t i = 0; i < summary->items.size(); ++i) {
    const ItemReport& report = summary->items[i];
    const RecordedProblem& problem = recorded.recording.problems[i];
    const auto truth = testing::true_times(problem);
    const std::string name = print(problem.problem);
    tuned.calls[name] = static_cast<double>(std::max<std::int64_t>(1, problem.calls));
    // What nobody tuned runs the default.
    const std::string kernel = report.row() != nullptr ? report.row()->kernel_name : problem.baseline;
    tuned.microseconds[name] = truth.at(kernel);
  }
  return tuned;
}

/// The logarithm of how much slower one result is than another one, weighted by calls.
double loss(const Tuned& tuned, const Tuned& free) {
  double sum = 0;
  double calls = 0;
  for (const auto& [name, time] : tuned.microseconds) {
    sum += tuned.calls.at(name) * std::log(time / free.microseconds.at(name));
    calls += tuned.calls.at(name);
  }
  return sum / calls;
}

/// Counts when rows are reported: in candidates that were tried by then.
struct SettlingObserver final : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t so_far) override { candidates = so_far; }
  void problem_settled(std::size_t index, const ItemReport& report) override {
    ASSERT_NE(report.row(), nullptr);
    EXPECT_FALSE(done.contains(index));
    first.emplace(index, candidates);
  }
  void problem_done(std::size_t index, const ItemReport& report) override {
    done.insert(index);
    if (report.row() != nullptr) first.emplace(index, candidates);
  }
  std::int64_t candidates = 0;
  std::map<std::size_t, std::int64_t> first;  // by index
  std::set<std::size_t> done;
};

TEST(RecordedBudgets, ARowIsReportedWhenItsProblemIsSettledNotAtTheEnd) {
  testing::Recorded& recorded = testing::recordings().front();
  const double free = tune_recorded(recorded, 1, 0).seconds;
  SettlingObserver observer;
  tune_recorded(recorded, 1, 0.6 * free, &observer);
  ASSERT_FALSE(observer.first.empty());
  EXPECT_EQ(observer.done.size(), recorded.recording.problems.size());
  std::int64_t before_the_last_fifth = 0;
  for (const auto& [index, candidates] : observer.first)
    before_the_last_fifth += 5 * candidates < 4 * observer.candidates;
  EXPECT_GE(3 * before_the_last_fifth, static_cast<std::int64_t>(observer.first.size()));
}

TEST(RecordedBudgets, ResultsAreCloseToThoseOfAFreeRun) {
  const auto seeds = testing::seeds({1, 2, 3, 4, 5, 6, 7, 8}, 3);
  for (testing::RecordedList* list : {&testing::gpu_recordings(), &testing::recordings()}) {
    for (testing::Recorded& recorded : *list) {
      const std::string& model = recorded.recording.run.device.model;
      std::map<double, double> losses;  // by share of the free run's time
      for (const std::uint64_t seed : seeds) {
        const Tuned free = tune_recorded(recorded, seed, 0);
        for (const double share : {1.2, 0.5, 0.25}) {
          const Tuned limited = tune_recorded(recorded, seed, share * free.seconds);
          const double lost = loss(limited, free);
          losses[share] += lost / static_cast<double>(seeds.size());
          testing::say("{} seed {}: budget of {:.2f} of {:.1f} s: took {:.3f} of it, lost {:.2f} %", model,
                       seed, share, free.seconds, limited.seconds / (share * free.seconds), 100 * lost);
          EXPECT_LT(limited.seconds, 1.1 * share * free.seconds) << model << " " << share;
          if (share < 1) {
            EXPECT_GT(limited.seconds, 0.95 * share * free.seconds) << model << " " << share;
          }
        }
      }
      for (const auto& [share, lost] : losses)
        testing::say("{}: budget of {:.2f}: lost {:.2f} % in the mean", model, share, 100 * lost);
      EXPECT_LE(losses.at(1.2), 0.003) << model;
      EXPECT_LE(losses.at(0.5), 0.015) << model;
      EXPECT_LE(losses.at(0.25), 0.04) << model;
    }
  }
}

}  // namespace
}  // namespace gemmtune::budget_test
