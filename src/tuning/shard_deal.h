// Which shape of a list is tuned by which shard. Depends on nothing but the list, the search, the number of shards and
// if the machines are CPUs or GPUs: every one of them deals alike, and so does one without a device.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/shapes/shape_list.h"
#include "tuning/m_range.h"
#include "tuning/time_estimate.h"

namespace gemmtune {

/// Raised with every change of who gets what: shards of two rules are never merged as one list.
inline constexpr int shard_deal_version = 1;

struct ShardDeal {
  std::vector<std::size_t> shard_of;   // of each shape, from 0
  std::vector<std::size_t> positions;  // of each shape in the order in which a single run writes rows
  std::vector<double> seconds;  // predicted, of each shape; over ranges of M an equal share of its weight's
  std::vector<double> loads;    // the same of each shard
};

/// Shapes of one weight (N, K, types) stay together: those that are packed into one layout and those of a range of M
/// always, others unless they are more than a quarter of a shard, which are cut between neighbours in M.
///
/// The largest first, each to the shard with the least load. The cost of a shape is the estimate's (shape_cost) for a
/// machine of this kind, with as many candidates as the strategy tries of some hundred.
ShardDeal deal_shapes(std::span<const ShapeRow> shapes, std::size_t shards, const ImaginedMachine& machine,
                      std::string_view strategy, const std::optional<MRange>& range);

}  // namespace gemmtune
