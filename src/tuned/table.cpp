#include "tuned/table.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tuned/bucket_index.h"
#include "tuned/choice.h"
#include "tuned/groups.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

/// A row that may answer, of one group.
struct GroupRow {
  std::uint32_t m = 0;
  std::uint32_t m_from = 0;  // 0: the row is no range
  std::int32_t entry = -1;
};

/// The rows of a key, ascending in M.
struct Group {
  std::vector<GroupRow> rows;
  bool has_ranges = false;
};

/// One entry on its way into a group.
struct Item {
  std::uint32_t group = 0;
  std::uint32_t m = 0;
  std::int32_t entry = -1;
};

std::uint32_t usable_m_from(const TunedEntry& entry) {
  if (!entry.m_from || *entry.m_from < 1 || *entry.m_from > entry.problem.m) return 0;
  return static_cast<std::uint32_t>(*entry.m_from);
}

/// Both ascending in M; at an equal M the row of `first` stays.
std::vector<GroupRow> merge_rows(const std::vector<GroupRow>& first, const std::vector<GroupRow>& second) {
  std::vector<GroupRow> merged;
  merged.reserve(first.size() + second.size());
  const auto less = [](const GroupRow& a, const GroupRow& b) { return a.m < b.m; };
  std::set_union(first.begin(), first.end(), second.begin(), second.end(), std::back_inserter(merged), less);
  return merged;
}

}  // namespace

struct TunedTable::State {
  std::vector<TunedEntry> entries;
  std::vector<Group> groups;
  std::unordered_map<GroupKey, std::uint32_t, GroupKeyHash> numbers;
  BucketIndex buckets;

  std::vector<GroupKey> number_groups(std::vector<Item>& items);
  std::vector<std::vector<GroupRow>> choose_rows(std::vector<Item> items, std::size_t group_count);
  void add_wild_groups(std::vector<GroupKey>& keys, std::vector<std::vector<GroupRow>>& chosen);
  std::vector<GroupRow> rows_of(const GroupKey& key, const std::vector<GroupRow>& own,
                                const std::vector<std::vector<GroupRow>>& chosen) const;
  const Group* find(const GroupKey& key) const;
  const Group* find_group(const LookupKey& key) const;
};

std::vector<GroupKey> TunedTable::State::number_groups(std::vector<Item>& items) {
  std::vector<GroupKey> keys;
  items.reserve(entries.size());
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (!is_of_look_up(entry) || !entry.bucket.empty()) continue;
    const GroupKey key = group_key_of(entry);
    const auto [at, made] = numbers.try_emplace(key, static_cast<std::uint32_t>(keys.size()));
    if (made) keys.push_back(key);
    items.push_back(
        {at->second, static_cast<std::uint32_t>(entry.problem.m), static_cast<std::int32_t>(index)});
  }
  return keys;
}

std::vector<std::vector<GroupRow>> TunedTable::State::choose_rows(std::vector<Item> items,
                                                                  std::size_t group_count) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tuple(a.group, a.m, a.entry) < std::tuple(b.group, b.m, b.entry);
  });
  const auto entry_of = [&](const Item& item) -> const TunedEntry& {
    return entries[static_cast<std::size_t>(item.entry)];
  };
  std::vector<std::vector<GroupRow>> chosen(group_count);
  for (std::size_t at = 0; at < items.size();) {
    std::size_t best = at;
    std::size_t end = at + 1;
    for (; end < items.size() && items[end].group == items[at].group && items[end].m == items[at].m; ++end) {
      if (better_row(entry_of(items[end]), entry_of(items[best]))) best = end;
    }
    const TunedEntry& winner = entry_of(items[best]);
    if (may_be_chosen(winner)) {
      chosen[items[best].group].push_back({items[best].m, usable_m_from(winner), items[best].entry});
    }
    at = end;
  }
  return chosen;
}

/// A fused MoE without a row of its own activation takes the first row of any: one more group for each,
/// without the activation.
void TunedTable::State::add_wild_groups(std::vector<GroupKey>& keys,
                                        std::vector<std::vector<GroupRow>>& chosen) {
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (!is_mixture(entry.problem) || !is_of_look_up(entry)) continue;
    if (!may_be_chosen(entry)) continue;
    const GroupKey key = of_any_activation(group_key_of(entry));
    const auto [at, made] = numbers.try_emplace(key, static_cast<std::uint32_t>(keys.size()));
    if (made) {
      keys.push_back(key);
      chosen.emplace_back();
    }
    chosen[at->second].push_back({static_cast<std::uint32_t>(entry.problem.m), usable_m_from(entry),
                                  static_cast<std::int32_t>(index)});
  }
  for (std::size_t index = 0; index < keys.size(); ++index) {
    if (!keys[index].any_activation) continue;
    std::vector<GroupRow>& rows_of_group = chosen[index];
    const auto less = [](const GroupRow& a, const GroupRow& b) { return a.m < b.m; };
    std::stable_sort(rows_of_group.begin(), rows_of_group.end(), less);
    const auto same = [](const GroupRow& a, const GroupRow& b) { return a.m == b.m; };
    rows_of_group.erase(std::unique(rows_of_group.begin(), rows_of_group.end(), same), rows_of_group.end());
  }
}

/// A group's own rows, and at other M those that answer in their place.
std::vector<GroupRow> TunedTable::State::rows_of(const GroupKey& key, const std::vector<GroupRow>& own,
                                                 const std::vector<std::vector<GroupRow>>& chosen) const {
  GroupKey other = key;
  if (is_mixture(key.group)) {
    if (key.any_activation) return own;
    other = of_any_activation(key);
  } else {
    if (!amd_architecture(key.gfx)) return own;
    other.gfx = {};
  }
  const auto at = numbers.find(other);
  return at == numbers.end() ? own : merge_rows(own, chosen[at->second]);
}

TunedTable::TunedTable(std::vector<TunedEntry> entries) : state_(std::make_unique<State>()) {
  state_->entries = std::move(entries);
  std::vector<Item> items;
  auto keys = state_->number_groups(items);
  auto chosen = state_->choose_rows(std::move(items), keys.size());
  state_->add_wild_groups(keys, chosen);
  for (std::size_t index = 0; index < keys.size(); ++index) {
    Group group{state_->rows_of(keys[index], chosen[index], chosen)};
    for (const GroupRow& row : group.rows) group.has_ranges = group.has_ranges || row.m_from != 0;
    state_->groups.push_back(std::move(group));
  }
  state_->buckets = BucketIndex(state_->entries);
}

TunedTable::~TunedTable() = default;
TunedTable::TunedTable(TunedTable&&) noexcept = default;
TunedTable& TunedTable::operator=(TunedTable&&) noexcept = default;

const std::vector<TunedEntry>& TunedTable::entries() const { return state_->entries; }

/// Null if no row that may answer has this key.
const Group* TunedTable::State::find(const GroupKey& key) const {
  const auto at = numbers.find(key);
  return at == numbers.end() || groups[at->second].rows.empty() ? nullptr : &groups[at->second];
}

/// The rows of the key with any M. Null if there is none.
const Group* TunedTable::State::find_group(const LookupKey& asked) const {
  GroupKey key{asked.gfx, asked.cu_num, group_of(asked.problem), false, asked.unknown_types};
  const bool moe = is_mixture(key.group);
  for (int wild = 0; wild <= (moe ? 1 : 0); ++wild) {
    if (wild == 1) key = of_any_activation(key);
    key.gfx = asked.gfx;
    if (const auto* group = find(key)) return group;
    if (!amd_architecture(key.gfx)) continue;
    key.gfx = {};
    if (const auto* group = find(key)) return group;
  }
  return nullptr;
}

std::vector<LookupHit> TunedTable::lookup(const LookupKey& key) const {
  std::vector<LookupHit> hits;
  const auto is_below = [](const GroupRow& row, std::int64_t value) { return row.m < value; };
  const std::int64_t m = key.problem.m;
  if (m < 1 || m > max_dimension) return hits;
  static const Group no_rows;
  const Group* group = state_->find_group(key);
  if (group == nullptr) group = &no_rows;
  const auto bucket = state_->buckets.find(key);
  hits.reserve(4);  // most have no more
  const auto add_bucket = [&](bool of_all_sizes) {
    if (!bucket || bucket->of_all_sizes != of_all_sizes) return;
    const TunedEntry* entry = &state_->entries[bucket->entry];
    hits.push_back({Match::bucket, entry->problem.m, entry});
  };
  const Padding padding = traits(key.problem.operation).padding;
  const auto end = group->rows.end();
  const auto own = std::lower_bound(group->rows.begin(), end, m, is_below);
  const auto first_not_below = [&](std::int64_t wanted) {
    return std::lower_bound(wanted < m ? group->rows.begin() : own, end, wanted, is_below);
  };
  const auto add = [&](Match match, const GroupRow& row) {
    const TunedEntry* entry = &state_->entries[static_cast<std::size_t>(row.entry)];
    const bool known =
        std::any_of(hits.begin(), hits.end(), [&](const LookupHit& hit) { return hit.entry == entry; });
    if (!known) hits.push_back({match, row.m, entry});
  };
  const auto add_at = [&](Match match, std::int64_t row_m) {
    const auto row = first_not_below(row_m);
    if (row != end && row->m == row_m) add(match, *row);
  };
  const auto add_range = [&] {
    if (!group->has_ranges) return;
    for (auto row = own; row != end; ++row) {
      if (row->m_from == 0 || row->m_from > m) continue;
      add(Match::range, *row);
      break;
    }
  };
  if (padding == Padding::token_tiers) {
    const std::int64_t tier = token_tier(m);
    if (tier == m) add_at(Match::exact, m);
    add_range();
    const bool no_row = hits.empty();
    add_bucket(false);
    const std::size_t before = hits.size();
    add_at(Match::coarse, tier);
    if (tier == upper_token_tier && no_row && hits.size() == before) add_at(Match::coarse, lower_token_tier);
    add_bucket(true);
    return hits;
  }
  add_at(Match::exact, m);
  add_range();
  add_bucket(false);
  if (padding == Padding::two_levels) {
    add_at(Match::fine, padded_m(m, key.problem.n, 0));
    add_at(Match::coarse, padded_m(m, key.problem.n, 1));
  }
  add_bucket(true);
  return hits;
}

}  // namespace gemmtune
