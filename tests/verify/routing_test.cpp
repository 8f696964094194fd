#include "verify/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "problem/mixture_routes.h"
#include "verify/inputs.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

Problem mixture(std::int64_t tokens, std::int32_t experts, std::int32_t topk) {
  Problem problem = default_problem(Operation::fused_moe);
  problem.m = tokens;
  problem.n = 32;
  problem.k = 64;
  problem.moe.experts = experts;
  problem.moe.topk = topk;
  return problem;
}

/// Tokens of each expert, most first.
std::vector<int> counts_of(const Routes& routes, std::int32_t experts) {
  std::vector<int> counts(static_cast<std::size_t>(experts));
  for (const std::int32_t id : routes.ids) ++counts[static_cast<std::size_t>(id)];
  std::sort(counts.rbegin(), counts.rend());
  return counts;
}

void expect_possible(const Problem& problem, const Routes& routes) {
  const auto topk = static_cast<std::size_t>(problem.moe.routed_topk());
  ASSERT_EQ(routes.ids.size(), static_cast<std::size_t>(problem.m) * topk);
  ASSERT_EQ(routes.weights.size(), routes.ids.size());
  for (std::size_t first = 0; first < routes.ids.size(); first += topk) {
    const std::set<std::int32_t> own(routes.ids.begin() + static_cast<std::ptrdiff_t>(first),
                                     routes.ids.begin() + static_cast<std::ptrdiff_t>(first + topk));
    EXPECT_EQ(own.size(), topk);
    EXPECT_GE(*own.begin(), 0);
    EXPECT_LT(*own.rbegin(), problem.moe.routed_experts());
    float sum = 0;
    for (std::size_t at = first; at < first + topk; ++at) sum += routes.weights[at];
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(RoutingTest, UniformHasNoFavourites) {
  const Problem problem = mixture(4000, 16, 2);
  const Routes routes = make_routes(problem, {}, 0, Random(1));
  expect_possible(problem, routes);
  const auto counts = counts_of(routes, 16);
  // 500 each, with a deviation of 21.
  EXPECT_LT(counts.front(), 600);
  EXPECT_GT(counts.back(), 400);
}

TEST(RoutingTest, ZipfHasThem) {
  const Problem problem = mixture(4000, 16, 1);
  const Routes routes = make_routes(problem, {RoutingKind::zipf, {}}, 0, Random(1));
  expect_possible(problem, routes);
  const auto counts = counts_of(routes, 16);
  // The r-th has 4000 / (3.3807 · r): 1183, 592, 394 …
  EXPECT_NEAR(counts[0], 1183, 120);
  EXPECT_NEAR(counts[1], 592, 90);
  EXPECT_NEAR(counts[3], 296, 60);
  EXPECT_GT(counts[15], 30);
}

TEST(RoutingTest, EveryExpertOfATokenIsPossibleAndOthersComeWithOtherSeeds) {
  for (const RoutingKind kind : {RoutingKind::uniform, RoutingKind::zipf}) {
    const Problem all = mixture(9, 7, 7);
    expect_possible(all, make_routes(all, {kind, {}}, 0, Random(3)));
    const Problem problem = mixture(64, 32, 4);
    const auto ids = [&](std::uint64_t seed) {
      return make_routes(problem, {kind, {}}, 0, Random(seed)).ids;
    };
    EXPECT_EQ(ids(1), ids(1));
    EXPECT_NE(ids(1), ids(2));
  }
}

TEST(RoutingTest, PaddedBatchesHaveEmptySlotsAndEmptyTokens) {
  const Problem problem = mixture(64, 32, 4);
  const Routes full = make_routes(problem, {}, 0, Random(7));
  const Routes padded = make_routes(problem, {RoutingKind::uniform, nullptr, true}, 0, Random(7));
  std::size_t empty = 0;
  std::set<std::size_t> tokens;  // with an expert
  for (std::size_t i = 0; i < padded.ids.size(); ++i) {
    EXPECT_EQ(std::isnan(padded.weights[i]), padded.ids[i] == empty_slot) << i;
    if (padded.ids[i] == empty_slot) {
      ++empty;
      continue;
    }
    EXPECT_EQ(padded.ids[i], full.ids[i]);
    EXPECT_EQ(padded.weights[i], full.weights[i]);
    tokens.insert(i / 4);
  }
  EXPECT_GT(empty, 16U);
  EXPECT_LT(empty, 80U);
  EXPECT_EQ(tokens.count(63), 0U);
  EXPECT_EQ(tokens.count(32), 0U);
  EXPECT_EQ(padded.ids[0], empty_slot);
  EXPECT_EQ((Routing{RoutingKind::uniform, nullptr, true}).text(), "uniform");
  // One token keeps a slot, however few it has.
  for (const std::int32_t topk : {1, 2}) {
    const Routes one = make_routes(mixture(1, 8, topk), {RoutingKind::uniform, nullptr, true}, 0, Random(1));
    EXPECT_NE(one.ids.back(), empty_slot);
  }
}

/// As valid ids with the weight 0, which the reference knows without them.
TEST(RoutingTest, TheReferenceLeavesEmptySlotsOut) {
  Problem problem = mixture(5, 6, 3);
  problem.bias = true;
  auto operands = make_inputs(problem, 2);
  ASSERT_TRUE(operands.ok()) << operands.message();
  HostOperands zero = *operands;
  for (const std::size_t i : {0U, 4U, 6U, 7U, 8U, 14U}) {
    operands->topk_ids[i] = empty_slot;
    operands->topk_weights[i] = std::numeric_limits<float>::quiet_NaN();
    zero.topk_weights[i] = 0;
  }
  const auto expected = compute_reference(problem, zero, {});
  const auto found = compute_reference(problem, *operands, {});
  ASSERT_TRUE(expected.ok() && found.ok()) << expected.message() << found.message();
  EXPECT_EQ(found->values, expected->values);
  EXPECT_EQ(found->magnitudes, expected->magnitudes);
  for (std::int64_t i = 2 * problem.k; i < 3 * problem.k; ++i)
    EXPECT_EQ(found->values[static_cast<std::size_t>(i)], 0);
}

TEST(RoutingTest, ATraceGoesOnWhereTheLastCallEnded) {
  auto trace = std::make_shared<RoutingTrace>();
  trace->name = "t";
  trace->experts = 8;
  trace->topk = 2;
  trace->ids = {0, 1, 2, 3, 4, 5};
  const Routing routing{RoutingKind::trace, trace};
  const Problem problem = mixture(2, 8, 2);
  EXPECT_EQ(make_routes(problem, routing, 0, Random(1)).ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(make_routes(problem, routing, 1, Random(1)).ids, (std::vector<std::int32_t>{4, 5, 0, 1}));
  EXPECT_TRUE(check_routing(problem, routing).ok());
  EXPECT_EQ(check_routing(mixture(2, 8, 3), routing).message(),
            "routing trace t is of 8 experts and topk 2, the problem has 8 and 3");
  // Shared experts are none of the trace's.
  Problem shared = mixture(2, 9, 3);
  shared.moe.shared_experts = 1;
  EXPECT_TRUE(check_routing(shared, routing).ok());
  auto other = std::make_shared<RoutingTrace>(*trace);
  other->ids.back() = 7;
  EXPECT_NE((Routing{RoutingKind::trace, other}).text(), routing.text());
  EXPECT_TRUE(routing.text().starts_with("trace:t#"));
}

/// With ids and weights for its shared experts as for any other.
HostOperands spelled_out(const Problem& problem, const HostOperands& host) {
  HostOperands all = host;
  const MixtureRoutes routes(problem.moe, host.topk_ids.data(), host.topk_weights.data());
  all.topk_ids.clear();
  all.topk_weights.clear();
  for (std::int64_t pair = 0; pair < problem.m * problem.moe.topk; ++pair) {
    all.topk_ids.push_back(routes.expert(pair));
    all.topk_weights.push_back(routes.weight(pair));
  }
  return all;
}

TEST(RoutingTest, SharedExpertsAreTheLastOnesWithTheWeightOne) {
  Problem shared = mixture(5, 6, 4);
  shared.moe.shared_experts = 2;
  ASSERT_TRUE(check(shared).ok());
  const auto host = make_inputs(shared, 1);
  ASSERT_TRUE(host.ok()) << host.message();
  EXPECT_EQ(host->topk_ids.size(), 10U);
  EXPECT_LT(*std::max_element(host->topk_ids.begin(), host->topk_ids.end()), 4);
  const HostOperands all = spelled_out(shared, *host);
  EXPECT_EQ(all.topk_ids[2], 4);
  EXPECT_EQ(all.topk_ids[3], 5);
  EXPECT_EQ(all.topk_weights[7], 1);
  EXPECT_EQ(all.topk_ids[4], host->topk_ids[2]);
  EXPECT_EQ(all.topk_weights[5], host->topk_weights[3]);
  Problem plain = shared;
  plain.moe.shared_experts = 0;
  for (const bool doweight_stage1 : {false, true}) {
    shared.moe.doweight_stage1 = plain.moe.doweight_stage1 = doweight_stage1;
    const auto of_shared = compute_reference(shared, *host, {});
    const auto of_plain = compute_reference(plain, all, {});
    ASSERT_TRUE(of_shared.ok() && of_plain.ok());
    EXPECT_EQ(of_shared->values, of_plain->values);
  }
}

TEST(RoutingTest, SharedExpertsThatLeaveNoRoutedOneAreRefused) {
  Problem problem = mixture(5, 6, 2);
  problem.moe.shared_experts = 2;
  EXPECT_EQ(check(problem).message(),
            "shared_experts = 2, expected a whole number from 0 to 1: topk 2 counts them too");
  problem.moe.shared_experts = -1;
  EXPECT_FALSE(check(problem).ok());
  problem.moe.shared_experts = 1;
  EXPECT_EQ(*parse_problem(print(problem)), problem);
}

}  // namespace
}  // namespace gemmtune
