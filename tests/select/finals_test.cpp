// Finals under a time limit, on a simulated clock.
#include "select/finals.h"

#include <gtest/gtest.h>

#include "support/paper_device.h"

namespace gemmtune {
namespace {

/// Times of the fake one; the clock goes on by what such rounds take on a machine.
class ClockedEvaluator final : public Evaluator {
 public:
  explicit ClockedEvaluator(double sample_microseconds) : sample_microseconds_(sample_microseconds) {}

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    return fake.screen(problem, candidates, samples, stop);
  }
  Result<FinalsResult> finals(const Problem& problem, std::span<const Candidate> candidates,
                              int rounds) override {
    constexpr double warm_up_and_gaps = 2;
    for (const Candidate& candidate : candidates)
      now += 1e-6 * warm_up_and_gaps * rounds * std::max(sample_microseconds_, fake.time(problem, candidate));
    return fake.finals(problem, candidates, rounds);
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    return fake.check_neighbour_m(problem, candidate, m);
  }

  testing::FakeEvaluator fake;
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
    evaluator_.fake.time = [](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? 500.0
                                          : 400.0 + 10.0 * static_cast<double>(candidate.config.number("kc"));
    };
    task_.problem.m = 8;
    task_.problem.n = 64;
    task_.problem.k = 64;
    for (const ListedCandidate& listed : list_candidates(device_, task_.problem, {}).candidates) {
      const double time = evaluator_.fake.time(task_.problem, listed.candidate);
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
  ClockedEvaluator evaluator_{3000};
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
  EXPECT_LT(evaluator_.fake.finals_calls.front().size(), task_.finalists.size());
  EXPECT_GE(evaluator_.fake.finals_calls.front().size(), 3U);
}

TEST_F(FinalsUnderALimit, ADefaultThatIsWrongIsAVerdictWithoutARatio) {
  const char* const reason = "a row is outside of its error bound: row 5 (7.9 times the bound)";
  for (const OutcomeKind kind : {OutcomeKind::wrong, OutcomeKind::crashed}) {
    evaluator_.fake.outcome = [&](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? testing::failure(kind, reason) : Outcome{};
    };
    const Settled settled = settle(100);
    ASSERT_TRUE(settled.winner);
    EXPECT_EQ(settled.winner->candidate.kernel_name(), "tiled_r1_kc1");
    EXPECT_EQ(settled.verdict, Verdict::default_wrong);
    EXPECT_EQ(settled.default_kernel, "vendor_r1");
    EXPECT_FALSE(settled.speedup);
    EXPECT_FALSE(settled.default_microseconds);
    ASSERT_TRUE(settled.wrong_default);
    EXPECT_EQ(settled.wrong_default->reason,
              (kind == OutcomeKind::crashed ? "it crashes: " : "") + std::string(reason));
  }
}

TEST_F(FinalsUnderALimit, ADefaultThatCannotRunIsNotWrong) {
  evaluator_.fake.outcome = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "vendor" ? testing::failure(OutcomeKind::refused, "no") : Outcome{};
  };
  const Settled settled = settle(100);
  EXPECT_EQ(settled.verdict, Verdict::only);
  EXPECT_EQ(settled.default_kernel, "");
  EXPECT_FALSE(settled.wrong_default);
}

}  // namespace
}  // namespace gemmtune
