// The choice among kernels on several routings, with an evaluator whose times a test names.
#include "select/routings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "resolve/candidate_list.h"
#include "support/paper_device.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

/// kc1 is the fastest on uniform routing; vendor is the default.
class RoutingChoice : public ::testing::Test {
 protected:
  RoutingChoice() {
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device_.add({.name = "tiled", .parameters = {{"kc", {"1", "2", "3", "4"}, "", ""}}});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [this](const Problem&, const Candidate& candidate) {
      return times_.at(candidate.kernel_name());
    };
    evaluator_.time_on = [this](RoutingKind routing, const Candidate& candidate) {
      const auto found = times_on_.find({routing, candidate.kernel_name()});
      return found == times_on_.end() ? times_.at(candidate.kernel_name()) : found->second;
    };
    problem_ = default_problem(Operation::fused_moe);
    problem_.m = 8;
    problem_.n = 64;
    problem_.k = 64;
    problem_.moe.experts = 4;
    problem_.moe.topk = 2;
  }

  Settled hold(const Deadline& deadline = Deadline::never()) {
    FinalsTask task{problem_, {}, {}, WeightLayout::plain, policy_};
    for (const ListedCandidate& listed : list_candidates(device_, problem_, {}).candidates) {
      if (listed.candidate.family == "vendor") task.baseline = task.finalists.size();
      task.finalists.push_back({listed, times_.at(listed.candidate.kernel_name())});
    }
    Settled settled = run_finals(task, evaluator_, Deadline::never());
    EXPECT_TRUE(settled.winner) << settled.reason;
    evaluator_.finals_calls.clear();
    return hold_on_routings(problem_, WeightLayout::plain, policy_, std::move(settled), evaluator_, deadline);
  }
  static std::string name_of(const Settled& settled) { return settled.winner->candidate.kernel_name(); }
  static double loss_of(const Settled& settled, const std::string& kernel, const std::string& routing) {
    for (const RoutingLoss& loss : settled.routing_losses)
      if (loss.kernel_name == kernel && loss.routing == routing) return loss.loss;
    return -1;
  }

  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  Problem problem_;
  Policy policy_;
  std::map<std::string, double> times_ = {{"vendor_r1", 110},
                                          {"tiled_r1_kc1", 100},
                                          {"tiled_r1_kc2", 103},
                                          {"tiled_r1_kc3", 106},
                                          {"tiled_r1_kc4", 140}};
  std::map<std::pair<RoutingKind, std::string>, double> times_on_;
};

TEST_F(RoutingChoice, AWinnerThatHoldsStaysAndItsLossesAreThere) {
  times_on_[{RoutingKind::zipf, "tiled_r1_kc2"}] = 98;
  const Settled settled = hold();
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_EQ(settled.verdict, Verdict::win);
  EXPECT_THAT(settled.instead_of, IsEmpty());
  EXPECT_NEAR(loss_of(settled, "tiled_r1_kc1", "zipf"), 100.0 / 98 - 1, 0.005);
  EXPECT_NEAR(loss_of(settled, "tiled_r1_kc2", "zipf"), 0, 0.005);
  ASSERT_EQ(evaluator_.routed_calls.size(), 1U);
  // kc4 is too slow on the row's own routing.
  EXPECT_THAT(evaluator_.routed_calls.front().second,
              UnorderedElementsAre("tiled_r1_kc1", "vendor_r1", "tiled_r1_kc2", "tiled_r1_kc3"));
}

TEST_F(RoutingChoice, TheSaferKernelWinsWhereTheWinnerLosesTooMuch) {
  times_on_[{RoutingKind::zipf, "tiled_r1_kc1"}] = 120;
  const Settled settled = hold();
  EXPECT_EQ(name_of(settled), "tiled_r1_kc2");  // 3 % behind on uniform, best on zipf
  EXPECT_EQ(settled.instead_of, "tiled_r1_kc1");
  EXPECT_EQ(settled.verdict, Verdict::win);
  EXPECT_NEAR(settled.microseconds, 103, 1);
  EXPECT_NEAR(*settled.speedup, 110.0 / 103, 0.01);
  EXPECT_NEAR(loss_of(settled, "tiled_r1_kc2", "zipf"), 0, 0.005);
  // Selected in rounds of all, tested in fresh ones; the row's time is of rounds on its own routing.
  ASSERT_EQ(evaluator_.routed_calls.size(), 2U);
  EXPECT_EQ(evaluator_.routed_calls.back().first, RoutingKind::zipf);
  EXPECT_FALSE(evaluator_.finals_calls.empty());
  // A later pass must not go back to what loses.
  for (const MeasuredFinalist& finalist : settled.finalists)
    EXPECT_NE(finalist.listed.candidate.kernel_name(), "tiled_r1_kc1");
}

TEST_F(RoutingChoice, AKernelThatGaveWayDoesNotComeBackForWantOfTime) {
  std::optional<Settled> safer;
  const Deadline over = Deadline::in(0);
  EXPECT_EQ(name_of(keep_safer(hold(over), safer)), "tiled_r1_kc1");
  times_on_[{RoutingKind::zipf, "tiled_r1_kc1"}] = 120;
  EXPECT_EQ(name_of(keep_safer(hold(), safer)), "tiled_r1_kc2");
  const Settled kept = keep_safer(hold(over), safer);
  EXPECT_EQ(name_of(kept), "tiled_r1_kc2");
  EXPECT_EQ(kept.instead_of, "tiled_r1_kc1");
  EXPECT_TRUE(kept.is_cut);
  times_["tiled_r1_kc3"] = 90;  // another winner did not lose
  EXPECT_EQ(name_of(keep_safer(hold(over), safer)), "tiled_r1_kc3");
  times_["tiled_r1_kc3"] = 106;
  times_on_.clear();
  EXPECT_EQ(name_of(keep_safer(hold(), safer)), "tiled_r1_kc1");
  EXPECT_EQ(name_of(keep_safer(hold(over), safer)), "tiled_r1_kc1");
}

TEST_F(RoutingChoice, NoKernelIsSaferThanTheWinner) {
  // kc1 loses 10 % on zipf, but every other one loses more somewhere.
  times_on_[{RoutingKind::zipf, "tiled_r1_kc1"}] = 110;
  times_on_[{RoutingKind::zipf, "tiled_r1_kc2"}] = 120;
  times_on_[{RoutingKind::zipf, "tiled_r1_kc3"}] = 130;
  times_on_[{RoutingKind::zipf, "vendor_r1"}] = 100;
  times_["vendor_r1"] = 115;
  const Settled settled = hold();
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_THAT(settled.instead_of, IsEmpty());
}

TEST_F(RoutingChoice, ARowTunedOnZipfMustHoldOnUniformAndOnATraceOfItsSizesAlone) {
  policy_.routing = RoutingKind::zipf;
  auto trace = std::make_shared<RoutingTrace>();
  trace->name = "t";
  trace->experts = 4;
  trace->topk = 2;
  trace->ids = {0, 1};
  policy_.routing_trace = trace;
  (void)hold();
  ASSERT_EQ(evaluator_.routed_calls.size(), 2U);
  EXPECT_EQ(evaluator_.routed_calls[0].first, RoutingKind::uniform);
  EXPECT_EQ(evaluator_.routed_calls[1].first, RoutingKind::trace);
  trace = std::make_shared<RoutingTrace>(*trace);
  trace->experts = 5;
  policy_.routing_trace = trace;
  evaluator_.routed_calls.clear();
  (void)hold();
  EXPECT_EQ(evaluator_.routed_calls.size(), 1U);
}

TEST_F(RoutingChoice, WhatIsNoMixtureIsNotAsked) {
  problem_ = Problem();
  problem_.m = problem_.n = problem_.k = 64;
  const Settled settled = hold();
  EXPECT_EQ(name_of(settled), "tiled_r1_kc1");
  EXPECT_THAT(evaluator_.routed_calls, IsEmpty());
  EXPECT_THAT(settled.routing_losses, IsEmpty());
  EXPECT_EQ(expected_routing_seconds(problem_, 100, policy_), 0);
}

TEST_F(RoutingChoice, WithoutTimeOrRoundsTheWinnerStaysWithTheReason) {
  times_on_[{RoutingKind::zipf, "tiled_r1_kc1"}] = 120;
  const Settled late = hold(Deadline::in(0));
  EXPECT_EQ(name_of(late), "tiled_r1_kc1");
  EXPECT_TRUE(late.is_cut);
  EXPECT_THAT(late.routing_reason, HasSubstr("no time for rounds on zipf"));
  evaluator_.time_on = {};
  const Settled without = hold();
  EXPECT_EQ(name_of(without), "tiled_r1_kc1");
  EXPECT_THAT(without.routing_reason, HasSubstr("without rounds on zipf"));
}

}  // namespace
}  // namespace gemmtune
