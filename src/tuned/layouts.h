// One packed weight a group: which layout the rows of a group want, and which of several to keep.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "numbers/weight_layout.h"
#include "tuned/groups.h"

namespace gemmtune {

/// The layout that a kernel name of ours says ("…_wpanel16"); nullopt where it says none, as names of other
/// tools.
std::optional<WeightLayout> layout_of_kernel_name(std::string_view kernel_name);

/// A group (device, operation, N, K, types) of pre-shuffled problems whose rows want several layouts.
struct LayoutChoice {
  WeightLayout kept = WeightLayout::any;
  const TunedEntry* example = nullptr;  // the first row of the kept layout
  Rows dropped;                         // rows of the other layouts
};

/// Keeps the layout whose times add up to least over the keys that all layouts have; where they have none in
/// common, the one with most keys. Ties: the layout of the first row. Rows that may not be chosen do not count.
std::vector<LayoutChoice> choose_layouts(std::span<const TunedEntry* const> rows);

}  // namespace gemmtune
