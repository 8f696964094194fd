#include "tuned/table.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tuned/intervals.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

GroupKey group_key(std::string_view gfx, int cu_num, const Problem& problem) {
  return {gfx, cu_num, group_of(problem)};
}

/// One entry on its way into a group.
struct Item {
  std::uint32_t group = 0;
  std::uint32_t m = 0;
  std::int32_t entry = -1;
};

/// True where `a` wins over `b`, which came first.
bool better(const TunedEntry& a, const TunedEntry& b) {
  if (!valid_time(a.us)) return false;
  return !valid_time(b.us) || a.us < b.us;
}

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

class TunedTable::Group {
 public:
  // Slices of the table's arenas: all groups lie close together in memory.
  const std::uint32_t* starts = nullptr;
  const Answer* answers = nullptr;
  std::uint32_t interval_count = 0;
  std::uint32_t row_count = 0;
  const GroupRow* rows = nullptr;  // ascending in M
  std::int64_t n = 0;
  Padding padding = Padding::two_levels;
};

struct TunedTable::State {
  std::vector<TunedEntry> entries;
  std::vector<std::size_t> duplicates;
  std::vector<std::uint32_t> starts;
  std::vector<Answer> answers;
  std::vector<GroupRow> rows;
  std::vector<Group> groups;
  std::unordered_map<GroupKey, std::uint32_t, GroupKeyHash> numbers;

  std::vector<GroupKey> number_groups(std::vector<Item>& items);
  std::vector<std::vector<GroupRow>> choose_rows(std::vector<Item> items, std::size_t group_count);
  void add_wild_groups(std::vector<GroupKey>& keys, std::vector<std::vector<GroupRow>>& chosen);
  std::vector<GroupRow> rows_of(const GroupKey& key, const std::vector<GroupRow>& own,
                                const std::vector<std::vector<GroupRow>>& chosen) const;
  void lay_out(const std::vector<GroupKey>& keys, const std::vector<std::vector<GroupRow>>& chosen);
  const Group* find(const GroupKey& key) const;
};

std::vector<GroupKey> TunedTable::State::number_groups(std::vector<Item>& items) {
  std::vector<GroupKey> keys;
  items.reserve(entries.size());
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (!is_of_look_up(entry)) continue;
    const GroupKey key = group_key(table_gfx(entry), entry.cu_num, entry.problem);
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
      std::size_t loser = end;
      if (better(entry_of(items[end]), entry_of(items[best]))) std::swap(best, loser);
      duplicates.push_back(static_cast<std::size_t>(items[loser].entry));
    }
    const TunedEntry& winner = entry_of(items[best]);
    if (valid_time(winner.us)) {
      chosen[items[best].group].push_back({items[best].m, usable_m_from(winner), items[best].entry});
    }
    at = end;
  }
  std::sort(duplicates.begin(), duplicates.end());
  return chosen;
}

/// A fused MoE without a row of its own activation takes the first row of any: one more group for each,
/// without the activation.
void TunedTable::State::add_wild_groups(std::vector<GroupKey>& keys,
                                        std::vector<std::vector<GroupRow>>& chosen) {
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (!is_mixture(entry.problem) || !is_of_look_up(entry)) continue;
    if (!valid_time(entry.us)) continue;
    const GroupKey key = of_any_activation(group_key(table_gfx(entry), entry.cu_num, entry.problem));
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

void TunedTable::State::lay_out(const std::vector<GroupKey>& keys,
                                const std::vector<std::vector<GroupRow>>& chosen) {
  groups.resize(keys.size());
  for (std::size_t index = 0; index < keys.size(); ++index) {
    const std::vector<GroupRow> own = rows_of(keys[index], chosen[index], chosen);
    const Padding padding = traits(keys[index].group.operation).padding;
    const Intervals intervals = lay_out_intervals(own, keys[index].group.n, padding);
    Group& group = groups[index];
    group.n = keys[index].group.n;
    group.padding = padding;
    group.row_count = static_cast<std::uint32_t>(own.size());
    group.interval_count = static_cast<std::uint32_t>(intervals.starts.size());
    rows.insert(rows.end(), own.begin(), own.end());
    starts.insert(starts.end(), intervals.starts.begin(), intervals.starts.end());
    answers.insert(answers.end(), intervals.answers.begin(), intervals.answers.end());
  }
  // Only now do the arenas stay where they are.
  std::size_t row = 0;
  std::size_t interval = 0;
  for (Group& group : groups) {
    group.rows = rows.data() + row;
    group.starts = starts.data() + interval;
    group.answers = answers.data() + interval;
    row += group.row_count;
    interval += group.interval_count;
  }
}

TunedTable::TunedTable(std::vector<TunedEntry> entries) : state_(std::make_unique<State>()) {
  state_->entries = std::move(entries);
  std::vector<Item> items;
  auto keys = state_->number_groups(items);
  auto chosen = state_->choose_rows(std::move(items), keys.size());
  state_->add_wild_groups(keys, chosen);
  state_->lay_out(keys, chosen);
}

TunedTable::~TunedTable() = default;
TunedTable::TunedTable(TunedTable&&) noexcept = default;
TunedTable& TunedTable::operator=(TunedTable&&) noexcept = default;

const std::vector<TunedEntry>& TunedTable::entries() const { return state_->entries; }
const std::vector<std::size_t>& TunedTable::duplicates() const { return state_->duplicates; }

const TunedTable::Group* TunedTable::State::find(const GroupKey& key) const {
  const auto at = numbers.find(key);
  if (at == numbers.end() || groups[at->second].row_count == 0) return nullptr;
  return &groups[at->second];
}

const TunedTable::Group* TunedTable::find_group(const LookupKey& key_without_m) const {
  GroupKey key = group_key(key_without_m.gfx, key_without_m.cu_num, key_without_m.problem);
  const bool moe = is_mixture(key.group);
  for (int wild = 0; wild <= (moe ? 1 : 0); ++wild) {
    if (wild == 1) key = of_any_activation(key);
    key.gfx = key_without_m.gfx;
    if (const Group* group = state_->find(key)) return group;
    if (!amd_architecture(key.gfx)) continue;
    key.gfx = {};
    if (const Group* group = state_->find(key)) return group;
  }
  return nullptr;
}

TunedTable::Answer TunedTable::lookup(const Group& group, std::int64_t m) {
  if (m < 1 || m > max_dimension) return {};
  const auto wanted = static_cast<std::uint32_t>(m);
  // The last start that is not above M; starts[0] = 0, so there is one. Written so that the compiler needs no
  // branch on the data.
  const std::uint32_t* base = group.starts;
  std::uint32_t count = group.interval_count;
  while (count > 1) {
    const std::uint32_t half = count / 2;
    base = base[half] <= wanted ? base + half : base;
    count -= half;
  }
  return group.answers[base - group.starts];
}

std::vector<LookupHit> TunedTable::lookup(const LookupKey& key) const {
  std::vector<LookupHit> hits;
  const Group* group = find_group(key);
  const std::int64_t m = key.problem.m;
  if (group == nullptr || m < 1 || m > max_dimension) return hits;
  const GroupRow* const end = group->rows + group->row_count;
  const auto first_not_below = [&](std::int64_t wanted) {
    return std::lower_bound(group->rows, end, wanted,
                            [](const GroupRow& row, std::int64_t value) { return row.m < value; });
  };
  const auto add = [&](Match match, const GroupRow& row) {
    const TunedEntry* entry = &state_->entries[static_cast<std::size_t>(row.entry)];
    const bool known =
        std::any_of(hits.begin(), hits.end(), [&](const LookupHit& hit) { return hit.entry == entry; });
    if (!known) hits.push_back({match, row.m, entry});
  };
  const auto add_at = [&](Match match, std::int64_t row_m) {
    const GroupRow* row = first_not_below(row_m);
    if (row != end && row->m == row_m) add(match, *row);
  };
  const auto add_range = [&] {
    for (const GroupRow* row = first_not_below(m); row != end; ++row) {
      if (row->m_from == 0 || row->m_from > m) continue;
      add(Match::range, *row);
      break;
    }
  };
  if (group->padding == Padding::token_tiers) {
    const std::int64_t tier = token_tier(m);
    if (tier == m) add_at(Match::exact, m);
    add_range();
    add_at(Match::coarse, tier);
    if (tier == upper_token_tier && hits.empty()) add_at(Match::coarse, lower_token_tier);
    return hits;
  }
  add_at(Match::exact, m);
  add_range();
  if (group->padding == Padding::two_levels) {
    add_at(Match::fine, padded_m(m, group->n, 0));
    add_at(Match::coarse, padded_m(m, group->n, 1));
  }
  return hits;
}

}  // namespace gemmtune
