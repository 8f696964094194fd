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

TableSet table_of(std::vector<TunedEntry> rows) {
  TunedFile file;
  file.path = "rows.csv";
  file.entries = std::move(rows);
  return table_set_of(std::move(file));
}

class Rows : public ::testing::Test {
 protected:
  Rows() {
    device_.add({.name = "vendor", .tie_rank = 0});
    device_.add(
        {.name = "tiled", .parameters = {{"kc", {"128", "256"}, "", ""}, {"pdl", {"0", "1"}, "0", ""}}});
    device_.add({.name = "narrow",
                 .refusal = [](const Problem& problem) { return problem.m > 4 ? "M above 4" : ""; }});
    device_.add({.name = "fragile", .build_failure = [](const Problem&) { return "no registers left"; }});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [this](const Problem&, const Candidate& candidate) {
      return times_.at(candidate.kernel_name());
    };
  }
  BenchRow bench(std::int64_t m, const TableSet& table, const TableSet* against = nullptr,
                 BindRules rules = {}) {
    BenchRequest request{.shapes = {shape_of(m)}, .tables = table, .rules = rules};
    if (against != nullptr) request.against = LookupTables(*against);
    const auto rows = bench_operator(device_, evaluator_, request, {});
    EXPECT_EQ(rows.size(), 1U);
    return rows.front();
  }

  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  std::map<std::string, double> times_{{"vendor_r1", 100},
                                       {"tiled_r1_kc128", 80},
                                       {"tiled_r1_kc256", 125},
                                       {"narrow_r1", 50},
                                       {"tiled_r1_kc128_pdl1", 70}};
};

TEST_F(Rows, TheTablesKernelIsComparedWithTheBaselineInPairs) {
  const TableSet table = table_of({row_of(8, "tiled_r1_kc128"), row_of(32, "tiled_r1_kc256")});
  const BenchRow fast = bench(8, table);
  EXPECT_EQ(fast.status, BenchStatus::ok) << fast.reason;
  EXPECT_EQ(fast.kernel, "tiled_r1_kc128");
  EXPECT_EQ(fast.other_kernel, "vendor_r1");
  EXPECT_EQ(fast.match, Match::exact);
  EXPECT_NEAR(*fast.microseconds, 80, 0.5);
  EXPECT_NEAR(*fast.other_microseconds, 100, 0.5);
  EXPECT_NEAR(*fast.ratio, 0.8, 0.01);
  EXPECT_LE(fast.interval->low, *fast.ratio);
  EXPECT_GE(fast.interval->high, *fast.ratio);
  EXPECT_EQ(fast.verdict, BenchVerdict::win);
  const BenchRow slow = bench(31, table);
  EXPECT_EQ(slow.match, Match::fine);
  EXPECT_EQ(slow.hit_m, 32);
  EXPECT_EQ(slow.verdict, BenchVerdict::slower);
}

TEST_F(Rows, ARowThatCannotRunIsPassedOver) {
  const TableSet table =
      table_of({row_of(5, "narrow_r1"), row_of(16, "tiled_r1_kc128"), row_of(8, "asm_r1")});
  const BenchRow row = bench(5, table);
  EXPECT_EQ(row.kernel, "tiled_r1_kc128");
  EXPECT_EQ(row.match, Match::fine);
  const BenchRow untuned = bench(100, table);
  EXPECT_EQ(untuned.match, Match::untuned);
  EXPECT_EQ(untuned.kernel, "vendor_r1") << "the fallback";
  EXPECT_EQ(untuned.verdict, BenchVerdict::same_kernel) << "of itself";
  EXPECT_EQ(*untuned.ratio, 1);
}

// What dispatch refuses, bench refuses for the same reason: both texts are those of answer_problem().
TEST_F(Rows, ARowThatDispatchRefusesIsNotTimed) {
  const std::vector<TunedEntry> rows{row_of(8, "tiled_r1_kc128_pdl1"), row_of(16, "tiled_r1_kc256")};
  const TableSet table = table_of(rows);
  const BenchRow row = bench(8, table);
  EXPECT_EQ(row.kernel, "tiled_r1_kc256");
  EXPECT_TRUE(row.passed_rows);
  EXPECT_THAT(row.rule, HasSubstr("constant_weights and predecessor_triggers"));
  EXPECT_EQ(row.rule, answer_problem(device_, table, problem_of(8), {}).rule());
}

TEST_F(Rows, ARowOfAnotherEnvironmentIsPassedOverIfTheRulesAreStrict) {
  TunedEntry stale = row_of(8, "tiled_r1_kc128");
  stale.env = "0123456789";
  const TableSet table = table_of({stale, row_of(16, "tiled_r1_kc256")});
  EXPECT_EQ(bench(8, table).kernel, "tiled_r1_kc128");
  const BenchRow strict = bench(8, table, nullptr, {.strict_environment = true});
  EXPECT_EQ(strict.kernel, "tiled_r1_kc256");
  EXPECT_THAT(strict.rule, HasSubstr("environment 0123456789"));
}

TEST_F(Rows, ARowWhoseKernelIsNotBuiltIsPassedOver) {
  const TableSet table = table_of({row_of(8, "fragile_r1"), row_of(16, "tiled_r1_kc128")});
  EXPECT_EQ(bench(8, table).kernel, "tiled_r1_kc128");
  EXPECT_THAT(bench(8, table).rule, HasSubstr("no registers left"));
}

TEST_F(Rows, ARowIsTimedWithItsDependentKernelIfDispatchRunsThat) {
  TunedEntry both = row_of(8, "tiled_r1_kc128");
  both.pdl_kernel_name = "tiled_r1_kc128_pdl1";
  const TableSet table = table_of({both});
  EXPECT_EQ(bench(8, table).kernel, "tiled_r1_kc128");
  const BenchRow row = bench(8, table, nullptr, {.dependent_launches = true});
  EXPECT_EQ(row.kernel, "tiled_r1_kc128_pdl1");
  EXPECT_NEAR(*row.microseconds, 70, 0.5);
  EXPECT_THAT(row.rule, HasSubstr("programmatic dependent launch"));
}

TEST_F(Rows, APackedWeightIsTimedInTheLayoutOfMostRows) {
  device_.add({.name = "panels", .packed = WeightLayout::panel16});
  device_.add({.name = "blocks", .packed = WeightLayout::onednn});
  times_["panels_r1"] = 60;
  times_["blocks_r1"] = 30;
  std::vector<TunedEntry> rows{row_of(8, "blocks_r1"), row_of(16, "panels_r1"), row_of(32, "panels_r1")};
  for (TunedEntry& row : rows) {
    row.problem.weight_layout = WeightLayout::any;
  }
  const TableSet table = table_of(rows);
  ShapeRow shape;
  shape.problem = rows[0].problem;
  const BenchRequest request{.shapes = {shape}, .tables = table};
  const BenchRow row = bench_operator(device_, evaluator_, request, {}).front();
  EXPECT_EQ(row.kernel, "panels_r1") << "the weight is packed once, and most rows read panel16";
  EXPECT_THAT(row.rule, HasSubstr("passed over exact row, M = 8"));
}

TEST_F(Rows, OnlineRowsAnswerWhatTheTunedFilesDoNot) {
  const TableSet tuned = table_of({row_of(8, "tiled_r1_kc128")});
  const TableSet online = table_of({row_of(100, "tiled_r1_kc256")});
  const BenchRequest request{.shapes = {shape_of(100)}, .tables = {tuned, &online}};
  EXPECT_EQ(bench_operator(device_, evaluator_, request, {}).front().kernel, "tiled_r1_kc256");
}

TEST_F(Rows, ARegressionNeedsThePercentAndTheProof) {
  const TableSet table = table_of({row_of(8, "tiled_r1_kc256"), row_of(16, "tiled_r1_kc128")});
  const BenchRow slower = bench(8, table);
  ASSERT_TRUE(slower.certain_ratio);
  EXPECT_NEAR(*slower.certain_ratio, 1.25, 0.01);
  EXPECT_LE(*slower.certain_ratio, *slower.ratio);
  EXPECT_TRUE(is_regression(slower, 1));
  EXPECT_FALSE(is_regression(slower, 30)) << "not by that much";
  EXPECT_FALSE(is_regression(bench(16, table), 1)) << "it is faster";
  BenchRow unproven = slower;
  unproven.certain_ratio = 1.005;
  EXPECT_FALSE(is_regression(unproven, 1));
  unproven.certain_ratio.reset();
  EXPECT_FALSE(is_regression(unproven, 1)) << "one has no time";
}

TEST_F(Rows, EqualTimesAreTheSame) {
  times_["tiled_r1_kc128"] = 100;
  const TableSet table = table_of({row_of(8, "tiled_r1_kc128")});
  EXPECT_EQ(bench(8, table).verdict, BenchVerdict::undecided);
}

// The half-width of the interval of A against A is 0.1 % here.
TEST_F(Rows, ADifferenceThatAAgainstAShowsTooIsNone) {
  times_["tiled_r1_kc128"] = 97;
  const TableSet table = table_of({row_of(8, "tiled_r1_kc128")});
  EXPECT_EQ(bench(8, table).verdict, BenchVerdict::win);
  evaluator_.same_ratio = 0.95;
  EXPECT_EQ(bench(8, table).verdict, BenchVerdict::undecided);
}

TEST_F(Rows, TwoTablesAreComparedWithEachOther) {
  const TableSet after = table_of({row_of(8, "tiled_r1_kc128")});
  const TableSet before = table_of({row_of(8, "tiled_r1_kc256")});
  const BenchRow row = bench(8, after, &before);
  EXPECT_EQ(row.other_kernel, "tiled_r1_kc256");
  EXPECT_NEAR(*row.ratio, 80.0 / 125, 0.01);
}

TEST_F(Rows, WrongResultsAndErrorsAreStates) {
  const TableSet table = table_of({row_of(8, "tiled_r1_kc128"), row_of(16, "tiled_r1_kc256")});
  evaluator_.outcome = [](const Problem&, const Candidate& candidate) {
    if (candidate.config.number("kc") == 128) return testing::failure(OutcomeKind::wrong, "err_ratio 0.5");
    if (candidate.config.number("kc") == 256) return testing::failure(OutcomeKind::crashed, "signal 11");
    return Outcome{};
  };
  const BenchRow wrong = bench(8, table);
  EXPECT_EQ(wrong.status, BenchStatus::mismatch);
  EXPECT_EQ(wrong.reason, "err_ratio 0.5");
  EXPECT_EQ(wrong.verdict, BenchVerdict::none);
  EXPECT_EQ(bench(16, table).status, BenchStatus::error);
  const BenchRequest request{.shapes = {shape_of(0)}, .tables = table, .rounds = 5};
  EXPECT_THAT(bench_operator(device_, evaluator_, request, {}).front().reason, HasSubstr("M"));
}

TEST_F(Rows, WithoutADefaultTheTableIsTimedAlone) {
  device_.baseline_of = nullptr;
  device_.fallback_of = [](const Problem&) { return std::optional<Candidate>(); };
  const TableSet table = table_of({row_of(8, "tiled_r1_kc128")});
  const BenchRow row = bench(8, table);
  EXPECT_EQ(row.status, BenchStatus::ok);
  EXPECT_TRUE(row.microseconds);
  EXPECT_FALSE(row.other_microseconds || row.ratio);
  EXPECT_EQ(row.reason, "nothing runs untuned");
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
  EXPECT_EQ(improvement_of(compared(0.9, BenchVerdict::win), 3), Improvement::update);
  EXPECT_NEAR(*improvement_percent(compared(0.9, BenchVerdict::win)), 10, 1e-9);
  EXPECT_EQ(improvement_of(compared(0.98, BenchVerdict::win), 3), Improvement::keep);
  EXPECT_EQ(improvement_of(compared(0.9, BenchVerdict::undecided), 3), Improvement::keep);
  EXPECT_EQ(improvement_of(compared(1.2, BenchVerdict::slower), 3), Improvement::keep);
  BenchRow wrong = compared(0.5, BenchVerdict::win);
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

TEST_F(Rows, CheckLooksAtTheDependentKernelToo) {
  std::vector<TunedEntry> entries(3, row_of(8, "tiled_r1_kc128"));
  entries[0].pdl_kernel_name = "tiled_r1_kc128_pdl1";
  entries[1].pdl_kernel_name = "tiled_r1_kc256_pdl1";
  entries[2].pdl_kernel_name = "gone_r1_pdl1";
  evaluator_.at_m = [](const Problem&, const Candidate& candidate, std::int64_t) {
    return is_dependent(candidate.config) && candidate.config.number("kc") == 256
               ? testing::failure(OutcomeKind::wrong, "it did not wait")
               : Outcome{};
  };
  const auto checks = check_rows(device_, evaluator_, entries, {});
  EXPECT_EQ(checks[0].state, RowCheckState::right) << checks[0].reason;
  EXPECT_EQ(checks[1].state, RowCheckState::wrong);
  EXPECT_THAT(checks[1].reason, HasSubstr("it did not wait"));
  EXPECT_EQ(checks[2].state, RowCheckState::not_runnable);
  EXPECT_THAT(checks[2].reason, HasSubstr("gone"));
}

TEST_F(Rows, CheckRefusesADependentLaunchInThePlainColumn) {
  const std::vector<TunedEntry> entries{row_of(8, "tiled_r1_kc128_pdl1")};
  const auto checks = check_rows(device_, evaluator_, entries, {});
  EXPECT_EQ(checks[0].state, RowCheckState::not_runnable) << "dispatch never runs it";
}

}  // namespace
}  // namespace gemmtune
