// Tuned rows put to the test: the benchmark of the production operator and the check of every row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/paper_device.h"
#include "tuning/operator_bench.h"
#include "tuning/row_check.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

Problem problem_of(std::int64_t m) {
  Problem problem;
  problem.m = m;
  problem.n = 64;
  problem.k = 64;
  return problem;
}

TunedEntry row_of(std::int64_t m, std::string kernel_name) {
  TunedEntry entry;
  entry.gfx = "x86-avx2";
  entry.cu_num = 2;
  entry.problem = problem_of(m);
  entry.kernel_name = std::move(kernel_name);
  entry.libtype = entry.kernel_name.substr(0, entry.kernel_name.find('_'));
  entry.us = 10;
  return entry;
}

ShapeRow shape_of(std::int64_t m) {
  ShapeRow shape;
  shape.problem = problem_of(m);
  return shape;
}

class Rows : public ::testing::Test {
 protected:
  Rows() {
    device_.add({.name = "vendor", .tie_rank = 0});
    device_.add({.name = "tiled", .parameters = {{"kc", {"128", "256"}, "", ""}}});
    device_.add({.name = "narrow",
                 .refusal = [](const Problem& problem) { return problem.m > 4 ? "M above 4" : ""; }});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [this](const Problem&, const Candidate& candidate) {
      return times_.at(candidate.kernel_name());
    };
  }
  BenchRow bench(std::int64_t m, const TunedTable* table, const TunedTable* against = nullptr) {
    BenchRequest request{{shape_of(m)}, table, against, 30};
    const auto rows = bench_operator(device_, evaluator_, request, {});
    EXPECT_EQ(rows.size(), 1U);
    return rows.front();
  }

  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  std::map<std::string, double> times_{
      {"vendor_r1", 100}, {"tiled_r1_kc128", 80}, {"tiled_r1_kc256", 125}, {"narrow_r1", 50}};
};

TEST_F(Rows, TheTablesKernelIsComparedWithTheBaselineInPairs) {
  const TunedTable table({row_of(8, "tiled_r1_kc128"), row_of(32, "tiled_r1_kc256")});
  const BenchRow fast = bench(8, &table);
  EXPECT_EQ(fast.status, BenchStatus::ok) << fast.reason;
  EXPECT_EQ(fast.kernel, "tiled_r1_kc128");
  EXPECT_EQ(fast.other_kernel, "vendor_r1");
  EXPECT_EQ(fast.match, Match::exact);
  EXPECT_NEAR(*fast.microseconds, 80, 0.5);
  EXPECT_NEAR(*fast.other_microseconds, 100, 0.5);
  EXPECT_NEAR(*fast.ratio, 0.8, 0.01);
  EXPECT_LE(fast.interval->low, *fast.ratio);
  EXPECT_GE(fast.interval->high, *fast.ratio);
  EXPECT_EQ(fast.verdict, BenchVerdict::faster);
  const BenchRow slow = bench(31, &table);
  EXPECT_EQ(slow.match, Match::fine);
  EXPECT_EQ(slow.hit_m, 32);
  EXPECT_EQ(slow.verdict, BenchVerdict::slower);
}

TEST_F(Rows, ARowThatCannotRunIsPassedOver) {
  const TunedTable table({row_of(5, "narrow_r1"), row_of(16, "tiled_r1_kc128"), row_of(8, "asm_r1")});
  const BenchRow row = bench(5, &table);
  EXPECT_EQ(row.kernel, "tiled_r1_kc128");
  EXPECT_EQ(row.match, Match::fine);
  const BenchRow untuned = bench(100, &table);
  EXPECT_EQ(untuned.match, Match::untuned);
  EXPECT_EQ(untuned.kernel, "vendor_r1") << "the fallback";
  EXPECT_EQ(untuned.verdict, BenchVerdict::same) << "of itself";
  EXPECT_EQ(*untuned.ratio, 1);
}

TEST_F(Rows, ARegressionNeedsThePercentAndTheProof) {
  const TunedTable table({row_of(8, "tiled_r1_kc256"), row_of(16, "tiled_r1_kc128")});
  const BenchRow slower = bench(8, &table);
  ASSERT_TRUE(slower.certain_ratio);
  EXPECT_NEAR(*slower.certain_ratio, 1.25, 0.01);
  EXPECT_LE(*slower.certain_ratio, *slower.ratio);
  EXPECT_TRUE(is_regression(slower, 1));
  EXPECT_FALSE(is_regression(slower, 30)) << "not by that much";
  EXPECT_FALSE(is_regression(bench(16, &table), 1)) << "it is faster";
  BenchRow unproven = slower;
  unproven.certain_ratio = 1.005;
  EXPECT_FALSE(is_regression(unproven, 1));
  unproven.certain_ratio.reset();
  EXPECT_FALSE(is_regression(unproven, 1)) << "one has no time";
}

TEST_F(Rows, EqualTimesAreTheSame) {
  times_["tiled_r1_kc128"] = 100;
  const TunedTable table({row_of(8, "tiled_r1_kc128")});
  EXPECT_EQ(bench(8, &table).verdict, BenchVerdict::same);
}

// The half-width of the interval of A against A is 0.1 % here.
TEST_F(Rows, ADifferenceThatAAgainstAShowsTooIsNone) {
  times_["tiled_r1_kc128"] = 97;
  const TunedTable table({row_of(8, "tiled_r1_kc128")});
  EXPECT_EQ(bench(8, &table).verdict, BenchVerdict::faster);
  evaluator_.same_ratio = 0.95;
  EXPECT_EQ(bench(8, &table).verdict, BenchVerdict::same);
}

TEST_F(Rows, TwoTablesAreComparedWithEachOther) {
  const TunedTable after({row_of(8, "tiled_r1_kc128")});
  const TunedTable before({row_of(8, "tiled_r1_kc256")});
  const BenchRow row = bench(8, &after, &before);
  EXPECT_EQ(row.other_kernel, "tiled_r1_kc256");
  EXPECT_NEAR(*row.ratio, 80.0 / 125, 0.01);
}

TEST_F(Rows, WrongResultsAndErrorsAreStates) {
  const TunedTable table({row_of(8, "tiled_r1_kc128"), row_of(16, "tiled_r1_kc256")});
  evaluator_.outcome = [](const Problem&, const Candidate& candidate) {
    if (candidate.config.number("kc") == 128) return testing::failure(OutcomeKind::wrong, "err_ratio 0.5");
    if (candidate.config.number("kc") == 256) return testing::failure(OutcomeKind::crashed, "signal 11");
    return Outcome{};
  };
  const BenchRow wrong = bench(8, &table);
  EXPECT_EQ(wrong.status, BenchStatus::mismatch);
  EXPECT_EQ(wrong.reason, "err_ratio 0.5");
  EXPECT_EQ(wrong.verdict, BenchVerdict::none);
  EXPECT_EQ(bench(16, &table).status, BenchStatus::error);
  const BenchRequest request{{shape_of(0)}, &table, nullptr, 5};
  EXPECT_THAT(bench_operator(device_, evaluator_, request, {}).front().reason, HasSubstr("M"));
}

TEST_F(Rows, WithoutABaselineTheTableIsTimedAlone) {
  device_.baseline_of = nullptr;
  const TunedTable table({row_of(8, "tiled_r1_kc128")});
  const BenchRow row = bench(8, &table);
  EXPECT_EQ(row.status, BenchStatus::ok);
  EXPECT_TRUE(row.microseconds);
  EXPECT_FALSE(row.other_microseconds || row.ratio);
  EXPECT_EQ(row.reason, "no vendor kernel");
}

BenchRow compared(double ratio, BenchVerdict verdict) {
  BenchRow row;
  row.status = BenchStatus::ok;
  row.microseconds = 10 * ratio;
  row.other_microseconds = 10;
  row.ratio = ratio;
  row.verdict = verdict;
  return row;
}

TEST(Improvement, NeedsThePercentAndTheProof) {
  EXPECT_EQ(improvement_of(compared(0.9, BenchVerdict::faster), 3), Improvement::update);
  EXPECT_NEAR(*improvement_percent(compared(0.9, BenchVerdict::faster)), 10, 1e-9);
  EXPECT_EQ(improvement_of(compared(0.98, BenchVerdict::faster), 3), Improvement::keep);
  EXPECT_EQ(improvement_of(compared(0.9, BenchVerdict::same), 3), Improvement::keep);
  EXPECT_EQ(improvement_of(compared(1.2, BenchVerdict::slower), 3), Improvement::keep);
  BenchRow wrong = compared(0.5, BenchVerdict::faster);
  wrong.status = BenchStatus::mismatch;
  EXPECT_EQ(improvement_of(wrong, 3), Improvement::keep);
  BenchRow fresh = compared(0.5, BenchVerdict::none);
  fresh.ratio.reset();
  fresh.other_microseconds.reset();
  EXPECT_EQ(improvement_of(fresh, 3), Improvement::fresh);
}

TEST_F(Rows, CheckSaysOfEveryRowWhatItIs) {
  std::vector<TunedEntry> entries{row_of(8, "tiled_r1_kc128"),  row_of(8, "tiled_r1_kc256"),
                                  row_of(16, "tiled_r1_kc128"), row_of(8, "asm_r1"),
                                  row_of(8, "narrow_r1"),       row_of(8, "tiled_r1_kc128"),
                                  row_of(8, "tiled_r1_kc128"),  row_of(0, "tiled_r1_kc128")};
  entries[5].gfx = "gfx942";
  entries[5].cu_num = 304;
  entries[6].gfx = "";
  evaluator_.at_m = [](const Problem& problem, const Candidate& candidate, std::int64_t m) {
    if (candidate.config.number("kc") == 256)
      return testing::failure(OutcomeKind::wrong, "a tile is missing");
    if (problem.m == 16 && m == 15) return testing::failure(OutcomeKind::wrong, "a row is missing");
    return Outcome{};
  };
  std::vector<std::size_t> seen;
  const auto checks =
      check_rows(device_, evaluator_, entries, [&](std::size_t i, const RowCheck&) { seen.push_back(i); });
  ASSERT_EQ(checks.size(), entries.size());
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(checks[0].state, RowCheckState::right) << checks[0].reason;
  EXPECT_LT(checks[0].err_ratio, 0.01);
  EXPECT_EQ(checks[1].state, RowCheckState::wrong);
  EXPECT_THAT(checks[1].reason, HasSubstr("a tile is missing"));
  EXPECT_EQ(checks[2].state, RowCheckState::wrong);
  EXPECT_THAT(checks[2].reason, HasSubstr("M = 15"));
  for (std::size_t i = 3; i < 8; ++i) EXPECT_EQ(checks[i].state, RowCheckState::not_runnable) << i;
  EXPECT_THAT(checks[3].reason, HasSubstr("asm"));
  EXPECT_THAT(checks[4].reason, HasSubstr("M above 4"));
  EXPECT_THAT(checks[5].reason, HasSubstr("gfx942"));
  EXPECT_THAT(checks[6].reason, HasSubstr("AMD"));
  EXPECT_THAT(checks[7].reason, HasSubstr("M"));
}

}  // namespace
}  // namespace gemmtune
