// One bit class for all M of a weight: which class and kernels a run takes, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "formats/aiter/tuned_csv.h"
#include "support/paper_device.h"
#include "tuning/invariant_check.h"
#include "tuning/tuner.h"

namespace gemmtune::invariant_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct SilentObserver final : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
};

Problem problem_of(std::int64_t m, std::int64_t n = 64) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = 64;
  return problem;
}

/// vendor changes its bits with M. Sums of tiled depend on sk; narrow is the fastest at few rows, in a class of its own.
class Invariant : public ::testing::Test {
 protected:
  Invariant() {
    std::string pattern = ::testing::TempDir() + "gemmtune_invariant_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    device_.add({.name = "vendor", .tie_rank = 0});
    device_.add(
        {.name = "tiled", .parameters = {{"kc", {"128", "256"}, "", ""}, {"sk", {"1", "2"}, "1", ""}}});
    device_.add({.name = "narrow",
                 .refusal = [](const Problem& problem) { return problem.m > 4 ? "M above 4" : ""; }});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [this](const Problem& problem, const Candidate& candidate) {
      return time_of(problem, candidate);
    };
    evaluator_.full_outcome = [](const Problem& problem, const Candidate& candidate) {
      Outcome outcome;
      outcome.bits = class_of(problem, candidate);
      return outcome;
    };
    request_.output = folder_ + "/tuned.csv";
    request_.invariant = true;
  }
  ~Invariant() override { std::filesystem::remove_all(folder_); }

  static BitClass class_of(const Problem&, const Candidate& candidate) {
    if (candidate.family == "vendor") return {{}, "bits of a row change with M"};
    if (candidate.family == "narrow") return {"f32-narrow", {}};
    return {candidate.config.number("sk") == 1 ? "f32-one" : "f32-two", {}};
  }
  /// Two splits are the faster ones at M = 1, one at M = 64.
  double time_of(const Problem& problem, const Candidate& candidate) const {
    if (candidate.family == "vendor") return 40;
    if (candidate.family == "narrow") return 20;
    const double blocks = candidate.config.number("kc") == 128 ? 0 : 5;
    const bool one = candidate.config.number("sk") == 1;
    return blocks + (problem.m < 8 ? (one ? 90 : 60) : (one ? 200 : 260));
  }
  RunSummary run(const std::vector<std::pair<Problem, std::int64_t>>& shapes) {
    request_.shapes.clear();
    for (const auto& [problem, calls] : shapes) {
      ShapeRow row;
      row.problem = problem;
      row.calls = calls;
      request_.shapes.push_back(row);
    }
    auto summary = tune(device_, evaluator_, request_, observer_);
    EXPECT_TRUE(summary.ok()) << summary.message();
    return summary.ok() ? std::move(*summary) : RunSummary{};
  }
  /// "M kernel bits", one a row.
  std::vector<std::string> published() const {
    const auto file = read_tuned_csv(request_.output);
    EXPECT_TRUE(file.ok()) << file.message();
    std::vector<std::string> rows;
    if (!file.ok()) return rows;
    for (const TunedEntry& row : file->entries)
      rows.push_back(fmt::format("{} {} {}", row.problem.m, row.kernel_name, row.bits.view()));
    return rows;
  }

  std::string folder_;
  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  SilentObserver observer_;
  TuneRequest request_;
};

TEST_F(Invariant, AllMTakeKernelsOfOneClass) {
  const RunSummary summary = run({{problem_of(1), 1}, {problem_of(64), 1}});
  EXPECT_THAT(published(), ElementsAre("1 tiled_r1_kc128_sk1 f32-one", "64 tiled_r1_kc128_sk1 f32-one"));
  ASSERT_TRUE(summary.items[0].row() != nullptr);
  const TunedEntry& row = *summary.items[0].row();
  EXPECT_EQ(row.default_kernel, "vendor_r1") << "compared with, and never chosen";
  EXPECT_NEAR(*row.speedup, 40.0 / 90, 0.01);
}

/// A faster kernel of the class that takes 512 rows at most is not taken at the largest M, but for a list of one.
TEST_F(Invariant, TheRowOfTheLargestMServesLargerOnes) {
  device_.add({.name = "any", .parameters = {{"sk", {"1"}, "1", ""}}, .order_key = "sk"});
  device_.add({.name = "few",
               .parameters = {{"sk", {"1"}, "1", ""}},
               .refusal = [](const Problem& problem) { return problem.m > 512 ? "M above 512" : ""; },
               .order_key = "sk"});
  request_.libtypes = {"any", "few"};
  evaluator_.time = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "few" ? 30 : 90;
  };
  run({{problem_of(1), 1}, {problem_of(64), 1}, {problem_of(100), 1}});
  EXPECT_THAT(published(),
              ElementsAre("1 few_r1_sk1 f32-one", "64 few_r1_sk1 f32-one", "100 any_r1_sk1 f32-one"));
  std::filesystem::remove(request_.output);
  run({{problem_of(100), 1}});
  EXPECT_THAT(published(), ElementsAre("100 few_r1_sk1 f32-one"));
}

TEST_F(Invariant, CallsWeighTheClass) {
  run({{problem_of(1), 100}, {problem_of(64), 1}});
  EXPECT_THAT(published(), ElementsAre("1 tiled_r1_kc128_sk2 f32-two", "64 tiled_r1_kc128_sk2 f32-two"));
}

TEST_F(Invariant, AnOrderThatCostsMoreThanAClassThatWasFoundIsNotVerified) {
  device_.add({.name = "ordered",
               .parameters = {{"kc", {"128", "256"}, "", ""}, {"sk", {"1", "2"}, "1", ""}},
               .order_key = "sk"});
  request_.libtypes = {"ordered"};
  run({{problem_of(1), 1}, {problem_of(64), 1}});
  EXPECT_THAT(published(), ElementsAre(EndsWith("f32-one"), EndsWith("f32-one")));
  std::vector<std::string> verified;
  for (std::size_t call = 0; call < evaluator_.finals_calls.size(); ++call) {
    const std::vector<std::string>& kernels = evaluator_.finals_calls[call];
    if (evaluator_.finals_rounds[call] == 0) verified.insert(verified.end(), kernels.begin(), kernels.end());
  }
  EXPECT_THAT(verified, Contains("ordered_r1_kc128_sk1"));
  EXPECT_THAT(verified, Not(Contains("ordered_r1_kc128_sk2")));
}

TEST_F(Invariant, OfMixturesKernelsThatPromiseNothingAreNotTried) {
  device_.add({.name = "ordered", .parameters = {{"sk", {"1", "2"}, "1", ""}}, .order_key = "sk"});
  Problem mixture = problem_of(1);
  mixture.operation = Operation::fused_moe;
  mixture.moe = {.experts = 4, .topk = 2, .activation = Activation::silu};
  run({{mixture, 1}});
  EXPECT_THAT(published(), ElementsAre(StartsWith("1 ordered_r1_")));
  request_.libtypes = {"tiled"};
  request_.output = folder_ + "/other.csv";
  const RunSummary summary = run({{mixture, 1}});
  ASSERT_EQ(summary.items[0].state, ProblemState::failed);
  EXPECT_THAT(summary.items[0].reason,
              HasSubstr("bits of a token may change with the experts of its neighbours: tiled promises"));
}

TEST_F(Invariant, TheEnvironmentSaysWhatWasShown) {
  run({{problem_of(1), 1}, {problem_of(64), 1}});
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().string().ends_with(".env.json")) all += read_file(entry.path().string()).value();
  }
  EXPECT_THAT(all, HasSubstr("\"class\": \"f32-one\""));
  EXPECT_THAT(all, HasSubstr("at M = 64 and M = 1, 63, 65"));
}

TEST_F(Invariant, WeightsAreDecidedEachForItself) {
  run({{problem_of(1), 100}, {problem_of(64), 1}, {problem_of(1, 32), 1}, {problem_of(64, 32), 1}});
  EXPECT_THAT(published(), ElementsAre("1 tiled_r1_kc128_sk2 f32-two", "64 tiled_r1_kc128_sk2 f32-two",
                                       "1 tiled_r1_kc128_sk1 f32-one", "64 tiled_r1_kc128_sk1 f32-one"));
}

TEST_F(Invariant, ANewMTakesTheClassOfTheRowsThatStay) {
  run({{problem_of(1), 100}, {problem_of(64), 1}});
  run({{problem_of(1), 1}, {problem_of(64), 1}, {problem_of(128), 100}});
  EXPECT_THAT(published(), ElementsAre("1 tiled_r1_kc128_sk2 f32-two", "64 tiled_r1_kc128_sk2 f32-two",
                                       "128 tiled_r1_kc128_sk2 f32-two"));
}

TEST_F(Invariant, ARowWithoutAClassIsTunedAgain) {
  request_.invariant = false;
  run({{problem_of(1), 1}});
  request_.invariant = true;
  const RunSummary summary = run({{problem_of(1), 1}});
  EXPECT_EQ(summary.items[0].state, ProblemState::tuned);
  EXPECT_THAT(published(), ElementsAre("1 narrow_r1 f32-narrow"));
}

TEST_F(Invariant, RowsOfAClassAreNotTunedWithoutOne) {
  run({{problem_of(1), 1}, {problem_of(64), 1}});
  const std::vector<std::string> before = published();
  request_.invariant = false;
  request_.all = true;
  const RunSummary again = run({{problem_of(64), 1}, {problem_of(16), 1}, {problem_of(16, 128), 1}});
  for (const std::size_t refused : {0U, 1U}) {
    EXPECT_EQ(again.items[refused].state, ProblemState::failed);
    EXPECT_THAT(again.items[refused].reason,
                AllOf(HasSubstr("(bit class f32-one)"), HasSubstr("tune it with --invariant rows")));
  }
  EXPECT_THAT(published(), ElementsAre(before[0], before[1], StartsWith("16 ")))
      << "another weight is none of theirs";
}

TEST_F(Invariant, RowsOfAClassThatCountAsDoneStay) {
  run({{problem_of(1), 1}, {problem_of(64), 1}});
  request_.invariant = false;
  EXPECT_EQ(run({{problem_of(64), 1}}).items[0].state, ProblemState::skipped_done);
}

TEST_F(Invariant, WithoutACommonClassThereIsNoRow) {
  request_.libtypes = {"vendor"};
  const RunSummary summary = run({{problem_of(1), 1}, {problem_of(64), 1}});
  EXPECT_FALSE(std::filesystem::exists(request_.output));
  for (const ItemReport& item : summary.items) {
    EXPECT_EQ(item.state, ProblemState::failed);
    EXPECT_THAT(item.reason, HasSubstr("no bit class has a kernel for every M"));
    EXPECT_THAT(item.reason, HasSubstr("vendor_r1: bits of a row change with M"));
  }
}

TEST_F(Invariant, AKernelThatFailsFullVerificationIsNotOfTheClass) {
  evaluator_.full_outcome = [](const Problem& problem, const Candidate& candidate) {
    const bool fails = problem.m == 64 && candidate.kernel_name() == "tiled_r1_kc128_sk1";
    Outcome outcome = fails ? testing::failure(OutcomeKind::wrong, "row 5") : Outcome{};
    if (!fails) outcome.bits = class_of(problem, candidate);
    return outcome;
  };
  run({{problem_of(1), 1}, {problem_of(64), 1}});
  EXPECT_THAT(published(), ElementsAre("1 tiled_r1_kc128_sk1 f32-one", "64 tiled_r1_kc256_sk1 f32-one"));
}

TEST_F(Invariant, ACheckNamesTheMOfAnotherClass) {
  evaluator_.at_m = [](const Problem& problem, const Candidate& candidate, std::int64_t) {
    Outcome outcome;
    outcome.bits = class_of(problem, candidate);
    return outcome;
  };
  const auto kernel = [](std::int64_t m, std::int64_t n, const char* sk) {
    ServedKernel served{problem_of(m, n), {"tiled", 1, {}}};
    served.candidate.config.set("kc", std::string("128"));
    served.candidate.config.set("sk", std::string(sk));
    return served;
  };
  const auto reports = check_invariant(
      device_, evaluator_,
      std::vector{kernel(1, 64, "1"), kernel(1, 32, "2"), kernel(8, 64, "2"), kernel(8, 32, "2")}, {});
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].bits, "");
  EXPECT_THAT(reports[0].difference, HasSubstr("M = 1 has class f32-one, M = 8 class f32-two"));
  EXPECT_EQ(reports[1].bits, "f32-two");
}

}  // namespace
}  // namespace gemmtune::invariant_test
