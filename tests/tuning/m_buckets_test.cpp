// The kernel of a bucket of M, on a device and an evaluator on paper: what it must take, what a spent budget decides from, and
// that a run that goes on measures nothing twice.
#include "tuning/m_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "evaluate/journal/journaled_evaluator.h"
#include "support/paper_device.h"

namespace gemmtune {
namespace {

using testing::FakeEvaluator;
using ::testing::HasSubstr;
using testing::PaperDevice;

class BucketChoices : public ::testing::Test {
 protected:
  BucketChoices() {
    device_.add({.name = "vendor", .tie_rank = 0});
    device_.add({.name = "small",
                 .refusal = [](const Problem& problem) { return problem.m > 32 ? "M above 32" : ""; }});
    device_.add({.name = "large", .parameters = {{"kc", {"1", "2", "3"}, "", ""}}});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [](const Problem& problem, const Candidate& candidate) {
      if (candidate.family == "vendor") return 100.0;
      if (candidate.family == "small") return 50.0;
      const auto kc = candidate.config.number("kc");
      if (kc == 1) return problem.m <= 64 ? 60.0 : 90.0;
      return kc == 2 ? (problem.m <= 64 ? 80.0 : 70.0) : 65.0;
    };
  }

  static Problem problem_of(std::int64_t m) {
    Problem problem;
    problem.m = m;
    problem.n = problem.k = 64;
    return problem;
  }
  static TunedEntry row(std::int64_t m, const std::string& kernel) {
    TunedEntry entry;
    entry.gfx = "x86-avx2";
    entry.cu_num = 2;
    entry.problem = problem_of(m);
    entry.kernel_name = kernel;
    entry.default_kernel = "vendor_r1";
    entry.us = 50;
    return entry;
  }
  Result<BucketChoice> choose(const std::vector<TunedEntry>& rows, const BucketEnds& ends,
                              const Deadline& deadline = Deadline::never()) {
    return choose(evaluator_, rows, ends, deadline);
  }
  Result<BucketChoice> choose(Evaluator& evaluator, const std::vector<TunedEntry>& rows,
                              const BucketEnds& ends, const Deadline& deadline = Deadline::never()) {
    return choose_for_bucket(device_, evaluator, rows, ends, Policy(), deadline);
  }

  PaperDevice device_;
  FakeEvaluator evaluator_;
};

TEST_F(BucketChoices, TheLeastSummedRegretWins) {
  const auto choice = choose({row(16, "large_r1_kc1"), row(128, "large_r1_kc2")}, {1, 256});
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "large_r1_kc1") << "90 / 70 at one M, against 80 / 60 at the other";
  EXPECT_NEAR(choice->regret.value_or(-1), 90.0 / 70 - 1, 0.02);
  EXPECT_EQ(choice->compared, 2U);
  EXPECT_FALSE(choice->is_cut);
}

/// The fastest kernel at the tuned M does not take M = 256, which the bucket answers too.
TEST_F(BucketChoices, AKernelThatDoesNotTakeTheWholeBucketCannotHaveIt) {
  const std::vector<TunedEntry> rows{row(1, "small_r1"), row(9, "small_r1")};
  auto choice = choose(rows, {1, 256});
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "vendor_r1") << "the default takes all";
  EXPECT_NEAR(choice->regret.value_or(-1), 2, 0.02)
      << "against the fastest kernels there: twice 100 / 50 - 1";
  choice = choose(rows, {1, 32});
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "small_r1");
  EXPECT_EQ(choice->regret, 0);
  EXPECT_EQ(choice->compared, 0U) << "one kernel won at both";

  std::vector<TunedEntry> without_default = rows;
  for (TunedEntry& one : without_default) one.default_kernel = "small_r1";
  ASSERT_TRUE(choose(without_default, {1, 256}).ok()) << "the library's takes all, whatever runs untuned";
  for (TunedEntry& one : without_default) one.default_kernel.clear();
  device_.baseline_of = nullptr;
  EXPECT_THAT(choose(without_default, {1, 256}).message(), HasSubstr("takes M = 1 and M = 256"));
}

TEST_F(BucketChoices, AKernelThatIsWrongAtAnEndCannotHaveIt) {
  evaluator_.at_m = [](const Problem&, const Candidate& candidate, std::int64_t m) {
    const bool wrong = m == 256 && candidate.family == "large" && candidate.config.number("kc") == 1;
    return wrong ? testing::failure(OutcomeKind::wrong, "bad") : Outcome{};
  };
  const auto choice = choose({row(16, "large_r1_kc1"), row(128, "large_r1_kc2")}, {1, 256});
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "large_r1_kc2");
}

/// No memory for the bucket's largest M says nothing of a kernel that takes it.
TEST_F(BucketChoices, WhatCannotBeVerifiedAtAnEndIsNoFault) {
  evaluator_.at_m = [](const Problem&, const Candidate&, std::int64_t m) {
    return m == 256 ? testing::failure(OutcomeKind::refused, "no memory") : Outcome{};
  };
  const auto choice = choose({row(16, "large_r1_kc1")}, {1, 256});
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "large_r1_kc1");
}

/// A spent budget: what was measured decides, nothing more is timed, and the kernel is verified where it was not.
TEST_F(BucketChoices, WithoutTimeTheRowsDecide) {
  const auto choice = choose({row(16, "large_r1_kc2"), row(64, "large_r1_kc3"), row(128, "large_r1_kc2")},
                             {1, 256}, Deadline::in(0));
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "large_r1_kc2") << "it won at two M of three";
  EXPECT_EQ(choice->regret, std::nullopt);
  EXPECT_EQ(choice->compared, 0U);
  EXPECT_TRUE(choice->is_cut);
  EXPECT_TRUE(evaluator_.finals_calls.empty());

  // Wrong at the M where another kernel won: the next one.
  evaluator_.at_m = [](const Problem&, const Candidate& candidate, std::int64_t m) {
    const bool wrong = m == 64 && candidate.config.number("kc") == 2;
    return wrong ? testing::failure(OutcomeKind::wrong, "bad") : Outcome{};
  };
  const auto next = choose({row(16, "large_r1_kc2"), row(64, "large_r1_kc3"), row(128, "large_r1_kc2")},
                           {1, 256}, Deadline::in(0));
  ASSERT_TRUE(next.ok()) << next.message();
  EXPECT_EQ(next->kernel, "large_r1_kc3");
}

TEST_F(BucketChoices, TheMThatWereComparedByThenDecide) {
  double now = 0;
  evaluator_.before = [&](const Problem&) { now += 1; };
  const Deadline deadline = Deadline::in(0.5, [&] { return now; });
  const auto choice = choose({row(16, "large_r1_kc1"), row(128, "large_r1_kc2"), row(200, "large_r1_kc2")},
                             {1, 256}, deadline);
  ASSERT_TRUE(choice.ok()) << choice.message();
  EXPECT_EQ(choice->kernel, "large_r1_kc1") << "the faster one at M = 16";
  EXPECT_EQ(choice->compared, 1U);
  EXPECT_TRUE(choice->is_cut);
}

/// A run that was killed while buckets were decided: what the journal has is not measured again, behind whatever the run
/// measured of the problems before.
TEST_F(BucketChoices, ARunThatGoesOnMeasuresNothingTwice) {
  std::string pattern = ::testing::TempDir() + "gemmtune_m_buckets_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  const std::vector<TunedEntry> rows{row(16, "large_r1_kc1"), row(128, "large_r1_kc2")};
  const auto run_with = [&](FakeEvaluator& inner, bool tunes) {
    auto journal = Journal::open(folder + "/t.journal");
    ASSERT_TRUE(journal.ok()) << journal.message();
    const auto run = journal->begin_run({"r", "test", "policy", "env", "device"}, true);
    ASSERT_TRUE(run.ok());
    JournaledEvaluator evaluator(inner, *journal, device_, {run->id, "policy", "device", false});
    if (tunes) {
      const Candidate vendor{"vendor", 1, {}};
      ASSERT_TRUE(evaluator.finals(problem_of(16), {&vendor, 1}, 15).ok());
    }
    const auto choice = choose(evaluator, rows, {1, 256});
    ASSERT_TRUE(choice.ok()) << choice.message();
    EXPECT_EQ(choice->kernel, "large_r1_kc1");
  };
  run_with(evaluator_, true);
  EXPECT_GE(evaluator_.finals_calls.size(), 3U);
  FakeEvaluator again;
  again.time = evaluator_.time;
  int checks = 0;
  again.at_m = [&](const Problem&, const Candidate&, std::int64_t) {
    ++checks;
    return Outcome{};
  };
  run_with(again, false);
  EXPECT_TRUE(again.finals_calls.empty());
  EXPECT_EQ(checks, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gemmtune
