#include "tuned/difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>

namespace gemmtune {
namespace {

struct RowKey {
  GroupKey group;
  std::int64_t m = 0;
  std::string_view tag;
  std::string_view other_key;
  friend bool operator==(const RowKey&, const RowKey&) = default;
};

struct RowKeyHash {
  std::size_t operator()(const RowKey& key) const {
    return GroupKeyHash{}(key.group) ^ (static_cast<std::size_t>(key.m) * 0x9e3779b97f4a7c15ULL);
  }
};

RowKey row_key_of(const TunedEntry& row) {
  GroupKey group = group_key_of(row);
  if (group.gfx.empty()) group.gfx = gfx_of_cu_num(row.cu_num);
  return {group, row.problem.m,
          row.stages != nullptr ? std::string_view(row.stages->tag) : std::string_view(),
          row.other_key.view()};
}

/// The chosen row of each key, and the keys' rows in order.
struct ChosenRows {
  Rows rows;
  std::unordered_map<RowKey, std::size_t, RowKeyHash> places;

  explicit ChosenRows(std::span<const TunedEntry> entries) {
    for (const TunedEntry& entry : entries) {
      const auto [at, made] = places.try_emplace(row_key_of(entry), rows.size());
      if (made) {
        rows.push_back(&entry);
      } else if (better_row(entry, *rows[at->second])) {
        rows[at->second] = &entry;
      }
    }
  }
  const TunedEntry* find(const TunedEntry& row) const {
    const auto at = places.find(row_key_of(row));
    return at == places.end() ? nullptr : rows[at->second];
  }
};

/// The same kernel, run in the same way. The number of a kernel counts only where AITER selects by it; else
/// it is the position in the candidate list of one build, and the name decides.
bool same_kernel(const TunedEntry& before, const TunedEntry& after) {
  constexpr std::array<std::string_view, 3> by_number{"hipblaslt", "opus", "skinny"};
  const bool numbered = before.kernel_name.empty() ||
                        std::find(by_number.begin(), by_number.end(), before.libtype) != by_number.end();
  if (numbered || before.solidx == after.solidx) return same_winner(before, after);
  TunedEntry renumbered = after;
  renumbered.solidx = before.solidx;
  return same_winner(before, renumbered);
}

std::optional<ChangeKind> change_of(const TunedEntry& before, const TunedEntry& after, double tolerance) {
  if (!same_kernel(before, after)) return ChangeKind::winner;
  if (!valid_time(before.us) || !valid_time(after.us)) {
    if (valid_time(before.us) == valid_time(after.us)) return std::nullopt;
    return valid_time(after.us) ? ChangeKind::timed : ChangeKind::untimed;
  }
  const double noise = before.spread && after.spread ? *before.spread + *after.spread : tolerance * before.us;
  if (std::abs(after.us - before.us) <= noise) return std::nullopt;
  return after.us < before.us ? ChangeKind::faster : ChangeKind::slower;
}

}  // namespace

std::string_view to_string(ChangeKind kind) {
  static constexpr std::array<std::string_view, 7> names{"added",  "removed", "winner", "faster",
                                                         "slower", "timed",   "untimed"};
  return names[static_cast<std::size_t>(kind)];
}

Difference compare_rows(std::span<const TunedEntry> before, std::span<const TunedEntry> after,
                        double tolerance) {
  const ChosenRows old_rows(before);
  const ChosenRows new_rows(after);
  Difference difference;
  for (const TunedEntry* row : old_rows.rows) {
    const TunedEntry* now = new_rows.find(*row);
    if (now == nullptr) {
      difference.changes.push_back({ChangeKind::removed, row, nullptr});
    } else if (const auto kind = change_of(*row, *now, tolerance)) {
      difference.changes.push_back({*kind, row, now});
    } else {
      ++difference.equal;
    }
  }
  for (const TunedEntry* row : new_rows.rows) {
    if (old_rows.find(*row) == nullptr) difference.changes.push_back({ChangeKind::added, nullptr, row});
  }
  return difference;
}

}  // namespace gemmtune
