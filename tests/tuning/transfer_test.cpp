// Winners of other problems go first, and only that: they are an order, never a result.
#include "tuning/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/paper_device.h"
#include "tuning/tuner.h"

namespace gemmtune::transfer_test {
namespace {

using ::testing::ElementsAre;
using testing::FakeEvaluator;
using testing::PaperDevice;

Problem problem_of(std::int64_t m, std::int64_t n = 1024, std::int64_t k = 1024) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

Candidate tiled(std::int64_t kc, std::int64_t mr = 1) {
  Candidate candidate{"tiled", 1, {}};
  candidate.config.set("mr", mr);
  candidate.config.set("kc", kc);
  return candidate;
}

TEST(Transfer, TheSameWeightComesFirstThenTheNearestSizes) {
  Transfer transfer;
  transfer.learn(problem_of(16, 1024, 2048), tiled(1).kernel_name());  // other K, same M
  transfer.learn(problem_of(512), tiled(2).kernel_name());             // same weight, far M
  transfer.learn(problem_of(32), tiled(3).kernel_name());              // same weight, near M
  transfer.learn(problem_of(16, 8192, 8192), tiled(4).kernel_name());
  transfer.learn(problem_of(64), tiled(3).kernel_name());  // a winner again
  EXPECT_THAT(transfer.winners_near(problem_of(16)),
              ElementsAre(tiled(3).kernel_name(), tiled(2).kernel_name(), tiled(1).kernel_name(),
                          tiled(4).kernel_name()));
}

TEST(Transfer, OtherTypesAndPackedWeightsTeachNothing) {
  Transfer transfer;
  Problem other = problem_of(16);
  other.x_type = other.w_type = DataType::f32;
  transfer.learn(other, tiled(1).kernel_name());
  other = problem_of(16);
  other.weight_layout = WeightLayout::panel16;
  transfer.learn(other, tiled(2).kernel_name());
  EXPECT_TRUE(transfer.winners_near(problem_of(16)).empty());
  other.m = 32;
  other.weight_layout = WeightLayout::any;
  EXPECT_THAT(transfer.winners_near(other), ElementsAre(tiled(2).kernel_name()))
      << "whatever layout was decided";
}

TEST(Transfer, OfManyWinnersTheNearestAreGiven) {
  Transfer transfer;
  for (std::int64_t m = 1; m <= 1000; ++m) transfer.learn(problem_of(m), tiled(m).kernel_name());
  const auto names = transfer.winners_near(problem_of(500));
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), tiled(500).kernel_name());
  EXPECT_LE(names.size(), 50U) << "each search goes through its hints";
}

TEST(MarkHints, AHintThatIsNotInTheListMeansItsClosestRelative) {
  std::vector<ListedCandidate> list;
  for (const std::int64_t mr : {4, 8}) {
    for (const std::int64_t kc : {256, 512}) list.push_back({.candidate = tiled(kc, mr)});
  }
  mark_hints({tiled(512, 8), tiled(2048, 4), Candidate{"gone", 1, {}}, tiled(512, 8)}, list);
  EXPECT_EQ(list[3].hint, 1);
  EXPECT_EQ(list[0].hint, 2) << "mr 4 fits; kc 2048 is in no candidate";
  EXPECT_EQ(list[1].hint, 0);
  EXPECT_EQ(list[2].hint, 0);
}

struct SilentObserver : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial& trial, std::int64_t) override {
    tried.push_back(trial.candidate.kernel_name());
  }
  void problem_done(std::size_t, const ItemReport&) override { ends.push_back(tried.size()); }
  std::vector<std::string> tried;
  std::vector<std::size_t> ends;  // of tried, a problem each
};

class TransferInARun : public ::testing::Test {
 protected:
  TransferInARun() {
    Parameter kc{"kc", {}, "", ""};
    for (int i = 1; i <= 300; ++i) kc.values.push_back(std::to_string(i));
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device_.add({.name = "tiled", .parameters = {kc}});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    fake_.time = [this](const Problem&, const Candidate& candidate) {
      if (candidate.family == "vendor") return 200.0;
      return 100 + std::abs(static_cast<double>(candidate.config.number("kc")) - best_) / 10;
    };
    for (const std::int64_t m : {8, 16}) {
      request_.shapes.emplace_back();
      request_.shapes.back().problem = problem_of(m);
    }
  }

  PaperDevice device_;
  FakeEvaluator fake_;
  TuneRequest request_;
  SilentObserver observer_;
  double best_ = 211;
};

// A budget left 1024x8192x8192 (a16w4) two candidates on an H200, both winners of other M: the row had 244 us where other kernels take 182.
TEST_F(TransferInARun, WhatAnUntunedCallRunsIsTriedBeforeTheWinnerOfAnEarlierShape) {
  const auto summary = tune(device_, fake_, request_, observer_);
  ASSERT_TRUE(summary.ok()) << summary.message();
  const std::string first_winner = summary->items[0].row()->kernel_name;
  EXPECT_EQ(observer_.tried[observer_.ends[0]], "vendor_r1");
  EXPECT_EQ(observer_.tried[observer_.ends[0] + 1], first_winner);
}

TEST_F(TransferInARun, AShortBudgetDoesNotEndWithADefaultThatCannotBeBuilt) {
  PaperDevice device;
  device.mutable_info().backend = "cuda";
  device.add({.name = "wgmma", .build_failure = [](const Problem&) { return std::string("it spills"); }});
  device.add({.name = "mma"});
  fake_.outcome = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "mma" ? Outcome{} : testing::failure(OutcomeKind::build_failed, "it spills");
  };
  fake_.time = [](const Problem&, const Candidate&) { return 100.0; };
  double now = 0;
  fake_.before = [&](const Problem&) { now += now == 0 ? 4 : 0.01; };  // the first one compiles for long
  request_.shapes.resize(1);
  request_.clock = [&] { return now; };
  request_.budget_seconds = 5;
  const auto summary = tune(device, fake_, request_, observer_);
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_THAT(observer_.tried, ElementsAre("wgmma_r1", "mma_r1")) << "as an untuned call passes it over";
  ASSERT_NE(summary->items[0].row(), nullptr) << summary->items[0].reason;
  EXPECT_EQ(summary->items[0].row()->kernel_name, "mma_r1");
}

TEST_F(TransferInARun, AnEarlierRunOnlyDecidesWhatIsTriedFirst) {
  request_.earlier_winners = [](const Problem&) {
    return std::vector<std::string>{"tiled_r1_kc3", "gone_r1_x1", "no kernel name"};
  };
  const auto summary = tune(device_, fake_, request_, observer_);
  ASSERT_TRUE(summary.ok()) << summary.message();
  EXPECT_EQ(observer_.tried[1], "tiled_r1_kc3");
  EXPECT_NE(summary->items[0].row()->kernel_name, "tiled_r1_kc3") << "it is a fifth slower than the best";
}

}  // namespace
}  // namespace gemmtune::transfer_test
