// The choice by joules, with an evaluator whose times and joules a test names.
#include "select/energy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "formats/aiter/environment_json.h"
#include "formats/json.h"
#include "support/paper_device.h"
#include "support/temporary_folder.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

/// kc1 is the fastest; vendor is the default.
class EnergyChoice : public ::testing::Test, public RunObserver {
 protected:
  EnergyChoice() {
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device_.add({.name = "tiled", .parameters = {{"kc", {"1", "2", "3", "4"}, "", ""}}});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [this](const Problem&, const Candidate& candidate) {
      return times_.at(candidate.kernel_name());
    };
    evaluator_.joules = [this](const Problem&, const Candidate& candidate) {
      return joules_.at(candidate.kernel_name());
    };
    problem_.m = 8;
    problem_.n = 64;
    problem_.k = 64;
  }
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}

  Settled by_time() {
    FinalsTask task{problem_, {}, {}, WeightLayout::plain, policy_};
    for (const ListedCandidate& listed : list_candidates(device_, problem_, {}).candidates) {
      if (listed.candidate.family == "vendor") task.baseline = task.finalists.size();
      task.finalists.push_back({listed, times_.at(listed.candidate.kernel_name())});
    }
    Settled settled = run_finals(task, evaluator_, Deadline::never());
    EXPECT_TRUE(settled.winner) << settled.reason;
    evaluator_.finals_calls.clear();
    return settled;
  }
  Settled weigh(Objective objective, const Deadline& deadline = Deadline::never()) {
    policy_.objective = objective;
    return weigh_energy(problem_, WeightLayout::plain, policy_, by_time(), evaluator_, deadline);
  }
  static std::string name_of(const Settled& settled) { return settled.winner->candidate.kernel_name(); }
  Result<RunSummary> tune_one(Objective objective, bool energy) {
    TuneRequest request;
    request.shapes.emplace_back().problem = problem_;
    request.output = folder_.file("tuned.csv");
    request.policy.objective = objective;
    request.energy = energy;
    request.stop = stop_;
    return tune(device_, evaluator_, request, *this);
  }
  /// Observations of the only environment beside the tuned file.
  Json observations() const {
    const auto file = read_environment_json(folder_.file("tuned.csv"));
    EXPECT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(file->objects.size(), 1U);
    return parse_json(file->objects.begin()->second)["observations"];
  }

  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  test::TemporaryFolder folder_;
  std::function<bool()> stop_;
  Problem problem_;
  Policy policy_;
  std::map<std::string, double> times_ = {{"vendor_r1", 110},
                                          {"tiled_r1_kc1", 100},
                                          {"tiled_r1_kc2", 104},
                                          {"tiled_r1_kc3", 125},
                                          {"tiled_r1_kc4", 140}};
  std::map<std::string, double> joules_ = {{"vendor_r1", 0.030},
                                           {"tiled_r1_kc1", 0.040},
                                           {"tiled_r1_kc2", 0.036},
                                           {"tiled_r1_kc3", 0.020},
                                           {"tiled_r1_kc4", 0.001}};
};

TEST_F(EnergyChoice, TimeIsTheDefaultAndTheJoulesAreThere) {
  const Settled settled = weigh(Objective::time);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_EQ(settled.verdict, Verdict::win);
  EXPECT_EQ(settled.chosen_by, Objective::time);
  ASSERT_EQ(evaluator_.energy_calls.size(), 1U);
  // kc4 takes more than 1.3 times the fastest one's time.
  EXPECT_THAT(evaluator_.energy_calls.front(),
              UnorderedElementsAre("tiled_r1_kc1", "vendor_r1", "tiled_r1_kc2", "tiled_r1_kc3"));
  const KernelEnergy* winner = find_energy(settled.energies, "tiled_r1_kc1");
  ASSERT_NE(winner, nullptr);
  EXPECT_NEAR(winner->joules, 0.040, 0.001);
  EXPECT_NEAR(winner->microseconds, 100, 1);
  EXPECT_GT(winner->spread, 0);
  EXPECT_LT(winner->spread, 0.001);
  EXPECT_EQ(find_energy(settled.energies, "tiled_r1_kc4"), nullptr);
}

TEST_F(EnergyChoice, FewerJoulesWinAndASlowerKernelIsNoWinOfTime) {
  const Settled settled = weigh(Objective::energy);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc3");
  EXPECT_EQ(settled.verdict, Verdict::energy);
  EXPECT_EQ(settled.chosen_by, Objective::energy);
  EXPECT_NEAR(settled.microseconds, 125, 1);
  EXPECT_NEAR(*settled.speedup, 110.0 / 125, 0.01);  // below 1, as it is
  EXPECT_NEAR(*settled.default_microseconds, 110, 1);
  EXPECT_EQ(settled.default_kernel, "vendor_r1");
  EXPECT_THAT(settled.ties, ElementsAre("tiled_r1_kc3"));
  // Selected in rounds of all, tested against the winner by time in fresh ones.
  ASSERT_EQ(evaluator_.energy_calls.size(), 2U);
  EXPECT_THAT(evaluator_.energy_calls.back(), ElementsAre("tiled_r1_kc1", "tiled_r1_kc3"));
}

TEST_F(EnergyChoice, AKernelThatBeatsTheDefaultInTimeTooIsAWin) {
  joules_["tiled_r1_kc2"] = 0.010;
  const Settled settled = weigh(Objective::energy);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc2");
  EXPECT_EQ(settled.verdict, Verdict::win);
  EXPECT_NEAR(*settled.speedup, 110.0 / 104, 0.01);
}

TEST_F(EnergyChoice, TheDefaultMayHaveTheFewestJoules) {
  joules_["vendor_r1"] = 0.010;
  const Settled settled = weigh(Objective::energy);
  EXPECT_EQ(name_of(settled), "vendor_r1");
  EXPECT_EQ(settled.verdict, Verdict::energy);  // not `default`: another one is faster
  EXPECT_EQ(*settled.speedup, 1);
  EXPECT_NEAR(settled.microseconds, 110, 1);
}

TEST_F(EnergyChoice, TheProductChoosesAnotherKernel) {
  joules_["tiled_r1_kc2"] = 0.0250;
  joules_["tiled_r1_kc3"] = 0.0220;  // fewer joules, but 0.0220 x 125 > 0.0250 x 104
  EXPECT_EQ(name_of(weigh(Objective::edp)), "tiled_r1_kc2");
  EXPECT_EQ(name_of(weigh(Objective::energy)), "tiled_r1_kc3");
}

TEST_F(EnergyChoice, ATieKeepsTheFaster) {
  for (auto& [name, joules] : joules_) joules = 0.03;
  joules_["tiled_r1_kc3"] = 0.0298;  // within the tie band
  const Settled settled = weigh(Objective::energy);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_EQ(settled.verdict, Verdict::win);
  EXPECT_EQ(settled.chosen_by, Objective::energy);
  // Of two that are as good, and better than the fastest.
  joules_["tiled_r1_kc2"] = joules_["tiled_r1_kc3"] = 0.02;
  EXPECT_EQ(name_of(weigh(Objective::energy)), "tiled_r1_kc2");
  joules_["vendor_r1"] = 0.02;  // slower than kc2
  EXPECT_EQ(name_of(weigh(Objective::energy)), "tiled_r1_kc2");
}

TEST_F(EnergyChoice, WhatSeemedBetterInTheSelectionIsTestedInFreshBatches) {
  evaluator_.joules = [this](const Problem&, const Candidate& candidate) {
    const bool lucky = candidate.kernel_name() == "tiled_r1_kc3" && evaluator_.energy_calls.size() == 1;
    return lucky ? 0.01 : 0.04;
  };
  const Settled settled = weigh(Objective::energy);
  ASSERT_EQ(evaluator_.energy_calls.size(), 2U);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_EQ(settled.verdict, Verdict::win);
}

TEST_F(EnergyChoice, ARightKernelOnly) {
  evaluator_.at_m = [](const Problem&, const Candidate& candidate, std::int64_t) {
    return candidate.kernel_name() == "tiled_r1_kc3" ? testing::failure(OutcomeKind::wrong, "row 3")
                                                     : Outcome{};
  };
  const Settled settled = weigh(Objective::energy);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_THAT(settled.energy_reason, HasSubstr("row 3"));
}

TEST_F(EnergyChoice, WithoutADefaultTheVerdictStays) {
  evaluator_.outcome = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "vendor" ? testing::failure(OutcomeKind::wrong, "row 5") : Outcome{};
  };
  const Settled settled = weigh(Objective::energy);
  EXPECT_EQ(name_of(settled), "tiled_r1_kc3");
  EXPECT_EQ(settled.verdict, Verdict::default_wrong);
  EXPECT_FALSE(settled.speedup);
}

TEST_F(EnergyChoice, NoTimeOrNoCounterLeavesTheChoiceOfTimeWithTheReason) {
  const Settled late = weigh(Objective::energy, Deadline::in(3, [] { return 0.0; }));
  EXPECT_EQ(name_of(late), "tiled_r1_kc1");
  EXPECT_EQ(late.chosen_by, Objective::time);
  EXPECT_TRUE(late.is_cut);
  EXPECT_THAT(late.energy_reason, HasSubstr("budget"));
  EXPECT_THAT(evaluator_.energy_calls, IsEmpty());
  evaluator_.joules = {};
  const Settled failed = weigh(Objective::energy);
  EXPECT_EQ(name_of(failed), "tiled_r1_kc1");
  EXPECT_THAT(failed.energy_reason, HasSubstr("without joules"));
}

TEST_F(EnergyChoice, TheRowIsOfTheChosenKernelAndItsEnvironmentHasTheJoules) {
  const auto summary = tune_one(Objective::energy, false);
  ASSERT_TRUE(summary.ok()) << summary.message();
  const ItemReport& report = summary->items.front();
  ASSERT_NE(report.row(), nullptr) << report.reason;
  EXPECT_EQ(report.row()->kernel_name, "tiled_r1_kc3");
  EXPECT_EQ(report.row()->verdict, Verdict::energy);
  EXPECT_EQ(report.state, ProblemState::tuned);
  EXPECT_EQ(report.chosen_by, Objective::energy);
  const auto rows = read_tuned_csv(folder_.file("tuned.csv"), {});
  ASSERT_TRUE(rows.ok()) << rows.message();
  EXPECT_EQ(rows->entries.front().verdict, Verdict::energy);
  const Json joules = observations()["joules"][print(problem_)];
  EXPECT_EQ(joules.at("kernelName"), "tiled_r1_kc3");
  EXPECT_NEAR(joules.at("joules").get<double>(), 0.020, 0.001);
  EXPECT_NEAR(joules.at("default_joules").get<double>(), 0.030, 0.001);
  EXPECT_GT(joules.at("spread").get<double>(), 0);
  // Another row of the same environment leaves them there.
  const Problem first = problem_;
  problem_.m = 16;
  ASSERT_TRUE(tune_one(Objective::energy, false).ok());
  EXPECT_TRUE(observations()["joules"].contains(print(first)));
  EXPECT_TRUE(observations()["joules"].contains(print(problem_)));
}

TEST_F(EnergyChoice, WithoutTheOptionNothingOfItHappens) {
  device_.energy_status = Status::unsupported("no counter");
  const auto summary = tune_one(Objective::time, false);
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_THAT(evaluator_.energy_calls, IsEmpty());
  EXPECT_FALSE(observations().contains("joules"));
}

TEST_F(EnergyChoice, WithoutACounterTheRunEndsBeforeAnythingIsMeasured) {
  device_.energy_status = Status::unsupported("/sys/class/powercap has no package");
  for (const Objective objective : {Objective::time, Objective::edp}) {
    const auto summary = tune_one(objective, true);
    ASSERT_FALSE(summary.ok());
    EXPECT_THAT(summary.message(), HasSubstr(objective == Objective::time ? "--energy" : "--objective edp"));
    EXPECT_THAT(summary.message(), HasSubstr("/sys/class/powercap"));
  }
  EXPECT_THAT(evaluator_.screened, IsEmpty());
}

// A row that time alone chose would count as done when the command is given again.
TEST_F(EnergyChoice, AnInterruptionBeforeTheBatchesLeavesNoRow) {
  bool interrupted = false;
  evaluator_.at_m = [&](const Problem&, const Candidate&, std::int64_t) {
    interrupted = true;  // the finals are over
    return Outcome{};
  };
  stop_ = [&] { return interrupted; };
  const auto summary = tune_one(Objective::energy, false);
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(summary->items.front().row(), nullptr);
  EXPECT_THAT(summary->items.front().reason, HasSubstr("interrupted"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("tuned.csv")));
}

TEST_F(EnergyChoice, AnotherObjectiveIsAnotherEnvironment) {
  Policy energy;
  energy.objective = Objective::energy;
  EXPECT_NE(row_environment(device_, energy).hash, row_environment(device_, Policy()).hash);
  EXPECT_THAT(energy.text(), HasSubstr("objective=energy"));
  EXPECT_THAT(Policy().text(), Not(HasSubstr("objective")));
}

TEST_F(EnergyChoice, APackedWeightHasTheLayoutOfTheFewestJoules) {
  device_.add({.name = "wide", .parameters = {}, .packed = WeightLayout::panel16});
  device_.add({.name = "frugal", .parameters = {}, .packed = WeightLayout::aiter16x16});
  times_["wide_r1"] = 90;
  times_["frugal_r1"] = 95;
  joules_["wide_r1"] = 0.05;
  joules_["frugal_r1"] = 0.02;
  problem_.weight_layout = WeightLayout::any;
  const auto summary = tune_one(Objective::energy, false);
  ASSERT_TRUE(summary.ok()) << summary.message();
  ASSERT_NE(summary->items.front().row(), nullptr) << summary->items.front().reason;
  EXPECT_EQ(summary->items.front().row()->kernel_name, "frugal_r1");
}

}  // namespace
}  // namespace gemmtune
