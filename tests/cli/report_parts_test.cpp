// What reports of `tune` share.
#include "cli/shared/report_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "cli/tune/tune_report.h"

namespace gemmtune::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Trial trial(const std::string& family, OutcomeKind kind, const std::string& reason = {}) {
  Trial one;
  one.candidate.family = family;
  one.candidate.config.set("r", std::int64_t{64});
  one.outcome.kind = kind;
  one.outcome.reason = reason;
  return one;
}

TEST(FailedFamilies, AFamilyNoneOfWhoseKernelsRanIsNamedWithTheFirstReason) {
  ItemReport first;
  first.trials = {trial("tiled", OutcomeKind::ok), trial("skinny", OutcomeKind::build_failed, "error: no")};
  ItemReport second;
  second.trials = {trial("skinny", OutcomeKind::build_failed, "another"),
                   trial("skinny", OutcomeKind::wrong)};
  EXPECT_THAT(failed_families({first, second}),
              ElementsAre(AllOf(
                  StartsWith("family skinny: none of 3 kernels ran (2 build_failed, 1 wrong); the first, "
                             "skinny_r1_r64: error: no; repeat: gemmtune check --problem 'a16w16 "),
                  EndsWith("' --kernel skinny_r1_r64"))));
}

TEST(FailedFamilies, OneThatRanSomewhereOrOnlyRefusedIsNot) {
  ItemReport first;
  first.trials = {trial("skinny", OutcomeKind::crashed, "gone"), trial("naive", OutcomeKind::refused, "M")};
  ItemReport second;
  second.trials = {trial("skinny", OutcomeKind::ok), trial("slow", OutcomeKind::too_slow, "1 s")};
  EXPECT_THAT(failed_families({first, second}), IsEmpty());
}

ItemReport reported(Verdict verdict, double speedup, std::optional<std::int64_t> ties) {
  ItemReport report;
  report.state = verdict == Verdict::keep_default ? ProblemState::kept_default : ProblemState::tuned;
  TunedEntry& row = report.rows.emplace_back();
  row.kernel_name = "tiled_r1_kc2";
  row.us = 12.345;
  row.speedup = speedup;
  row.verdict = verdict;
  row.ties = ties;
  return report;
}

TEST(GainInterval, IsOfTheRowsOwnIntervals) {
  TunedEntry win;
  win.kernel_name = "tiled_r1";
  win.default_kernel = "onednn_r1";
  win.speedup = 2;
  win.speedup_low = 2 / 1.1;
  win.speedup_high = 2 * 1.1;
  TunedEntry kept;
  kept.kernel_name = kept.default_kernel = "onednn_r1";
  kept.speedup = 1;
  const std::vector<TunedEntry> rows = {win, kept, win, kept};
  const auto interval = gain_interval(rows);
  ASSERT_TRUE(interval.has_value());
  const double half = std::sqrt(2.0) * std::log(1.1) / 4;  // two of four rows may be off, each on its own
  EXPECT_NEAR(interval->low, std::sqrt(2.0) * std::exp(-half), 1e-9);
  EXPECT_NEAR(interval->high, std::sqrt(2.0) * std::exp(half), 1e-9);
  win.speedup_low.reset();
  EXPECT_FALSE(gain_interval(std::vector<TunedEntry>{win}).has_value())
      << "an old row says nothing of how sure it is";
  EXPECT_FALSE(gain_interval({}).has_value());
}

TEST(ShellWord, QuotesWhatAShellReads) {
  EXPECT_EQ(shell_word("a/b_c-1.csv"), "a/b_c-1.csv");
  EXPECT_EQ(shell_word("it's here"), "'it'\\''s here'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(RowsToRepeat, UndecidedRowsAndThoseOfABusyMachineAreNamedWithTheReason) {
  RunSummary summary;
  summary.items = {reported(Verdict::win, 1.9, 0), reported(Verdict::undecided, 1.02, 0),
                   reported(Verdict::win, 1.5, 0)};
  for (std::size_t i = 0; i < summary.items.size(); ++i) {
    Problem& problem = summary.items[i].shape.problem;
    problem.m = static_cast<std::int64_t>(i) + 1;
    problem.n = problem.k = 64;
  }
  summary.items[1].quietness = {60, 5, 9};
  summary.items[1].noise_floor = 0.043;
  summary.items[2].quietness = {30, 10, 20};
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  const std::string text = ending_text({summary, shapes, outputs, device});
  EXPECT_THAT(text, ::testing::HasSubstr("2 rows to repeat on a quiet machine"));
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "2x64x64 bf16: undecided: in 60 rounds one kernel differed from itself by 4.3 %"));
  EXPECT_THAT(text, ::testing::HasSubstr("3x64x64 bf16: busy machine: 10 of 30 rounds were disturbed"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("1x64x64 bf16: ")));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "repeat the first: gemmtune tune --problem 'a16w16 m=2 n=64 .*' --all -o "));
  EXPECT_THAT(text, ::testing::HasSubstr("2 of 3 shapes won"));
  const auto json = nlohmann::json::parse(ending_json({summary, shapes, outputs, device}));
  ASSERT_EQ(json["repeat"].size(), 2U);
  EXPECT_THAT(json["repeat"][0]["problem"].get<std::string>(), ::testing::HasSubstr("m=2 "));
  EXPECT_EQ(json["repeat"][0]["why"], json["problems"][1]["repeat"]);
}

TEST(VerdictText, ATieThatBeatsTheDefaultReadsAsAWinWithItsTiesBehind) {
  EXPECT_EQ(result_text(reported(Verdict::win, 1.9, 3)), "win 1.900x: tiled_r1_kc2 12.35 µs, 3 ties");
  EXPECT_EQ(result_text(reported(Verdict::win, 1.9, 1)), "win 1.900x: tiled_r1_kc2 12.35 µs, 1 tie");
  EXPECT_EQ(result_text(reported(Verdict::win, 1.9, 0)), "win 1.900x: tiled_r1_kc2 12.35 µs");
}

TEST(VerdictText, OthersSayWhatTheyAre) {
  EXPECT_EQ(result_text(reported(Verdict::keep_default, 1, std::nullopt)), "default: tiled_r1_kc2 12.35 µs");
  EXPECT_EQ(result_text(reported(Verdict::undecided, 0.98, 2)),
            "undecided 0.980x: tiled_r1_kc2 12.35 µs, 2 ties");
}

ItemReport with_wrong_default() {
  ItemReport report = reported(Verdict::default_wrong, 1, 0);
  report.rows[0].speedup.reset();
  report.rows[0].default_kernel = "vendor_r1_sk9";
  report.default_fault = "a row is outside of its error bound: row 5 (7.9 times the bound)";
  return report;
}

TEST(VerdictText, AWrongDefaultIsSaidWithItsFaultAndKernel) {
  EXPECT_EQ(
      result_text(with_wrong_default()),
      "default is wrong: a row is outside of its error bound: row 5 (7.9 times the bound) (vendor_r1_sk9): "
      "tiled_r1_kc2 12.35 µs");
}

TEST(VerdictText, AWrongDefaultIsCountedAndIsNoFailure) {
  RunSummary summary;
  summary.items = {reported(Verdict::win, 1.9, 3), with_wrong_default()};
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  const RunEnding ending{summary, shapes, outputs, device};
  EXPECT_THAT(ending_text(ending), ::testing::HasSubstr("the default is wrong for 1 shape"));
  EXPECT_THAT(ending_text(ending), ::testing::ContainsRegex("default_wrong +- "));
  const auto json = nlohmann::json::parse(ending_json(ending));
  EXPECT_EQ(json["default_wrong"], 1);
  EXPECT_EQ(json["problems"][1]["verdict"], "default_wrong");
  EXPECT_EQ(json["problems"][1]["default_fault"], with_wrong_default().default_fault);
  EXPECT_FALSE(json["problems"][0].contains("default_fault"));
  EXPECT_EQ(ending_code(ending), 0);
}

TEST(VerdictText, AnUntimedDefaultIsSaidCountedAndAFinding) {
  RunSummary summary;
  ItemReport untimed = reported(Verdict::default_untimed, 1, 0);
  untimed.rows[0].speedup.reset();
  untimed.rows[0].default_kernel = "vendor_r1";
  untimed.default_fault = "timed_out: did not end within 5 s; its worker was killed";
  EXPECT_EQ(
      result_text(untimed),
      "default could not be timed: timed_out: did not end within 5 s; its worker was killed (vendor_r1): "
      "tiled_r1_kc2 12.35 µs");
  summary.items = {reported(Verdict::win, 1.9, 3), untimed};
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  const RunEnding ending{summary, shapes, outputs, device};
  EXPECT_THAT(ending_text(ending), ::testing::HasSubstr("the default could not be timed for 1 shape"));
  const auto json = nlohmann::json::parse(ending_json(ending));
  EXPECT_EQ(json["default_untimed"], 1);
  EXPECT_EQ(json["default_wrong"], 0);
  EXPECT_EQ(json["problems"][1]["verdict"], "default_untimed");
  EXPECT_EQ(ending_code(ending), 1);
}

TEST(Endings, ABudgetThatProvesNoRowIsAFinding) {
  RunSummary summary;
  summary.items.emplace_back().state = ProblemState::out_of_budget;
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  EXPECT_EQ(ending_code({summary, shapes, outputs, device}), 1);
  EXPECT_THAT(ending_text({summary, shapes, outputs, device}),
              ::testing::HasSubstr("the budget ended before a row was proved"));
  summary.items.push_back(reported(Verdict::win, 1.9, 3));
  EXPECT_EQ(ending_code({summary, shapes, outputs, device}), 0);
}

TEST(Endings, WaitsForOthersAndInterruptedShapesAreCountedApart) {
  RunSummary summary;
  summary.items = {reported(Verdict::win, 1.9, 3)};
  summary.items.emplace_back().state = ProblemState::interrupted;
  summary.waited_seconds = 34;
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  const RunEnding ending{summary, shapes, outputs, device};
  const std::string text = ending_text(ending);
  EXPECT_THAT(text, ::testing::HasSubstr("0 failed, 1 interrupted"));
  EXPECT_THAT(text, ::testing::HasSubstr("waited 34 s for other programs"));
  const auto json = nlohmann::json::parse(ending_json(ending));
  EXPECT_EQ(json["waited_seconds"], 34);
  EXPECT_EQ(json["states"]["interrupted"], 1);
}

TEST(VerdictText, TheTableHasTheIntervalBehindTheSpeedUp) {
  RunSummary summary;
  summary.items = {reported(Verdict::win, 1.9, 3)};
  summary.items[0].rows[0].speedup_low = 1.85;
  summary.items[0].rows[0].speedup_high = 1.973;
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  EXPECT_THAT(ending_text({summary, shapes, outputs, device}),
              ::testing::ContainsRegex("win +1\\.900x +1\\.850 to 1\\.973 +3 "));
  const auto json = nlohmann::json::parse(ending_json({summary, shapes, outputs, device}));
  EXPECT_EQ(json["problems"][0]["speedup_low"], 1.85);
  EXPECT_EQ(json["problems"][0]["speedup_high"], 1.973);
}

TEST(VerdictText, TheTableHasVerdictSpeedUpAndTiesBeforeTheTimes) {
  RunSummary summary;
  summary.items = {reported(Verdict::win, 1.9, 3)};
  const ShapeList shapes;
  const Outputs outputs;
  const DeviceInfo device;
  const std::string text = ending_text({summary, shapes, outputs, device});
  const auto at = [&](std::string_view part) { return text.find(part); };
  EXPECT_LT(at("verdict"), at("speed-up"));
  EXPECT_LT(at("speed-up"), at("ties"));
  EXPECT_LT(at("ties"), at("default µs"));
  EXPECT_THAT(text, ::testing::ContainsRegex("win +1\\.900x +- +3 "));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("tie ")));
}

}  // namespace
}  // namespace gemmtune::cli
