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

bool share_weight(const Problem& a, const Problem& b) {
  if (!a.bpreshuffle || !b.bpreshuffle) return false;
  Problem same_m = a;
  same_m.m = b.m;
  same_m.weight_layout = b.weight_layout;
  return same_m == b;
}

std::vector<std::vector<std::size_t>> layout_groups(std::span<const ShapeRow> shapes) {
  std::vector<std::vector<std::size_t>> groups;
  // Indices of `groups`, by the key of their weights: those of one key differ in few things.
  std::unordered_map<GroupKey, std::vector<std::size_t>, GroupKeyHash> of_key;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Problem& problem = shapes[i].problem;
    if (!problem.bpreshuffle) {
      groups.push_back({i});
      continue;
    }
    std::vector<std::size_t>& near = of_key[{{}, 0, group_of(problem)}];
    const auto known = std::find_if(near.begin(), near.end(), [&](std::size_t group) {
      return share_weight(shapes[groups[group].front()].problem, problem);
    });
    if (known == near.end()) {
      near.push_back(groups.size());
      groups.push_back({i});
    } else {
      groups[*known].push_back(i);
    }
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
  return std::min_element(tallies.begin(), tallies.end(),
                          [](const Tally& a, const Tally& b) {
                            return a.served != b.served ? a.served > b.served : a.cost < b.cost;
                          })
      ->layout;
}

}  // namespace gemmtune
