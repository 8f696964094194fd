// The parts of the tuning loop, each for itself: candidates, budget, layout groups, known rows, neighbouring
// M, the environment of rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "evaluate/worker/worker_pool.h"
#include "resolve/bind.h"
#include "resolve/candidate_list.h"
#include "resolve/known_rows.h"
#include "select/finals.h"
#include "support/paper_device.h"
#include "tuned/table.h"
#include "tuning/layout_group.h"
#include "tuning/problem_search.h"
#include "tuning/time_estimate.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

Problem packed_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem = problem_of(m, n, k);
  problem.weight_layout = WeightLayout::any;
  return problem;
}

void add_families(testing::PaperDevice& device) {
  device.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
  device.add({.name = "tiled",
              .parameters = {{"kc", {"256", "128", "512"}, "", ""}, {"sk", {"1", "2"}, "1", ""}},
              .packed = WeightLayout::panel16});
  device.add({.name = "narrow", .parameters = {}, .refusal = [](const Problem& problem) {
                return problem.m > 4 ? "M above 4" : "";
              }});
  device.add({.name = "reference", .parameters = {}});
}

std::vector<std::string> names(const CandidateList& list) {
  std::vector<std::string> names;
  for (const ListedCandidate& listed : list.candidates) names.push_back(listed.candidate.kernel_name());
  return names;
}

TEST(CandidateList, HoldsEveryConfigTheDefaultFirstAndSaysWhyOthersRefuse) {
  testing::PaperDevice device;
  add_families(device);
  const auto list = list_candidates(device, problem_of(8, 64, 64), {});
  EXPECT_THAT(names(list),
              ElementsAre("vendor_r1", "tiled_r1_kc256_sk1", "tiled_r1_kc256_sk2", "tiled_r1_kc128_sk1",
                          "tiled_r1_kc128_sk2", "tiled_r1_kc512_sk1", "tiled_r1_kc512_sk2"));
  EXPECT_THAT(list.refusals, ElementsAre("narrow: M above 4"));
}

TEST(CandidateList, SplitKOffRemovesEverySplit) {
  testing::PaperDevice device;
  add_families(device);
  const auto list = list_candidates(device, problem_of(8, 64, 64), {{"tiled"}, false});
  EXPECT_THAT(names(list), ElementsAre("tiled_r1_kc256_sk1", "tiled_r1_kc128_sk1", "tiled_r1_kc512_sk1"));
}

TEST(CandidateList, ReferenceOnlyWhereItIsNamed) {
  testing::PaperDevice device;
  add_families(device);
  EXPECT_THAT(names(list_candidates(device, problem_of(1, 8, 8), {{"reference", "narrow"}, true})),
              ElementsAre("narrow_r1", "reference_r1"));
  EXPECT_THAT(names(list_candidates(device, problem_of(1, 8, 8), {{"all"}, true})),
              ::testing::Not(::testing::Contains("reference_r1")));
}

TEST(CandidateList, PackedProblemsNameTheLayoutOfEachCandidate) {
  testing::PaperDevice device;
  add_families(device);
  const auto list = list_candidates(device, packed_of(8, 64, 64), {});
  ASSERT_EQ(list.candidates.size(), 6U);
  for (const auto& listed : list.candidates) EXPECT_EQ(listed.layout, WeightLayout::panel16);
  EXPECT_THAT(list.refusals, ElementsAre("vendor: packed weights", "narrow: M above 4"));
}

TEST(CheckLibtypes, AnUnknownFamilyIsAnsweredWithTheKnownOnes) {
  testing::PaperDevice device;
  add_families(device);
  EXPECT_TRUE(check_libtypes(device, {"tiled", "reference"}).ok());
  EXPECT_TRUE(check_libtypes(device, {"all"}).ok());
  const Status status = check_libtypes(device, {"tiled", "asm"});
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("'asm'"));
  EXPECT_THAT(status.message(), HasSubstr("vendor, tiled, narrow, reference"));
}

TEST(TimeEstimate, ExpectedTimeGrowsWithBytesAndWithFlops) {
  EXPECT_GT(expected_microseconds(problem_of(1, 4096, 4096)),
            expected_microseconds(problem_of(1, 1024, 1024)));
  EXPECT_GT(expected_microseconds(problem_of(4096, 4096, 4096)),
            100 * expected_microseconds(problem_of(1, 4096, 4096)));
}

TEST(Deadline, HasParts) {
  EXPECT_FALSE(Deadline::never().over());
  EXPECT_TRUE(std::isinf(Deadline::never().part(0.5).seconds_left()));
  EXPECT_TRUE(Deadline::in(0).over());
  EXPECT_LE(Deadline::in(100).part(0.5).seconds_left(), 50);
}

ShapeRow row_of(const Problem& problem, std::int64_t calls = 1) {
  ShapeRow row;
  row.problem = problem;
  row.calls = calls;
  return row;
}

TEST(LayoutGroups, PackedProblemsOfOneWeightStandTogether) {
  Problem biased = packed_of(2, 64, 64);
  biased.bias = true;
  const std::vector<ShapeRow> shapes{row_of(packed_of(1, 64, 64)),  row_of(problem_of(1, 64, 64)),
                                     row_of(problem_of(2, 64, 64)), row_of(packed_of(16, 64, 64)),
                                     row_of(packed_of(1, 128, 64)), row_of(biased)};
  EXPECT_THAT(layout_groups(shapes),
              ElementsAre(ElementsAre(0, 3, 5), ElementsAre(1), ElementsAre(2), ElementsAre(4)))
      << "a bias does not change the weight's bytes";
}

constexpr auto panel = WeightLayout::panel16;
constexpr auto vendor_layout = WeightLayout::onednn;

TEST(ChooseLayout, TheSmallestWeightedSumWins) {
  // M = 1 prefers panel16 by 2 of 10, M = 128 the vendor's by 50 of 500; calls turn the sum around.
  std::vector<GroupMember> members{{100, {{panel, 8}, {vendor_layout, 10}}},
                                   {1, {{panel, 500}, {vendor_layout, 450}}}};
  EXPECT_EQ(choose_layout(members), panel);
  members[0].calls = 1;
  EXPECT_EQ(choose_layout(members), vendor_layout);
}

TEST(ChooseLayout, ServingMoreMembersComesFirst) {
  const std::vector<GroupMember> members{{1, {{panel, 8}}}, {1, {{panel, 900}, {vendor_layout, 1}}}};
  EXPECT_EQ(choose_layout(members), panel);
  EXPECT_EQ(choose_layout(std::vector<GroupMember>{{1, {}}}), std::nullopt);
}

/// Asks for the first candidate that did not fail, again and again.
class Insisting final : public Strategy {
 public:
  std::string_view name() const override { return "insisting"; }
  bool is_cut() const override { return false; }
  SearchStep next(std::span<const SearchPoint> points, double) override {
    SearchStep step;
    for (std::size_t i = 0; i < points.size() && steps_ < 4 && step.candidates.empty(); ++i) {
      if (!points[i].failed) step.candidates.push_back(i);
    }
    ++steps_;
    return step;
  }

 private:
  int steps_ = 0;
};

TEST(SearchProblem, AFailureInALaterStepCountsAndSamplesAddUp) {
  testing::PaperDevice device;
  add_families(device);
  testing::FakeEvaluator evaluator;
  evaluator.time = [](const Problem&, const Candidate&) { return 10.0; };
  evaluator.outcome = [&](const Problem&, const Candidate& candidate) {
    const bool second = candidate.family == "vendor" && evaluator.screened["vendor_r1"] == 2;
    return second ? testing::failure(OutcomeKind::crashed, "signal 11") : Outcome{};
  };
  const auto list = list_candidates(device, problem_of(8, 64, 64), {});
  Insisting strategy;
  int looked_at = 0;
  const auto searched = search_problem(problem_of(8, 64, 64), list.candidates, evaluator, strategy,
                                       {Deadline::never()}, [&](const Trial&) { ++looked_at; });
  ASSERT_TRUE(searched.ok());
  const std::vector<Trial>* const trials = &searched->trials;
  ASSERT_EQ(trials->size(), 2U);
  EXPECT_EQ(looked_at, 2);
  EXPECT_EQ((*trials)[0].outcome.kind, OutcomeKind::crashed);
  EXPECT_EQ((*trials)[0].outcome.microseconds.size(), 1U);
  EXPECT_EQ((*trials)[1].outcome.kind, OutcomeKind::ok);
  EXPECT_EQ((*trials)[1].outcome.microseconds.size(), 2U);
}

/// Asks for each candidate once.
class Ordinary final : public Strategy {
 public:
  std::string_view name() const override { return "ordinary"; }
  bool is_cut() const override { return false; }
  SearchStep next(std::span<const SearchPoint> points, double) override {
    SearchStep step;
    if (next_ < points.size()) step.candidates.push_back(next_++);
    return step;
  }

 private:
  std::size_t next_ = 0;
};

TEST(SearchProblem, WhatTheFirstCandidateWaitsForIsNoTimeOfACandidate) {
  testing::PaperDevice device;
  add_families(device);
  testing::FakeEvaluator evaluator;
  evaluator.time = [](const Problem&, const Candidate&) { return 10.0; };
  double now = 0;
  evaluator.outcome = [&](const Problem&, const Candidate&) {
    now += now == 0 ? 5 : 1;
    return Outcome{};
  };
  const auto list = list_candidates(device, problem_of(8, 64, 64), {});
  Ordinary strategy;
  const auto searched = search_problem(problem_of(8, 64, 64), list.candidates, evaluator, strategy,
                                       {Deadline::never([&] { return now; }), 2}, [](const Trial&) {});
  ASSERT_TRUE(searched.ok());
  ASSERT_EQ(searched->trials.size(), 2U);
  EXPECT_EQ(searched->candidate_seconds, 1);
  EXPECT_EQ(searched->set_up_seconds, 4);
}

TEST(NeighbourMs, AreOneLessAndTheSmallestThatLandsOnTheRow) {
  EXPECT_THAT(neighbour_ms(problem_of(1, 64, 64)), ElementsAre());
  EXPECT_THAT(neighbour_ms(problem_of(16, 64, 64)), ElementsAre(1, 15));
  EXPECT_THAT(neighbour_ms(problem_of(17, 64, 64)), ElementsAre(16));
  EXPECT_THAT(neighbour_ms(problem_of(128, 64, 64)), ElementsAre(65, 127));
  EXPECT_THAT(neighbour_ms(problem_of(8192, 8192, 64)), ElementsAre(4097, 8191));
}

TEST(NeighbourMs, AgreesWithTheLookUpsPadding) {
  for (const std::int64_t n : {64, 8192}) {
    for (std::int64_t m = 1; m <= 700; ++m) {
      std::int64_t smallest = m;
      for (std::int64_t other = m; other >= 1; --other) {
        if (padded_m(other, n, 0) == m || padded_m(other, n, 1) == m) smallest = other;
      }
      const auto found = neighbour_ms(problem_of(m, n, 64));
      std::set<std::int64_t> expected;
      if (m > 1) expected.insert(m - 1);
      if (smallest < m) expected.insert(smallest);
      EXPECT_THAT(found, ::testing::ElementsAreArray(expected)) << m;
    }
  }
}

TunedEntry entry_of(std::string gfx, int cu_num, const Problem& problem) {
  TunedEntry entry;
  entry.gfx = std::move(gfx);
  entry.cu_num = cu_num;
  entry.problem = problem;
  entry.us = 10;
  return entry;
}

TEST(KnownRows, ARowWithoutGfxIsOfAmdDevices) {
  DeviceInfo cpu;
  cpu.gfx = "x86-avx2";
  cpu.cu_num = 80;
  DeviceInfo amd;
  amd.gfx = "gfx942";
  amd.cu_num = 80;
  EXPECT_FALSE(row_is_of(entry_of("", 80, {}), cpu));
  EXPECT_TRUE(row_is_of(entry_of("", 80, {}), amd));
  EXPECT_FALSE(row_is_of(entry_of("", 304, {}), amd));
  EXPECT_TRUE(row_is_of(entry_of("x86-avx2", 80, {}), cpu));
  EXPECT_FALSE(row_is_of(entry_of("x86-avx512", 80, {}), cpu));
}

TEST(KnownRows, TheKeyIsAiters) {
  const Problem base = problem_of(1, 64, 32);
  EXPECT_TRUE(same_key(base, base));
  for (auto change : std::vector<std::function<void(Problem&)>>{
           [](Problem& p) { p.m = 2; }, [](Problem& p) { p.n = 2; }, [](Problem& p) { p.k = 2; },
           [](Problem& p) { p.bias = true; }, [](Problem& p) { p.x_type = DataType::f16; },
           [](Problem& p) { p.y_type = DataType::f32; }, [](Problem& p) { p.scale_ab = true; },
           [](Problem& p) { p.weight_layout = WeightLayout::any; }}) {
    Problem other = base;
    change(other);
    EXPECT_FALSE(same_key(base, other)) << print(other);
  }
  Problem layout = packed_of(1, 64, 32);
  layout.weight_layout = panel;
  EXPECT_TRUE(same_key(packed_of(1, 64, 32), layout)) << "the layout is the kernel's, not the key's";
}

TEST(RowEnvironment, TheHashCoversMeaningAndNoObservation) {
  testing::PaperDevice device;
  add_families(device);
  const Policy policy;
  const auto plain = row_environment(device, policy);
  const auto observed = row_environment(device, policy, {{"noise_floor", 0.01}});
  EXPECT_EQ(plain.hash, observed.hash);
  EXPECT_NE(plain.json, observed.json);
  const auto json = nlohmann::json::parse(observed.json);
  EXPECT_EQ(json["observations"]["noise_floor"], 0.01);
  EXPECT_EQ(json["device"], "Paper 9000");
  EXPECT_EQ(json["libraries"], nlohmann::json({{"vendorlib", "1.2.3"}}));
  EXPECT_EQ(json["families"]["tiled"], 1);

  Policy warm = policy;
  warm.cache = CacheMode::warm;
  EXPECT_NE(row_environment(device, warm).hash, plain.hash);
  device.mutable_info().libraries[0].version = "2.0.0";
  const auto library = row_environment(device, policy);
  EXPECT_NE(library.hash, plain.hash);
  device.mutable_info().model = "Paper 9001";
  EXPECT_NE(row_environment(device, policy).hash, library.hash);
  const auto model = row_environment(device, policy);
  device.add({.name = "fresh", .revision = 2, .parameters = {}});
  EXPECT_NE(row_environment(device, policy).hash, model.hash);
}

TEST(ShareOut, EachItemOnceAndEachWorkerOneAtATime) {
  std::vector<std::atomic<int>> done(50);
  std::vector<std::atomic<int>> busy(3);
  std::set<std::size_t> seen;
  std::mutex lock;
  const Status status =
      share_out(done.size(), busy.size(), [&](std::size_t worker, std::size_t item) -> Status {
        EXPECT_EQ(busy[worker].fetch_add(1), 0);
        ++done[item];
        const auto all_seen = [&] {
          const std::lock_guard guard(lock);
          seen.insert(worker);
          return seen.size() == busy.size();
        };
        for (int i = 0; i < 60'000 && !all_seen(); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --busy[worker];
        return {};
      });
  EXPECT_TRUE(status.ok());
  for (const auto& count : done) EXPECT_EQ(count.load(), 1);
  EXPECT_EQ(seen.size(), 3U);
}

TEST(ShareOut, TheFirstErrorEndsHandingOut) {
  std::atomic<int> begun = 0;
  const Status status = share_out(1000, 2, [&](std::size_t, std::size_t item) {
    ++begun;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return item == 4 ? Status::io("the disk is full") : Status();
  });
  EXPECT_EQ(status.message(), "the disk is full");
  EXPECT_LT(begun.load(), 1000);
}

TEST(ShareOut, ASingleWorkerIsTheCaller) {
  std::vector<std::size_t> order;
  const auto caller = std::this_thread::get_id();
  EXPECT_TRUE(share_out(3, 1, [&](std::size_t worker, std::size_t item) -> Status {
                EXPECT_EQ(worker, 0U);
                EXPECT_EQ(std::this_thread::get_id(), caller);
                order.push_back(item);
                return {};
              }).ok());
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace gemmtune
