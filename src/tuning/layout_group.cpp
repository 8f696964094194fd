#include "tuning/layout_group.h"

#include <algorithm>
#include <unordered_map>

#include "tuned/key.h"

namespace gemmtune {
namespace {

struct Tally {
  WeightLayout layout;
  std::size_t served = 0;
  double cost = 0;
};

Tally& tally_of(std::vector<Tally>& tallies, WeightLayout layout) {
  for (Tally& tally : tallies) {
    if (tally.layout == layout) return tally;
  }
  return tallies.emplace_back(Tally{layout});
}

}  // namespace

std::vector<std::vector<std::size_t>> layout_groups(std::span<const ShapeRow> shapes, bool invariant) {
  std::vector<std::vector<std::size_t>> groups;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> of_weight;  // indices of `groups`
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Problem& problem = shapes[i].problem;
    const auto known = of_weight.find({{}, 0, weight_of(problem)});
    const bool agrees = is_packed(problem) || invariant;
    if (agrees && known != of_weight.end()) {
      groups[known->second].push_back(i);
      continue;
    }
    if (agrees) of_weight.emplace(GroupKey{{}, 0, weight_of(problem)}, groups.size());
    groups.push_back({i});
  }
  return groups;
}

std::optional<WeightLayout> choose_layout(std::span<const GroupMember> members) {
  std::vector<Tally> tallies;
  for (const GroupMember& member : members) {
    for (const LayoutTime& time : member.times) {
      Tally& tally = tally_of(tallies, time.layout);
      ++tally.served;
      tally.cost += static_cast<double>(member.calls) * time.microseconds;
    }
  }
  if (tallies.empty()) return std::nullopt;
  return std::ranges::min_element(tallies,
                                  [](const Tally& a, const Tally& b) {
                                    return a.served != b.served ? a.served > b.served : a.cost < b.cost;
                                  })
      ->layout;
}

}  // namespace gemmtune
