#include "tuning/shard_deal.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "search/strategy.h"
#include "tuned/key.h"
#include "tuning/layout_group.h"

namespace gemmtune {
namespace {

constexpr std::size_t assumed_candidates = 512;  // of a shape, in all families together
constexpr double max_unit = 0.25;                // of a shard, of shapes that may be cut apart

using Indices = std::vector<std::size_t>;

/// Shapes that go to one shard together.
struct Unit {
  Indices shapes;
  double seconds = 0;
};

/// Shapes of each weight, in the order of the first one.
std::vector<Indices> by_weight(std::span<const ShapeRow> shapes) {
  std::vector<Indices> weights;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> known;  // indices of `weights`
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto [found, is_new] =
        known.try_emplace(GroupKey{{}, 0, weight_of(shapes[i].problem)}, weights.size());
    if (is_new) weights.emplace_back();
    weights[found->second].push_back(i);
  }
  return weights;
}

std::vector<double> seconds_of(std::span<const ShapeRow> shapes, const std::vector<Indices>& weights,
                               const ImaginedMachine& machine, std::string_view strategy,
                               const std::optional<MRange>& range) {
  const std::size_t trials = expected_trials(strategy, assumed_candidates);
  std::vector<double> seconds(shapes.size());
  for (const Indices& weight : weights) {
    for (const std::size_t shape : weight) {
      Problem problem = shapes[shape].problem;
      if (range) problem.m = range->last;
      const ShapeCost cost = shape_cost(expected_microseconds(problem, machine), trials);
      const double share = range ? 1 / static_cast<double>(weight.size()) : 1;
      seconds[shape] = share * (cost.constant + cost.growing);
    }
  }
  return seconds;
}

/// A weight in parts of at most `limit` seconds, or whole.
void add_units(Indices weight, std::span<const ShapeRow> shapes, const std::vector<double>& seconds,
               bool may_be_cut, double limit, std::vector<Unit>& units) {
  Unit whole{std::move(weight), 0};
  for (const std::size_t shape : whole.shapes) whole.seconds += seconds[shape];
  if (!may_be_cut || whole.seconds <= limit) {
    units.push_back(std::move(whole));
    return;
  }
  std::ranges::stable_sort(
      whole.shapes, [&](std::size_t a, std::size_t b) { return shapes[a].problem.m < shapes[b].problem.m; });
  Unit* unit = nullptr;
  for (const std::size_t shape : whole.shapes) {
    if (unit == nullptr || unit->seconds + seconds[shape] > limit) unit = &units.emplace_back();
    unit->shapes.push_back(shape);
    unit->seconds += seconds[shape];
  }
}

/// layout_groups() flattened: a run works on one after the other.
std::vector<std::size_t> positions_of(std::span<const ShapeRow> shapes) {
  std::vector<std::size_t> positions(shapes.size());
  std::size_t next = 0;
  for (const auto& group : layout_groups(shapes)) {
    for (const std::size_t shape : group) positions[shape] = next++;
  }
  return positions;
}

void share_out_units(std::vector<Unit> units, ShardDeal& deal) {
  std::ranges::stable_sort(units, [](const Unit& a, const Unit& b) { return a.seconds > b.seconds; });
  std::set<std::pair<double, std::size_t>> by_load;  // load, shard
  for (std::size_t shard = 0; shard < deal.loads.size(); ++shard) by_load.insert({0, shard});
  for (const Unit& unit : units) {
    const std::size_t shard = by_load.begin()->second;
    by_load.erase(by_load.begin());
    deal.loads[shard] += unit.seconds;
    by_load.insert({deal.loads[shard], shard});
    for (const std::size_t shape : unit.shapes) deal.shard_of[shape] = shard;
  }
}

}  // namespace

ShardDeal deal_shapes(std::span<const ShapeRow> shapes, std::size_t shards, const ImaginedMachine& machine,
                      std::string_view strategy, const std::optional<MRange>& range) {
  ShardDeal deal;
  deal.shard_of.resize(shapes.size());
  deal.loads.resize(shards);
  deal.positions = positions_of(shapes);
  std::vector<Indices> weights = by_weight(shapes);
  deal.seconds = seconds_of(shapes, weights, machine, strategy, range);
  const double all = std::accumulate(deal.seconds.begin(), deal.seconds.end(), 0.0);
  std::vector<Unit> units;
  const double limit = max_unit * all / static_cast<double>(shards);
  for (Indices& weight : weights) {
    const bool may_be_cut = !range && !is_packed(shapes[weight.front()].problem);
    add_units(std::move(weight), shapes, deal.seconds, may_be_cut, limit, units);
  }
  share_out_units(std::move(units), deal);
  return deal;
}

}  // namespace gemmtune
