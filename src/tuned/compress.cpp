#include "tuned/compress.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tuned/checks.h"
#include "tuned/groups.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

/// A fused MoE without a row of its own activation takes a row of another one: the first in the file at the
/// looked-up M, which ranges would change.
GroupKey key_without_activation(const TunedEntry& row) {
  GroupKey key{table_gfx(row), row.cu_num, group_of(row.problem)};
  key.group.moe.activation = Activation::none;
  return key;
}

class SharedActivations {
 public:
  explicit SharedActivations(std::span<const Rows> groups) {
    for (const Rows& group : groups) {
      if (group.front()->problem.operation == Operation::fused_moe) {
        ++count_[key_without_activation(*group.front())];
      }
    }
  }
  bool holds(const TunedEntry& row) const {
    const auto at = count_.find(key_without_activation(row));
    return at != count_.end() && at->second > 1;
  }

 private:
  std::unordered_map<GroupKey, int, GroupKeyHash> count_;
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
  const SharedActivations shared(groups);
  for (const Rows& group : groups) {
    if (!shared.holds(*group.front())) compress_group(group, entries.data(), kept);
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
