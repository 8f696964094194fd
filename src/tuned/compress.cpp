#include "tuned/compress.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

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

namespace {

constexpr std::int64_t padding_step = 16;  // every padded level is constant between its multiples

/// The values of M at which an answer of the group may begin or end, from `first` to `last`.
std::set<std::int64_t> probes(const Rows& group, std::int64_t first, std::int64_t last) {
  std::set<std::int64_t> at;
  const auto add = [&](std::int64_t m) {
    if (m >= first && m <= last) at.insert(m);
  };
  for (const TunedEntry* row : group) {
    for (const std::int64_t m : {row->problem.m - 1, row->problem.m, row->problem.m + 1}) add(m);
    if (row->m_from) {
      add(*row->m_from - 1);
      add(*row->m_from);
    }
  }
  for (std::int64_t m = first; m <= std::min<std::int64_t>(last, 2 * padding_step); ++m) add(m);
  const std::int64_t step = padding_step;
  for (std::int64_t m = first / step * step; m <= last; m += step) {
    add(m);
    add(m + 1);
  }
  // The highest level of each rule answers every M above it, too.
  for (const std::int64_t m :
       {std::int64_t{8193}, lower_token_tier + 1, upper_token_tier - 1, upper_token_tier, max_dimension}) {
    at.insert(m);
  }
  return at;
}

/// The lowest M whose answer a row without a range may be: what is padded to it.
std::int64_t lowest_answered(const TunedEntry& row) {
  const std::int64_t m = row.problem.m;
  bool padded_to = false;
  if (traits(row.problem.operation).padding == Padding::two_levels) {
    padded_to = padded_m(m, row.problem.n, 0) == m || padded_m(m, row.problem.n, 1) == m;
  } else if (traits(row.problem.operation).padding == Padding::token_tiers) {
    padded_to = token_tier(m) == m;
  }
  return std::max<std::int64_t>(padded_to ? m / 2 : m, 1);
}

/// True if another row of the group may answer in the row's place: the cheap part of the proof.
bool may_be_redundant(const Rows& group, const TunedEntry& row) {
  if (!can_merge(row) || row.m_from) return false;
  const std::int64_t m = row.problem.m;
  const bool pads = traits(row.problem.operation).padding == Padding::two_levels;
  const std::int64_t fine = pads ? padded_m(m, row.problem.n, 0) : m;
  const std::int64_t coarse = pads ? padded_m(m, row.problem.n, 1) : m;
  return std::any_of(group.begin(), group.end(), [&](const TunedEntry* other) {
    const std::int64_t of = other->problem.m;
    const bool in_range = other->m_from && *other->m_from <= m && of > m;
    return of != m && (in_range || of == fine || of == coarse) && same_winner(*other, row);
  });
}

/// Look-ups in a table of all rows, as if some were gone.
class Removal {
 public:
  explicit Removal(std::span<const Rows> groups) : table_(copies(groups)) {}
  /// True if no look-up changes without `row` (which then counts as gone); `answers` is the row in its place.
  bool remove(const Rows& group, const TunedEntry& row, const TunedEntry*& answers) {
    const TunedEntry* copy = &table_.entries()[numbers_.at(&row)];
    LookupKey key{std::string(table_gfx(row)), row.cu_num, row.problem};
    answers = nullptr;
    // Its own M first: there most rows are needed.
    if (!is_answered_alike(key, row.problem.m, copy, &answers) || answers == nullptr) return false;
    for (const std::int64_t m : probes(group, lowest_answered(row), row.problem.m)) {
      if (!is_answered_alike(key, m, copy, nullptr)) return false;
    }
    gone_.insert(copy);
    return true;
  }

 private:
  std::vector<TunedEntry> copies(std::span<const Rows> groups) {
    std::vector<TunedEntry> entries;
    for (const Rows& group : groups) {
      for (const TunedEntry* row : group) {
        numbers_.emplace(row, entries.size());
        originals_.push_back(row);
        entries.push_back(*row);
      }
    }
    return entries;
  }
  /// A look-up lists its answers best first, so without a row that is no range the next one answers.
  bool is_answered_alike(LookupKey& key, std::int64_t m, const TunedEntry* without,
                         const TunedEntry** answers) const {
    key.problem.m = m;
    const TunedEntry* before = nullptr;
    const TunedEntry* after = nullptr;
    for (const LookupHit& hit : table_.lookup(key)) {
      if (gone_.count(hit.entry) != 0) continue;
      if (before == nullptr) before = hit.entry;
      if (after == nullptr && hit.entry != without) after = hit.entry;
    }
    if (before != without) return true;
    if (after == nullptr || !same_winner(*before, *after)) return false;
    if (answers != nullptr) *answers = originals_[static_cast<std::size_t>(after - table_.entries().data())];
    return true;
  }

  std::unordered_map<const TunedEntry*, std::size_t> numbers_;
  Rows originals_;
  TunedTable table_;
  std::unordered_set<const TunedEntry*> gone_;
};

}  // namespace

std::vector<RedundantRow> redundant_rows(std::span<const Rows> groups) {
  std::vector<RedundantRow> redundant;
  const SharedGroups shared(groups);
  std::vector<Rows> candidates;
  for (const Rows& group : groups) {
    const bool any = std::any_of(group.begin(), group.end(),
                                 [&](const TunedEntry* row) { return may_be_redundant(group, *row); });
    if (any && !shared.hold(*group.front())) candidates.push_back(group);
  }
  Removal removal(candidates);
  for (const Rows& group : candidates) {
    // One row after the other, each against those that are left: so all may go together.
    for (const TunedEntry* row : chosen_rows(group)) {
      const TunedEntry* answers = nullptr;
      if (may_be_redundant(group, *row) && removal.remove(group, *row, answers)) {
        redundant.push_back({row, answers});
      }
    }
  }
  return redundant;
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
