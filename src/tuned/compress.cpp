#include "tuned/compress.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "tuned/checks.h"
#include "tuned/groups.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

/// Groups whose requests other groups answer, too: rows without gfx beside rows with it, and the activations
/// of one fused MoE (a request without rows of its own takes the first in the file). Ranges of one would hide
/// rows of the other.
class SharedGroups {
 public:
  explicit SharedGroups(std::span<const Rows> groups) {
    for (const Rows& group : groups) {
      const TunedEntry& row = *group.front();
      ++activations_[without_activation(row)];
      const GroupKey any_gfx = without_gfx(row);
      ++architectures_[any_gfx];
      if (table_gfx(row).empty()) lacks_gfx_.insert(any_gfx);
    }
  }
  bool hold(const TunedEntry& row) const {
    if (activations_.at(without_activation(row)) > 1) return true;
    const GroupKey any_gfx = without_gfx(row);
    return architectures_.at(any_gfx) > 1 && lacks_gfx_.count(any_gfx) != 0;
  }

 private:
  static GroupKey without_activation(const TunedEntry& row) {
    return of_any_activation({table_gfx(row), row.cu_num, group_of(row.problem)});
  }
  static GroupKey without_gfx(const TunedEntry& row) {
    GroupKey key = without_activation(row);
    if (amd_architecture(key.gfx)) key.gfx = {};
    return key;
  }

  std::unordered_map<GroupKey, int, GroupKeyHash> activations_;
  std::unordered_map<GroupKey, int, GroupKeyHash> architectures_;
  std::unordered_set<GroupKey, GroupKeyHash> lacks_gfx_;
};

bool can_merge(const TunedEntry& row) {
  return row.other_key.empty() && valid_time(row.us) && why_unreachable(row).empty();
}

std::int64_t lowest_m(const TunedEntry& row) { return row.m_from.value_or(row.problem.m); }

/// Merges runs of one group into `kept` (indexed as the entries; merged = 0: the row goes).
void compress_group(const Rows& group, const TunedEntry* first, std::vector<RangeRow>& kept) {
  const auto index_of = [&](const TunedEntry* row) { return static_cast<std::size_t>(row - first); };
  Rows answering;
  for (const TunedEntry* row : group) {
    if (can_merge(*row)) answering.push_back(row);
  }
  for (std::size_t at = 0; at < answering.size();) {
    std::size_t end = at + 1;
    std::int64_t m_from = lowest_m(*answering[at]);
    for (; end < answering.size() && same_winner(*answering[at], *answering[end]); ++end) {
      m_from = std::min(m_from, lowest_m(*answering[end]));
      kept[index_of(answering[end - 1])].merged = 0;
    }
    if (end - at > 1) kept[index_of(answering[end - 1])] = {index_of(answering[end - 1]), m_from, end - at};
    at = end;
  }
}

}  // namespace

std::vector<RangeRow> compress(const std::vector<TunedEntry>& entries) {
  std::vector<RangeRow> kept(entries.size());
  for (std::size_t index = 0; index < kept.size(); ++index) kept[index].entry = index;
  const Rows rows = rows_of(entries);
  const std::vector<Rows> groups = rows_by_group(rows);
  const SharedGroups shared(groups);
  for (const Rows& group : groups) {
    if (!shared.hold(*group.front())) compress_group(group, entries.data(), kept);
  }
  std::erase_if(kept, [](const RangeRow& row) { return row.merged == 0; });
  return kept;
}

Status check_same_winners(std::vector<TunedEntry> before, std::vector<TunedEntry> after) {
  const TunedTable old_table(std::move(before));
  const TunedTable new_table(std::move(after));
  for (const TunedEntry& row : old_table.entries()) {
    if (!can_merge(row)) continue;
    const LookupKey key{std::string(table_gfx(row)), row.cu_num, row.problem};
    const auto expected = old_table.lookup(key);
    const auto answered = new_table.lookup(key);
    if (expected.empty()) continue;
    if (!answered.empty() && same_winner(*expected.front().entry, *answered.front().entry)) continue;
    return Status::internal("{}: answered by {}, expected {}", describe_row(row),
                            answered.empty() ? "no row" : answered.front().entry->kernel_name,
                            expected.front().entry->kernel_name);
  }
  return {};
}

}  // namespace gemmtune
