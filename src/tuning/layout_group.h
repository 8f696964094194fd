// Layout groups: a pre-shuffled weight is packed once and called with many M, so all its problems must agree
// on one layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/shapes/shape_list.h"

namespace gemmtune {

/// Indices of shapes that must agree, in the order of their first member: those that share a packed weight
/// together, and if `invariant` those that share a plain one; every other shape alone.
std::vector<std::vector<std::size_t>> layout_groups(std::span<const ShapeRow> shapes, bool invariant = false);

struct LayoutTime {
  WeightLayout layout = WeightLayout::plain;
  double microseconds = 0;
};

/// One M of a group: its best verified time in each layout that can do it.
struct GroupMember {
  std::int64_t calls = 1;
  std::vector<LayoutTime> times;
};

/// The layout with the smallest Σ calls · time among those that serve the most members; a tie goes to the
/// layout met first. Members without any time have no say. nullopt: no member has one.
std::optional<WeightLayout> choose_layout(std::span<const GroupMember> members);

}  // namespace gemmtune
