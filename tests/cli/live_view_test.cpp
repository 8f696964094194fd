#include "cli/tune/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/shared/console.h"

namespace gemmtune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(LiveView, ARunWithTwoWorkers) {
  LiveRun run;
  run.shapes = {ShapeState::tuned,   ShapeState::keeps_default, ShapeState::undecided, ShapeState::failed,
                ShapeState::in_work, ShapeState::left,          ShapeState::waiting,   ShapeState::waiting};
  run.seconds = 30;
  run.remaining = 90;
  run.candidates = 60;
  run.gain = 1.25;
  run.workers = {{"cpu:0", "16x2048x8192 bf16", "12 finalists in 15 rounds", 4.2, 37, 10.0, 12.0},
                 {"cpu:1", "", "", 0, 0, {}, {}}};
  EXPECT_THAT(
      live_lines(run, 200),
      ElementsAre("▕██████                  ▏  25 %  4 of 8 shapes  ETA 90 s  2.0 candidates/s",
                  "gain 1.250x so far  ░ 1 visited  █ 1 tuned  ▄ 1 default  ? 1 undecided  × 1 failed",
                  "█▄?×▶░··",
                  "cpu:0  16x2048x8192 bf16  12 finalists in 15 rounds 4 s  37 candidates, best 10.00 µs, "
                  "default 12.00 µs",
                  "cpu:1  idle"));
}

TEST(LiveView, LinesFitAndManyShapesShareSigns) {
  LiveRun run;
  run.shapes.assign(1000, ShapeState::waiting);
  std::fill(run.shapes.begin(), run.shapes.begin() + 500, ShapeState::tuned);
  run.step = "confirmation 3 of 1000: " + std::string(300, 'x');
  run.workers.assign(40, {"cuda:0", std::string(100, 'n'), "searches", 0, 0, {}, {}});
  const auto lines = live_lines(run, 40);
  for (const std::string& line : lines) EXPECT_LE(width(line), 40U) << line;
  std::string strip;
  for (int i = 0; i < 40; ++i) strip += i < 20 ? "█" : "·";
  EXPECT_EQ(lines[2], strip);
  EXPECT_THAT(lines.back(), StartsWith("and 24 other workers"));
  run.step.clear();
  EXPECT_THAT(live_lines(run, 120)[0], HasSubstr(" 50 %  500 of 1000 shapes"))
      << "of the shapes, where no time is known";
}

TEST(LiveView, NothingYet) {
  const auto lines = live_lines({}, 80);
  EXPECT_THAT(lines[0], HasSubstr("0 of 0 shapes"));
  EXPECT_EQ(lines[1], "no row yet");
  EXPECT_THAT(lines[0], Not(HasSubstr("ETA")));
}

TEST(LiveView, AWorkerInFinalsShowsTheRatioOfItsRounds) {
  EXPECT_EQ(ratio_text({"tiled_r1", 1.2345, {1.201, 1.26}, 15}), "1.234x (1.201 to 1.260 in 15 rounds)");
  LiveRun run;
  run.shapes = {ShapeState::in_work};
  LiveWorker& worker = run.workers.emplace_back();
  worker.shape = "8x64x64";
  worker.best_microseconds = 12;
  worker.ratio = PairedRatio{"tiled_r1", 1.5, {1.4, 1.6}, 3};
  EXPECT_THAT(live_lines(run, 120).back(), HasSubstr("1.500x (1.400 to 1.600 in 3 rounds)"));
}

TEST(LiveView, StatesOfReports) {
  ItemReport report;
  report.state = ProblemState::failed;
  EXPECT_EQ(state_of(report), ShapeState::failed);
  report.state = ProblemState::out_of_budget;
  EXPECT_EQ(state_of(report), ShapeState::not_tuned);
  report.rows.emplace_back();
  report.state = ProblemState::kept_default;
  EXPECT_EQ(state_of(report), ShapeState::keeps_default);
  report.rows.front().verdict = Verdict::undecided;
  EXPECT_EQ(state_of(report), ShapeState::undecided);
  report.state = ProblemState::tuned;
  report.rows.front().verdict = Verdict::win;
  EXPECT_EQ(state_of(report), ShapeState::tuned);
}

}  // namespace
}  // namespace gemmtune::cli
