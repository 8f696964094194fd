// Finals under a time limit, on a simulated clock.
#include "select/finals.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "evaluate/forwarding_evaluator.h"
#include "support/paper_device.h"

namespace gemmtune {
namespace {

/// Times of the fake one; the clock goes on by what such rounds take on a machine.
class ClockedEvaluator final : public ForwardingEvaluator {
 public:
  ClockedEvaluator(testing::FakeEvaluator& inner, double sample_microseconds)
      : ForwardingEvaluator(inner), fake(inner), sample_microseconds_(sample_microseconds) {}

  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    constexpr double warm_up_and_gaps = 2;
    for (const Candidate& candidate : candidates)
      now += 1e-6 * warm_up_and_gaps * rounds * std::max(sample_microseconds_, fake.time(problem, candidate));
    return fake.take_rounds(kind, problem, candidates, rounds);
  }
  testing::FakeEvaluator& fake;
  double now = 0;

 private:
  double sample_microseconds_;
};

class FinalsUnderALimit : public ::testing::Test {
 protected:
  FinalsUnderALimit() {
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device_.add({.name = "tiled",
                 .parameters = {{"kc", {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, "", ""}}});
    fake_.time = [](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? 500.0
                                          : 400.0 + 10.0 * static_cast<double>(candidate.config.number("kc"));
    };
    task_.problem.m = 8;
    task_.problem.n = 64;
    task_.problem.k = 64;
    for (const ListedCandidate& listed : list_candidates(device_, task_.problem, {}).candidates) {
      const double time = fake_.time(task_.problem, listed.candidate);
      if (listed.candidate.family == "tiled") task_.finalists.push_back({listed, time});
    }
    for (const ListedCandidate& listed : list_candidates(device_, task_.problem, {}).candidates) {
      if (listed.candidate.family == "vendor") task_.finalists.push_back({listed, 500});
    }
    task_.baseline = task_.finalists.size() - 1;
  }
  Settled settle(double seconds) {
    evaluator_.now = 0;
    return run_finals(task_, evaluator_, Deadline::in(seconds, [this] { return evaluator_.now; }));
  }

  testing::PaperDevice device_;
  FinalsTask task_;
  testing::FakeEvaluator fake_;
  ClockedEvaluator evaluator_{fake_, 3000};
};

/// All rounds of both stages take 4 s here, the first of each 1.2 s. Rows stayed `undecided` under a budget,
/// because the selection had used it up before the test.
TEST_F(FinalsUnderALimit, TheTestIsReached) {
  for (const double seconds : {1.3, 2.0, 3.0, 10.0}) {
    const Settled settled = settle(seconds);
    ASSERT_TRUE(settled.winner) << seconds;
    EXPECT_EQ(settled.winner->candidate.kernel_name(), "tiled_r1_kc1") << seconds;
    EXPECT_NE(settled.verdict, Verdict::undecided) << seconds;
    EXPECT_LE(evaluator_.now, 1.1 * seconds);
  }
}

TEST_F(FinalsUnderALimit, FewerMeetWhereTheTimeIsShort) {
  const Settled settled = settle(0.7);
  EXPECT_EQ(settled.winner->candidate.kernel_name(), "tiled_r1_kc1");
  EXPECT_NE(settled.verdict, Verdict::undecided);
  EXPECT_LT(fake_.finals_calls.front().size(), task_.finalists.size());
  EXPECT_GE(fake_.finals_calls.front().size(), 3U);
}

TEST_F(FinalsUnderALimit, ADefaultThatIsWrongIsAVerdictWithoutARatio) {
  const char* const reason = "a row is outside of its error bound: row 5 (7.9 times the bound)";
  for (const OutcomeKind kind : {OutcomeKind::wrong, OutcomeKind::crashed}) {
    fake_.outcome = [&](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? testing::failure(kind, reason) : Outcome{};
    };
    const Settled settled = settle(100);
    ASSERT_TRUE(settled.winner);
    EXPECT_EQ(settled.winner->candidate.kernel_name(), "tiled_r1_kc1");
    EXPECT_EQ(settled.verdict, Verdict::default_wrong);
    EXPECT_EQ(settled.default_kernel, "vendor_r1");
    EXPECT_FALSE(settled.speedup);
    EXPECT_FALSE(settled.default_microseconds);
    ASSERT_TRUE(settled.default_fault);
    EXPECT_EQ(settled.default_fault->reason,
              (kind == OutcomeKind::crashed ? "it crashes: " : "") + std::string(reason));
  }
}

TEST_F(FinalsUnderALimit, ADefaultThatCannotBeTimedIsAVerdictOfItsOwn) {
  for (const OutcomeKind kind : {OutcomeKind::refused, OutcomeKind::launch_failed, OutcomeKind::too_slow,
                                 OutcomeKind::timed_out, OutcomeKind::build_failed}) {
    evaluator_.fake.outcome = [&](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? testing::failure(kind, "no time") : Outcome{};
    };
    const Settled settled = settle(100);
    ASSERT_TRUE(settled.winner);
    EXPECT_EQ(settled.verdict, Verdict::default_untimed) << to_string(kind);
    EXPECT_EQ(settled.default_kernel, "vendor_r1");
    EXPECT_FALSE(settled.speedup);
    ASSERT_TRUE(settled.default_fault);
    EXPECT_EQ(settled.default_fault->reason, std::string(to_string(kind)) + ": no time");
  }
}

TEST_F(FinalsUnderALimit, OnlyIsSaidWhereThereIsNoDefault) {
  task_.finalists.pop_back();
  task_.baseline.reset();
  EXPECT_EQ(settle(100).verdict, Verdict::only);
}

TEST_F(FinalsUnderALimit, ADefaultThatIsWrongAtAnotherMIsNotMissing) {
  evaluator_.fake.time = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "vendor" ? 300.0 : 500.0;
  };
  for (Finalist& finalist : task_.finalists)
    finalist.screened_microseconds = finalist.listed.candidate.family == "vendor" ? 300 : 500;
  evaluator_.fake.at_m = [](const Problem&, const Candidate& candidate, std::int64_t) {
    return candidate.family == "vendor" ? testing::failure(OutcomeKind::wrong, "differs") : Outcome{};
  };
  const Settled settled = settle(100);
  ASSERT_TRUE(settled.winner);
  EXPECT_EQ(settled.verdict, Verdict::default_wrong);
  EXPECT_EQ(settled.default_kernel, "vendor_r1");
}

/// The default, truly 1.008 times as slow as the one other finalist, takes `factor` times as long in the calls of finals
/// of these numbers, from 1: the first selects, the second tests, a third one is the doubt's.
class DisturbedFinals : public FinalsUnderALimit {
 protected:
  DisturbedFinals() {
    task_.finalists = {task_.finalists.front(), task_.finalists.back()};
    task_.baseline = 1;
    task_.finalists[0].screened_microseconds = 496;
    task_.finalists[1].screened_microseconds = 500;
  }
  Settled settle_disturbed(const std::set<std::size_t>& calls, double factor) {
    evaluator_.fake.time = [this, calls, factor](const Problem&, const Candidate& candidate) {
      if (candidate.family != "vendor") return 496.0;
      return calls.contains(evaluator_.fake.finals_calls.size()) ? factor * 500 : 500;
    };
    return settle(std::numeric_limits<double>::infinity());
  }
};

TEST_F(DisturbedFinals, AWinThatOtherRoundsContradictIsMeasuredAgain) {
  const Settled settled = settle_disturbed({2}, 2);
  EXPECT_EQ(evaluator_.fake.finals_calls.size(), 3U);
  EXPECT_EQ(settled.winner->candidate.kernel_name(), "vendor_r1");
  EXPECT_EQ(settled.verdict, Verdict::undecided);
  EXPECT_TRUE(settled.quietness.busy());
}

TEST_F(DisturbedFinals, ADefaultThreeTimesOffItsScreeningIsMeasuredAgain) {
  const Settled settled = settle_disturbed({1, 2}, 4);
  EXPECT_EQ(evaluator_.fake.finals_calls.size(), 3U);
  EXPECT_EQ(settled.winner->candidate.kernel_name(), "vendor_r1");
  EXPECT_EQ(settled.verdict, Verdict::undecided);
  EXPECT_TRUE(settled.quietness.busy());
  EXPECT_NE(settled.doubt.find("500 us in screening"), std::string::npos) << settled.doubt;
}

TEST_F(DisturbedFinals, ATimeThatComesAgainCounts) {
  const Settled settled = settle_disturbed({1, 2, 3}, 4);
  EXPECT_EQ(settled.verdict, Verdict::win);
  EXPECT_FALSE(settled.quietness.busy());
  EXPECT_EQ(settled.doubt, "");
}

TEST_F(DisturbedFinals, AWinnerThatWasSlowerInScreeningDoesNotWin) {
  task_.screening_deviation = 0.001;
  task_.finalists[0].screened_microseconds = 600;
  const Settled settled = settle_disturbed({1, 2, 3}, 2);
  EXPECT_EQ(settled.verdict, Verdict::undecided);
  EXPECT_TRUE(settled.quietness.busy());
}

TEST_F(FinalsUnderALimit, ARatioIsShownFromThreePairedRoundsOn) {
  evaluator_.fake.time = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "vendor" ? 6e5 : 4e5;  // a call of two seconds holds three rounds
  };
  for (Finalist& finalist : task_.finalists) {
    finalist.screened_microseconds = evaluator_.fake.time(task_.problem, finalist.listed.candidate);
  }
  std::vector<PairedRatio> shown;
  task_.on_ratio = [&](const PairedRatio& ratio) { shown.push_back(ratio); };
  settle(1e6);
  ASSERT_FALSE(shown.empty());
  EXPECT_EQ(shown.front().rounds, 3);
  EXPECT_NEAR(shown.front().ratio, 1.5, 0.01);
  EXPECT_LE(shown.front().interval.low, shown.front().ratio);
  EXPECT_GT(shown.back().rounds, 15);
}

TEST_F(FinalsUnderALimit, ACheckThatTheBudgetEndsIsNoFailureOfTheKernel) {
  evaluator_.fake.at_m = [](const Problem&, const Candidate&, std::int64_t) {
    return testing::failure(OutcomeKind::too_slow, "the budget ended");
  };
  const Settled settled = settle(100);
  EXPECT_FALSE(settled.winner);
  EXPECT_TRUE(settled.is_cut);
  for (const Trial& trial : settled.trials) EXPECT_NE(trial.outcome.kind, OutcomeKind::wrong);
}

}  // namespace
}  // namespace gemmtune
