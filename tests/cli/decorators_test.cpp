// Every function of Evaluator through every decorator: it reaches the evaluator behind it with its arguments, and the answer
// comes back. A function that is added does not compile here until the spy has it, and fails until it is called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/tune/time_breakdown.h"
#include "cli/tune/worker_activity.h"
#include "evaluate/forwarding_evaluator.h"
#include "evaluate/journal/journaled_evaluator.h"
#include "evaluate/replay/recording_evaluator.h"
#include "support/paper_device.h"
#include "tuning/interruptible_evaluator.h"

namespace gemmtune::decorators_test {
namespace {

using ::testing::ElementsAre;

/// Writes down what it is asked, and answers with what no other evaluator does.
class Spy final : public Evaluator {
 public:
  bool compiles_ahead() const override {
    calls.push_back("compiles_ahead");
    return true;
  }
  void announce(const Problem& problem, std::span<const Candidate> candidates) override {
    note("announce", problem, candidates);
  }
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    note("screen " + std::to_string(samples), problem, candidates);
    if (stop && stop()) calls.back() += " stopped";
    return std::vector<Outcome>{outcome()};
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    const std::string what = kind.energy    ? "energy"
                             : kind.routing ? fmt::format("finals on {}", to_string(*kind.routing))
                                            : "finals";
    note(fmt::format("{} {}", what, rounds), problem, candidates);
    FinalsResult result;
    result.outcomes = {outcome()};
    result.times = {{7}};
    result.routing = kind.routing;
    if (kind.energy) result.joules = {{0.5}};
    return result;
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    note("check at " + std::to_string(m), problem, {&candidate, 1});
    return outcome();
  }

  static constexpr double error = 0.03125;
  mutable std::vector<std::string> calls;

 private:
  static Outcome outcome() {
    Outcome made;
    made.err_ratio = error;
    made.microseconds = {7};
    return made;
  }
  void note(const std::string& what, const Problem& problem, std::span<const Candidate> candidates) const {
    std::string text = fmt::format("{} M={}", what, problem.m);
    for (const Candidate& candidate : candidates) text += " " + candidate.kernel_name();
    calls.push_back(text);
  }
};

class EachDecorator : public ::testing::TestWithParam<const char*> {
 protected:
  EachDecorator() {
    std::string pattern = ::testing::TempDir() + "gemmtune_decorators_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    problem_.m = 3;
    problem_.n = 64;
    problem_.k = 64;
    make(GetParam());
  }
  ~EachDecorator() override { std::filesystem::remove_all(folder_); }

  void make(const std::string& name) {
    auto inner = std::make_unique<Spy>();
    spy_ = inner.get();
    if (name == "timed") {
      evaluator_ = cli::make_timed_evaluator(std::move(inner), breakdown_);
    } else if (name == "watched") {
      evaluator_ = cli::make_watched_evaluator(std::move(inner), activities_, "paper:0");
    } else {
      owned_ = std::move(inner);
      evaluator_ = around(name);
    }
  }
  std::unique_ptr<Evaluator> around(const std::string& name) {
    if (name == "forwarding") return std::make_unique<ForwardingEvaluator>(*spy_);
    if (name == "interruptible")
      return std::make_unique<InterruptibleEvaluator>(
          *spy_, [this] { return interrupted_; }, [] { return false; });
    if (name == "recording") {
      auto writer = RecordingWriter::open(folder_ + "/run.jsonl", recorded_run(device_, Policy(), 0.05));
      EXPECT_TRUE(writer.ok()) << writer.message();
      writer_ = std::make_unique<RecordingWriter>(std::move(*writer));
      return std::make_unique<RecordingEvaluator>(*spy_, *writer_, device_, std::vector<ShapeRow>());
    }
    auto journal = Journal::open(folder_ + "/tuned.csv.journal");
    EXPECT_TRUE(journal.ok()) << journal.message();
    journal_ = std::make_unique<Journal>(std::move(*journal));
    const auto run = journal_->begin_run({"request", "command", "policy", "environment", "paper"}, false);
    EXPECT_TRUE(run.ok()) << run.message();
    return std::make_unique<JournaledEvaluator>(*spy_, *journal_, device_,
                                                JournalOptions{run->id, "policy", "paper", false});
  }

  std::string folder_;
  testing::PaperDevice device_;
  Problem problem_;
  std::vector<Candidate> candidates_{{"vendor", 1, {}}};
  cli::TimeBreakdown breakdown_;
  cli::WorkerActivities activities_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<RecordingWriter> writer_;
  std::unique_ptr<Evaluator> owned_;
  std::unique_ptr<Evaluator> evaluator_;
  Spy* spy_ = nullptr;
  bool interrupted_ = false;
};

TEST_P(EachDecorator, PassesEveryFunctionOn) {
  EXPECT_TRUE(evaluator_->compiles_ahead());
  evaluator_->announce(problem_, candidates_);
  const auto screened = evaluator_->screen(problem_, candidates_, 2, [] { return false; });
  const auto finals = evaluator_->finals(problem_, candidates_, 3);
  const auto routed = evaluator_->finals_on(RoutingKind::zipf, problem_, candidates_, 4);
  const auto energy = evaluator_->energy(problem_, candidates_, 5);
  const Outcome checked = evaluator_->check_neighbour_m(problem_, candidates_.front(), 6);
  EXPECT_THAT(spy_->calls, ElementsAre("compiles_ahead", "announce M=3 vendor_r1", "screen 2 M=3 vendor_r1",
                                       "finals 3 M=3 vendor_r1", "finals on zipf 4 M=3 vendor_r1",
                                       "energy 5 M=3 vendor_r1", "check at 6 M=3 vendor_r1"));
  ASSERT_TRUE(screened.ok()) << screened.message();
  ASSERT_EQ(screened->size(), 1U);
  EXPECT_EQ(screened->front().err_ratio, Spy::error);
  for (const auto* result : {&finals, &routed, &energy}) {
    ASSERT_TRUE(result->ok()) << result->message();
    EXPECT_EQ((*result)->outcomes.front().err_ratio, Spy::error);
  }
  EXPECT_EQ(routed->routing, RoutingKind::zipf);
  EXPECT_THAT(energy->joules, ElementsAre(ElementsAre(0.5)));
  EXPECT_EQ(checked.err_ratio, Spy::error);
}

TEST_P(EachDecorator, PassesTheStopOn) {
  const auto screened = evaluator_->screen(problem_, candidates_, 2, [] { return true; });
  ASSERT_TRUE(screened.ok()) << screened.message();
  EXPECT_THAT(spy_->calls, ElementsAre("screen 2 M=3 vendor_r1 stopped"));
}

INSTANTIATE_TEST_SUITE_P(Of, EachDecorator,
                         ::testing::Values("forwarding", "timed", "watched", "interruptible", "recording",
                                           "journaled"),
                         [](const auto& each) { return std::string(each.param); });

TEST(AnInterruptedEvaluator, TakesNoRoundsOfAnyKind) {
  Spy spy;
  InterruptibleEvaluator evaluator(
      spy, [] { return true; }, [] { return false; });
  const Problem problem;
  const std::vector<Candidate> candidates{{"vendor", 1, {}}};
  EXPECT_FALSE(evaluator.screen(problem, candidates, 1, {}).ok());
  EXPECT_FALSE(evaluator.finals(problem, candidates, 1).ok());
  EXPECT_FALSE(evaluator.finals_on(RoutingKind::zipf, problem, candidates, 1).ok());
  EXPECT_FALSE(evaluator.energy(problem, candidates, 1).ok());
  EXPECT_THAT(spy.calls, ::testing::IsEmpty());
}

TEST(AWatchedEvaluator, SaysWhatItDoes) {
  cli::WorkerActivities activities;
  const auto evaluator = cli::make_watched_evaluator(std::make_unique<Spy>(), activities, "paper:0");
  const Problem problem;
  const std::vector<Candidate> candidates{{"vendor", 1, {}}};
  (void)evaluator->finals_on(RoutingKind::zipf, problem, candidates, 9);
  EXPECT_EQ(activities.all().front().doing, "1 finalist in 9 rounds on zipf routing");
  (void)evaluator->energy(problem, candidates, 1);
  EXPECT_EQ(activities.all().front().doing, "1 finalist in 1 round of energy batches");
}

}  // namespace
}  // namespace gemmtune::decorators_test
