// The evaluator of online tuning: it takes rounds of every kind, each with a trace of the candidates that it runs.
#include "online/online_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/fake_device.h"

namespace gemmtune::online_evaluator_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class OnlineRounds : public ::testing::Test {
 protected:
  OnlineRounds() {
    std::string pattern = ::testing::TempDir() + "gemmtune_online_evaluator_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    auto journal = Journal::open(folder_ + "/journal");
    EXPECT_TRUE(journal.ok()) << journal.message();
    journal_ = std::make_unique<Journal>(std::move(*journal));
    const auto run = journal_->begin_run({"request", "command", "policy", "environment", "device"}, false);
    EXPECT_TRUE(run.ok()) << run.message();
    run_ = run->id;
    options_.device_text = "device";
    options_.policy_text = "policy";
    options_.stopping = &stopping_;
    options_.in_process.policy.cache = CacheMode::warm;
    options_.in_process.policy.sample_microseconds = 1;
  }
  ~OnlineRounds() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<OnlineEvaluator> evaluator(Device& device) {
    return std::make_unique<OnlineEvaluator>(device, *journal_, run_, others_, options_);
  }
  /// The outcomes that the journal has of rounds for the problem.
  std::vector<JournaledOutcome> rounds_of(const Problem& problem) {
    const auto id = journal_->add_problem(run_, problem, {});
    EXPECT_TRUE(id.ok()) << id.message();
    auto outcomes = journal_->outcomes(*id);
    EXPECT_TRUE(outcomes.ok()) << outcomes.message();
    std::erase_if(*outcomes, [](const auto& one) { return one.stage != JournalStage::finals; });
    return *outcomes;
  }

  std::string folder_;
  std::unique_ptr<Journal> journal_;
  std::int64_t run_ = 0;
  std::vector<Journal> others_;
  std::atomic<bool> stopping_{false};
  OnlineEvaluation options_;
};

TEST_F(OnlineRounds, AMixtureIsMeasuredOnItsOtherRoutings) {
  DeviceRequest request;
  request.text = "cpu";
  request.threads = 1;
  auto device = open_device("cpu", request);
  ASSERT_TRUE(device.ok()) << device.message();
  Problem problem = default_problem(Operation::fused_moe);
  problem.m = 4;
  problem.n = problem.k = 64;
  problem.moe.experts = 8;
  problem.moe.topk = 2;
  const auto candidate = (*device)->fallback(problem);
  ASSERT_TRUE(candidate.ok()) << candidate.message();
  const std::vector<Candidate> candidates{*candidate};
  const auto online = evaluator(**device);
  const auto result = online->finals_on(RoutingKind::zipf, problem, candidates, 2);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->routing, RoutingKind::zipf);
  EXPECT_THAT(result->times, SizeIs(2));
  const auto traced = rounds_of(problem);
  ASSERT_FALSE(traced.empty());  // "crashed" before the kernel ran, and what it was
  EXPECT_EQ(traced.back().outcome.kind, OutcomeKind::ok);
  stopping_ = true;
  EXPECT_THAT(online->finals_on(RoutingKind::zipf, problem, candidates, 2).message(), HasSubstr("stopped"));
}

TEST_F(OnlineRounds, JoulesAreTheDevices) {
  testing::FakeDevice device;
  const std::vector<Candidate> candidates{device.add({.name = "a"})};
  Problem problem;
  problem.m = 4;
  problem.n = 32;
  problem.k = 48;
  const auto online = evaluator(device);
  const auto result = online->energy(problem, candidates, 3);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_THAT(result->joules, SizeIs(3));
  device.energy_status = Status::unsupported("no counter here");
  EXPECT_THAT(online->energy(problem, candidates, 1).message(), HasSubstr("no counter here"));
}

TEST_F(OnlineRounds, NothingIsCompiledBesideTheService) {
  testing::FakeDevice device;
  const std::vector<Candidate> candidates{device.add({.name = "a"})};
  const auto online = evaluator(device);
  EXPECT_FALSE(online->compiles_ahead());
  online->announce(Problem(), candidates);
  EXPECT_THAT(device.ahead, ::testing::IsEmpty());
}

}  // namespace
}  // namespace gemmtune::online_evaluator_test
