// What changed from one set of tuned rows to another.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tuned/groups.h"

namespace gemmtune {

enum class ChangeKind { added, removed, winner, faster, slower, timed, untimed };
inline constexpr std::size_t change_kind_count = static_cast<std::size_t>(ChangeKind::untimed) + 1;
std::string_view to_string(ChangeKind kind);

struct RowChange {
  ChangeKind kind = ChangeKind::added;
  const TunedEntry* before = nullptr;  // null where added
  const TunedEntry* after = nullptr;   // null where removed
  const TunedEntry& row() const { return after != nullptr ? *after : *before; }
};

struct Difference {
  std::vector<RowChange> changes;  // in the order of `before`, then what was added in the order of `after`
  std::size_t equal = 0;           // keys with the same winner and no other time
};

/// Compares the chosen row of every key. A row without gfx stands for the architecture of its cu_num, as
/// AITER fills it in. Another winner is `winner`, whatever the times; the same winner is faster or slower
/// where its time moved by more than both spreads together, or, where a row has no spread, by more than
/// `tolerance` (a share) of the older time. A time that became valid is `timed`, one that no longer is
/// `untimed`. Another solidx of a kernel that its name selects is no change.
Difference compare_rows(std::span<const TunedEntry> before, std::span<const TunedEntry> after,
                        double tolerance);

}  // namespace gemmtune
