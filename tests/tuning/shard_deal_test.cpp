// Who gets what: balance, weights that stay together, the same deal everywhere.
#include "tuning/shard_deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"

namespace gemmtune {
namespace {

std::vector<ShapeRow> shape_rows(std::size_t count, bool packed) {
  Random random(5);
  std::vector<ShapeRow> shapes;
  for (std::size_t i = 0; i < count; ++i) {
    ShapeRow& shape = shapes.emplace_back();
    shape.problem.m = std::int64_t{1} << random.below(14);
    shape.problem.n = 128 * static_cast<std::int64_t>(1 + random.below(64));
    shape.problem.k = 1024 * static_cast<std::int64_t>(1 + random.below(8));
    shape.problem.weight_layout = packed ? WeightLayout::any : WeightLayout::plain;
  }
  return shapes;
}

std::pair<std::int64_t, std::int64_t> weight(const Problem& problem) { return {problem.n, problem.k}; }

TEST(ShardDeals, EveryShapeHasOneShardAndLoadsAreTheSums) {
  const auto shapes = shape_rows(3000, false);
  for (const std::size_t shards : {1, 2, 16, 100}) {
    const ShardDeal deal = deal_shapes(shapes, shards, imagined_gpu, "staged", std::nullopt);
    ASSERT_EQ(deal.shard_of.size(), shapes.size());
    std::vector<double> loads(shards);
    for (std::size_t i = 0; i < shapes.size(); ++i) loads.at(deal.shard_of[i]) += deal.seconds[i];
    for (std::size_t i = 0; i < shards; ++i) EXPECT_NEAR(loads[i], deal.loads[i], 1e-6);
    const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(shards);
    EXPECT_LT(*std::max_element(loads.begin(), loads.end()), 1.05 * mean) << shards;
    const ShardDeal again = deal_shapes(shapes, shards, imagined_gpu, "staged", std::nullopt);
    EXPECT_EQ(again.shard_of, deal.shard_of);
  }
}

TEST(ShardDeals, WeightsStayTogetherWhereThatCostsNoBalance) {
  auto shapes = shape_rows(3000, false);
  const ShardDeal few = deal_shapes(shapes, 4, imagined_gpu, "staged", std::nullopt);
  std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::size_t>> shards;
  for (std::size_t i = 0; i < shapes.size(); ++i) shards[weight(shapes[i].problem)].insert(few.shard_of[i]);
  for (const auto& [of, in] : shards) EXPECT_EQ(in.size(), 1U);
  // One weight over many M would be a shard alone: it is cut between neighbours in M.
  shapes.clear();
  for (int m = 1; m <= 64; ++m) {
    shapes.emplace_back().problem.m = 65 - m;
    shapes.back().problem.n = shapes.back().problem.k = 4096;
  }
  const ShardDeal cut = deal_shapes(shapes, 4, imagined_gpu, "staged", std::nullopt);
  EXPECT_EQ(std::set(cut.shard_of.begin(), cut.shard_of.end()).size(), 4U);
  int changes = 0;
  for (std::size_t i = 1; i < shapes.size(); ++i) changes += cut.shard_of[i] != cut.shard_of[i - 1];
  EXPECT_LT(changes, 24) << "neighbours in M mostly share a shard";
}

TEST(ShardDeals, PackedWeightsAndRangesOfMAreNeverCut) {
  for (const bool packed : {true, false}) {
    const auto shapes = shape_rows(500, packed);
    const std::optional<MRange> range = packed ? std::nullopt : std::optional(MRange{1, 512});
    const ShardDeal deal = deal_shapes(shapes, 64, imagined_cpu, "staged", range);
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> shards;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto [known, is_new] = shards.try_emplace(weight(shapes[i].problem), deal.shard_of[i]);
      EXPECT_EQ(known->second, deal.shard_of[i]);
    }
  }
}

TEST(ShardDeals, MoreShardsThanShapesLeaveSomeEmpty) {
  const auto shapes = shape_rows(3, false);
  const ShardDeal deal = deal_shapes(shapes, 8, imagined_gpu, "staged", std::nullopt);
  EXPECT_EQ(std::set(deal.shard_of.begin(), deal.shard_of.end()).size(), 3U);
  EXPECT_EQ(std::count(deal.loads.begin(), deal.loads.end(), 0.0), 5);
  EXPECT_TRUE(deal_shapes({}, 8, imagined_gpu, "staged", std::nullopt).shard_of.empty());
}

}  // namespace
}  // namespace gemmtune
