// Recordings: what was measured is answered again without a machine, two replays are the same, the simulated
// clock lets budgets and the estimate of the remaining time be tested.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "evaluate/forwarding_evaluator.h"
#include "evaluate/replay/recording_evaluator.h"
#include "evaluate/replay/replay_device.h"
#include "evaluate/replay/replay_evaluator.h"
#include "support/paper_device.h"
#include "tuning/time_estimate.h"
#include "tuning/tuner.h"

namespace gemmtune::replay_test {
namespace {

using ::testing::ElementsAre;
using testing::FakeEvaluator;
using ::testing::HasSubstr;
using testing::PaperDevice;

struct SilentObserver : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
};

ShapeRow shape(std::int64_t m, std::int64_t n = 64, std::int64_t k = 64) {
  ShapeRow row;
  row.problem.m = m;
  row.problem.n = n;
  row.problem.k = k;
  return row;
}

Candidate tiled(std::int64_t kc) {
  Candidate candidate{"tiled", 1, {}};
  candidate.config.set("kc", kc);
  return candidate;
}

/// A clock that goes on while the inner evaluator works: 1 ms a candidate, and 3 ms a sample.
class Working final : public ForwardingEvaluator {
 public:
  explicit Working(FakeEvaluator& inner) : ForwardingEvaluator(inner) {}
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    auto outcomes = inner().screen(problem, candidates, samples, stop);
    for (const Outcome& outcome : *outcomes)
      seconds += 1e-3 + 3e-3 * static_cast<double>(outcome.microseconds.size());
    return outcomes;
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    seconds += 3e-3 * rounds * static_cast<double>(candidates.size());
    return inner().take_rounds(kind, problem, candidates, rounds);
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    seconds += 5e-3;
    return inner().check_neighbour_m(problem, candidate, m);
  }
  double seconds = 0;
};

/// Every sample of every candidate of a recording, in order.
std::string samples_of(const Recording& recording) {
  std::string text;
  for (const RecordedProblem& problem : recording.problems) {
    for (const RecordedScreening& call : problem.screenings)
      text += fmt::format("{} {} {}\n", print(problem.problem), call.candidate,
                          fmt::join(call.outcome.microseconds, " "));
  }
  return text;
}

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    std::string pattern = ::testing::TempDir() + "gemmtune_replay_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/run.jsonl";
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device_.add({.name = "tiled",
                 .parameters = {{"kc", {"128", "256", "512", "1024"}, "", ""}, {"sk", {"1", "2"}, "1", ""}},
                 .predicted = [](const Problem&, const Config& config) {
                   return static_cast<double>(config.number("kc"));
                 }});
    device_.add({.name = "narrow", .parameters = {}, .refusal = [](const Problem& problem) {
                   return problem.m > 4 ? "M above 4" : "";
                 }});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    fake_.time = [](const Problem& problem, const Candidate& candidate) {
      const double best = problem.m < 20 ? 256 : 512;
      return candidate.family == "vendor"
                 ? 100.0
                 : 60 + std::abs(static_cast<double>(candidate.config.number("kc")) - best) / 8;
    };
    request_.output = folder_ + "/tuned.csv";
    request_.strategy = "exhaustive";
    for (const std::int64_t m : {3, 8, 16, 32}) request_.shapes.push_back(shape(m));
    request_.shapes[1].calls = 7;
  }
  ~ReplayTest() override { std::filesystem::remove_all(folder_); }

  RunSummary record() {
    auto writer = RecordingWriter::open(path_, recorded_run(device_, request_.policy, 0.05));
    EXPECT_TRUE(writer.ok()) << writer.message();
    Working working(fake_);
    RecordingEvaluator evaluator(working, *writer, device_, request_.shapes, [&] { return working.seconds; });
    request_.clock = [&] { return working.seconds; };
    SilentObserver observer;
    auto summary = tune(device_, evaluator, request_, observer);
    EXPECT_TRUE(summary.ok()) << summary.message();
    return *summary;
  }
  Recording recording() const {
    auto read = read_recording(path_);
    EXPECT_TRUE(read.ok()) << read.message();
    return read.ok() ? std::move(*read) : Recording();
  }
  RunSummary replay(const Recording& recording, std::uint64_t seed = 1) {
    ReplayDevice device(recording);
    ReplayEvaluator evaluator(recording, seed);
    request_.clock = [&] { return evaluator.seconds(); };
    request_.output = folder_ + fmt::format("/replayed{}.csv", ++replays_);
    SilentObserver observer;
    auto summary = tune(device, evaluator, request_, observer);
    EXPECT_TRUE(summary.ok()) << summary.message();
    return *summary;
  }

  std::string folder_;
  std::string path_;
  PaperDevice device_;
  FakeEvaluator fake_;
  TuneRequest request_;
  int replays_ = 0;
};

TEST_F(ReplayTest, TheSameRunGivesTheSameFileAndTakesTheSameTime) {
  const RunSummary before = record();
  const std::string file = *read_file(request_.output);
  const Recording read = recording();
  EXPECT_EQ(read.problems.size(), 4U);
  EXPECT_EQ(read.problems[1].calls, 7);
  EXPECT_EQ(read.problems[1].baseline, "vendor_r1");
  EXPECT_EQ(read.problems[1].spaces[2].refusal, "M above 4");
  EXPECT_EQ(read.problems[1].spaces[1].configs.size(), 8U);
  const RunSummary after = replay(read);
  EXPECT_EQ(*read_file(request_.output), file) << "every row, every number";
  EXPECT_NEAR(after.seconds, before.seconds, 0.05 * before.seconds);
  EXPECT_EQ(after.items[1].refusals, before.items[1].refusals);
}

TEST_F(ReplayTest, TwoReplaysOfAnotherSearchAreTheSame) {
  record();
  const Recording read = recording();
  request_.strategy = "staged";
  request_.policy.finalists = 3;
  request_.policy.screening_samples = 5;  // more than were recorded
  replay(read);
  const std::string first = *read_file(request_.output);
  replay(read);
  EXPECT_EQ(*read_file(request_.output), first);
  EXPECT_THAT(first, HasSubstr("tiled_r1_kc256"));
  EXPECT_THAT(first, HasSubstr("tiled_r1_kc512"));
}

TEST_F(ReplayTest, WhatWasNotRecordedIsRefused) {
  request_.libtypes = {"tiled"};
  record();
  request_.libtypes.clear();
  const RunSummary summary = replay(recording());
  for (const Trial& trial : summary.items[0].trials) {
    if (trial.candidate.family != "narrow") continue;
    EXPECT_EQ(trial.outcome.kind, OutcomeKind::refused);
    EXPECT_THAT(trial.outcome.reason, HasSubstr("not in the recording"));
  }
  request_.shapes.push_back(shape(99));
  EXPECT_EQ(replay(recording()).items[4].state, ProblemState::unsupported);
}

TEST_F(ReplayTest, RoundsAreDrawnWholeSoThatPairsStayPairs) {
  Recording made;
  made.run = recorded_run(device_, request_.policy, 0.05);
  RecordedProblem& problem = made.problems.emplace_back();
  problem.problem = shape(8).problem;
  RecordedFinals finals{{tiled(128).kernel_name(), tiled(256).kernel_name()}, {}, 1};
  finals.result.outcomes.resize(2);
  for (const double drift : {1.0, 2.0, 3.0}) finals.result.times.push_back({10 * drift, 20 * drift});
  problem.finals.push_back(finals);
  ReplayEvaluator evaluator(made, 1);
  const auto answer = evaluator.finals(problem.problem, std::vector{tiled(128), tiled(256)}, 40);
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->times.size(), 40U);
  EXPECT_THAT(answer->times[2], ElementsAre(30, 60)) << "first those that were recorded, in order";
  bool varied = false;
  for (const auto& round : answer->times) {
    EXPECT_DOUBLE_EQ(round[1] / round[0], 2);
    varied = varied || round[0] != answer->times[3][0];
  }
  EXPECT_TRUE(varied);
  EXPECT_NEAR(evaluator.seconds(), 40.0 / 3, 0.01);
}

TEST_F(ReplayTest, ABudgetIsSpentOnTheSimulatedClock) {
  record();
  const Recording read = recording();
  const double whole = replay(read).seconds;
  request_.budget_seconds = whole / 2;
  const RunSummary half = replay(read);
  EXPECT_LT(half.seconds, 0.7 * whole);
  EXPECT_GT(half.seconds, 0.2 * whole);
}

TEST_F(ReplayTest, ARecordingGoesOnAndForgivesALineThatWasCutOff) {
  record();
  const std::string whole = *read_file(path_);
  ASSERT_TRUE(write_file_atomically(path_, whole.substr(0, whole.size() - 20)).ok());
  request_.all = true;
  record();
  const Recording read = recording();
  EXPECT_EQ(read.damaged_lines, 1U);
  EXPECT_EQ(read.problems.size(), 4U) << "a problem that stands twice is one";
  Policy other;
  other.warmup = 99;
  EXPECT_THAT(RecordingWriter::open(path_, recorded_run(device_, other, 0.05)).message(),
              HasSubstr("another device, build or policy"));
}

TEST_F(ReplayTest, ACompressedRecordingIsReadAndNotContinued) {
  record();
  const std::string plain = samples_of(recording());
  ASSERT_EQ(std::system(fmt::format("gzip -n '{}' && mv '{}.gz' '{}'", path_, path_, path_).c_str()), 0);
  EXPECT_EQ(samples_of(recording()), plain);
  EXPECT_THAT(RecordingWriter::open(path_, recorded_run(device_, request_.policy, 0.05)).message(),
              HasSubstr("run.jsonl: is compressed"));
  const std::string whole = *read_file(path_);
  ASSERT_TRUE(write_file_atomically(path_, whole.substr(0, whole.size() / 2)).ok());
  EXPECT_THAT(read_recording(path_).message(), HasSubstr("run.jsonl: compressed data: cut off"));
}

TEST_F(ReplayTest, DamagedRecordingsAreToldWithTheirLine) {
  const auto message = [&](const std::string& content) {
    EXPECT_TRUE(write_file_atomically(path_, content).ok());
    return read_recording(path_).message();
  };
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("M,N,K\n1,2,3\n"), HasSubstr("run.jsonl:1: no recording"));
  EXPECT_THAT(message("{\"line\": \"recording\", \"version\": 99}\n"), HasSubstr("recording version 99"));
  std::filesystem::remove(path_);
  record();
  const std::string whole = *read_file(path_);
  EXPECT_THAT(message(whole + "{\"line\": \"screen\", \"problem\": 77}\n"), HasSubstr("problem 77"));
  EXPECT_THAT(message(whole + "{\"line\": \"screen\"}\n"), HasSubstr("problem"));
}

// ---- the estimate of the remaining time

TEST(TimeEstimate, OfNothingDoneNothingIsKnownButTheBudget) {
  const ShapeCost waiting = {1, 1};
  EXPECT_EQ(estimate_remaining({}, waiting, std::nullopt), std::nullopt);
  EXPECT_EQ(estimate_remaining({}, waiting, 12.0), 12.0);
  DoneShapes done;
  done.add({1, 1}, 100);
  EXPECT_EQ(estimate_remaining(done, waiting, 12.0), 12.0);
  EXPECT_EQ(estimate_remaining(done, {}, std::nullopt), 0.0);
}

TEST(TimeEstimate, LargeShapesAreNotTakenForSmallOnes) {
  DoneShapes done;
  for (const double size : {0.1, 0.3, 0.6}) done.add({1, size}, 2 + 10 * size);
  const ShapeCost waiting = {1, 50};
  EXPECT_NEAR(*estimate_remaining(done, waiting, std::nullopt), 502, 0.25 * 502);
}

TEST(TimeEstimate, SeveralEvaluatorsShareOutWhatRemains) {
  PaperDevice device;
  device.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
  TuneRequest request;
  double now = 100;
  request.clock = [&] { return now; };
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < 10; ++i) {
    request.shapes.push_back(shape(16, 1024, 1024));
    waiting.push_back(i);
  }
  RunEstimate estimate(device, request);
  estimate.begin(waiting, 2);
  estimate.started(0);
  estimate.started(1);
  EXPECT_EQ(estimate.remaining(), std::nullopt);
  now += 10;
  estimate.done(0, 10);
  estimate.started(2);
  estimate.done(1, 10);
  estimate.started(3);
  EXPECT_NEAR(*estimate.remaining(), 40, 0.1) << "eight shapes of 10 s by two";
  now += 4;
  EXPECT_NEAR(*estimate.remaining(), 36, 0.1);
  for (std::size_t i = 2; i < 9; ++i) estimate.done(i, 10);
  estimate.started(9);
  EXPECT_NEAR(*estimate.remaining(), 10, 0.1) << "the last shape is one evaluator's";
}

/// One of a library, and a family of 139.
void add_140_kernels(PaperDevice& device) {
  Parameter kc{"kc", {}, "", ""};
  for (int i = 1; i <= 139; ++i) kc.values.push_back(std::to_string(i));
  device.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
  device.add({.name = "tiled", .parameters = {kc}});
}

TEST(TimeEstimate, TheFirstShapeIsEstimatedFromItsCandidates) {
  PaperDevice device;
  add_140_kernels(device);
  TuneRequest request;
  request.strategy = "exhaustive";
  double now = 100;
  request.clock = [&] { return now; };
  request.shapes = {shape(16, 1024, 1024)};
  RunEstimate estimate(device, request);
  estimate.begin(std::vector<std::size_t>{0}, 1);
  estimate.started(0);
  now += 20;
  EXPECT_EQ(estimate.remaining(), std::nullopt) << "nothing was tried";
  for (int i = 0; i < 20; ++i) estimate.tried(0);
  // 20 of 140 candidates and of finals that cost as much as 60.
  EXPECT_NEAR(*estimate.remaining(), 180, 1);
  now += 30;
  EXPECT_NEAR(*estimate.remaining(), 150, 1) << "seconds without an event make nothing longer";
}

TEST(TimeEstimate, FinalsShortenTheRest) {
  PaperDevice device;
  add_140_kernels(device);
  TuneRequest request;
  request.strategy = "exhaustive";
  double now = 0;
  request.clock = [&] { return now; };
  request.shapes = {shape(16, 1024, 1024)};
  RunEstimate estimate(device, request);
  estimate.begin(std::vector<std::size_t>{0}, 1);
  estimate.started(0);
  now = 60;
  for (int i = 0; i < 60; ++i) estimate.tried(0);
  EXPECT_NEAR(*estimate.remaining(), 140, 1) << "80 candidates and finals of 60";
  const int first = interim_rounds(request.policy.round_limit).front();
  now = 90;
  estimate.rounds(0, first);
  // The search ended after 60 candidates; half of the finals, as much as 30 candidates, took 30 s.
  EXPECT_NEAR(*estimate.remaining(), 30, 1);
}

TEST(TimeEstimate, OfManyShapesSomeAreLookedAt) {
  PaperDevice device;
  int asked = 0;
  device.add({.name = "vendor", .tie_rank = 0, .parameters = {}, .refusal = [&](const Problem&) {
                ++asked;
                return "";
              }});
  TuneRequest request;
  double now = 0;
  request.clock = [&] { return now; };
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < 20000; ++i) {
    request.shapes.push_back(shape(static_cast<std::int64_t>(1 + i), 64, 64));
    waiting.push_back(i);
  }
  RunEstimate estimate(device, request);
  estimate.begin(waiting, 1);
  EXPECT_LT(asked, 1000);
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    estimate.started(i);
    now += 1;
    estimate.done(i, i % 2 == 0 ? 1 : 0);
    ASSERT_TRUE(estimate.remaining().has_value());
  }
  EXPECT_NEAR(*estimate.remaining(), 0, 1);
}

/// Times a run on a machine unlike the imagined one: what was estimated after the first tenth of the time.
struct TenthObserver final : SilentObserver {
  TenthObserver(const Device& device, const TuneRequest& request) : estimate(device, request) {}
  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override {
    estimate.begin(waiting, evaluators);
  }
  void problem_started(std::size_t index, std::size_t, const ShapeRow&) override { estimate.started(index); }
  void problem_done(std::size_t index, const ItemReport& report) override {
    estimate.done(index, report.seconds);
    gone += report.seconds;
    estimates.emplace_back(gone, estimate.remaining().value_or(-1));
  }
  RunEstimate estimate;
  double gone = 0;
  std::vector<std::pair<double, double>> estimates;  // seconds gone, seconds that were thought to be left
};

/// A recording of `machine` seconds a call and a constant cost a candidate, without running anything.
Recording synthetic(const PaperDevice& device, const std::vector<ShapeRow>& shapes, double constant_seconds,
                    double call_seconds_factor) {
  Recording made;
  made.run = recorded_run(device, Policy(), 0.05);
  for (const ShapeRow& row : shapes) {
    RecordedProblem& problem = made.problems.emplace_back();
    problem.problem = row.problem;
    problem.baseline = "vendor_r1";
    problem.fallback = "vendor_r1";
    const double us = call_seconds_factor * expected_microseconds(row.problem);
    RecordedSpace vendor{"vendor", "", {}, {}, "vendor_r1", {{"vendor_r1", 0, 0}}};
    RecordedSpace space{"tiled", "", {{"kc", {}, "", ""}}, {}, "tiled_r1_kc1", {}};
    Random random(hash64(print(row.problem)));
    const auto screening = [&](const std::string& name, double time) {
      RecordedScreening call{name, {}, 0};
      for (int i = 0; i < 3; ++i) call.outcome.microseconds.push_back(time * (1 + 0.02 * random.uniform()));
      call.seconds = constant_seconds + 20e-6 * time + 3e-6 * std::max(time, 2000.0);
      problem.screenings.push_back(call);
    };
    screening("vendor_r1", us);
    for (int kc = 1; kc <= 60; ++kc) {
      const std::string name = fmt::format("tiled_r1_kc{}", kc);
      space.parameters[0].values.push_back(std::to_string(kc));
      space.configs.push_back({name, 0, 0});
      screening(name, us * (0.8 + 0.02 * kc));
    }
    problem.spaces = {vendor, space};
  }
  return made;
}

class EstimateOfARun : public ::testing::TestWithParam<double> {};

TEST_P(EstimateOfARun, IsWithinAQuarterAfterTheFirstTenth) {
  PaperDevice device;
  device.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
  device.add({.name = "tiled", .parameters = {{"kc", {"1"}, "", ""}}});
  TuneRequest request;
  const std::vector<std::pair<std::int64_t, std::int64_t>> weights = {
      {3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}, {8192, 1024}, {1024, 512}};
  for (const auto& [n, k] : weights) {
    for (const std::int64_t m : {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024})
      request.shapes.push_back(shape(m, n, k));
  }
  const Recording recording = synthetic(device, request.shapes, 0.01, GetParam());
  ReplayDevice replayed(recording);
  ReplayEvaluator evaluator(recording, 1);
  request.clock = [&] { return evaluator.seconds(); };
  TenthObserver observer(replayed, request);
  const auto summary = tune(replayed, evaluator, request, observer);
  ASSERT_TRUE(summary.ok()) << summary.message();
  const double whole = observer.gone;
  bool asked = false;
  for (const auto& [gone, left] : observer.estimates) {
    if (gone < 0.1 * whole || gone > 0.9 * whole) continue;
    asked = true;
    EXPECT_NEAR(left, whole - gone, 0.25 * (whole - gone)) << gone << " of " << whole;
  }
  EXPECT_TRUE(asked);
}

INSTANTIATE_TEST_SUITE_P(MachinesSlowerAndFasterThanImagined, EstimateOfARun,
                         ::testing::Values(0.05, 0.3, 1, 3));

}  // namespace
}  // namespace gemmtune::replay_test
