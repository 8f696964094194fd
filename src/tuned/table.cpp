#include "tuned/table.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tuned/intervals.h"

namespace gemmtune {
namespace {

/// What the rows of a group share. `gfx` is a view: into an entry of the table, or into the key looked up.
struct GroupKey {
  std::string_view gfx;
  int cu_num = 0;
  Operation operation = Operation::a16w16;
  DataType x_type = DataType::bf16;
  DataType w_type = DataType::bf16;
  DataType y_type = DataType::bf16;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::uint32_t flags = 0;

  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};

std::uint32_t flags_of(const Problem& problem) {
  const bool bits[] = {problem.bias,
                       problem.scale_ab,
                       problem.bpreshuffle,
                       problem.x_order == Order::column_major,
                       problem.w_order == Order::column_major,
                       problem.y_order == Order::column_major};
  std::uint32_t flags = 0;
  for (const bool bit : bits) flags = flags << 1 | (bit ? 1U : 0U);
  return flags;
}

GroupKey group_key(std::string_view gfx, int cu_num, const Problem& problem) {
  return {gfx,       cu_num,    problem.operation, problem.x_type,   problem.w_type, problem.y_type,
          problem.n, problem.k, problem.batch,     flags_of(problem)};
}

struct GroupKeyHash {
  std::size_t operator()(const GroupKey& key) const {
    std::uint64_t hash = std::hash<std::string_view>{}(key.gfx);
    const std::uint64_t words[] = {
        static_cast<std::uint64_t>(key.cu_num),
        static_cast<std::uint64_t>(key.operation) << 32 | static_cast<std::uint64_t>(key.x_type) << 16 |
            static_cast<std::uint64_t>(key.w_type) << 8 | static_cast<std::uint64_t>(key.y_type),
        static_cast<std::uint64_t>(key.n), static_cast<std::uint64_t>(key.k),
        static_cast<std::uint64_t>(key.batch) << 8 | key.flags};
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 32;
    }
    return static_cast<std::size_t>(hash);
  }
};

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
  void lay_out(const std::vector<GroupKey>& keys, const std::vector<std::vector<GroupRow>>& chosen);
};

std::vector<GroupKey> TunedTable::State::number_groups(std::vector<Item>& items) {
  std::vector<GroupKey> keys;
  items.reserve(entries.size());
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (entry.problem.m < 1 || entry.problem.m > max_dimension) continue;
    const GroupKey key = group_key(entry.gfx, entry.cu_num, entry.problem);
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

void TunedTable::State::lay_out(const std::vector<GroupKey>& keys,
                                const std::vector<std::vector<GroupRow>>& chosen) {
  groups.resize(keys.size());
  for (std::size_t index = 0; index < keys.size(); ++index) {
    std::vector<GroupRow> merged;
    const std::vector<GroupRow>* own = &chosen[index];
    if (amd_architecture(keys[index].gfx)) {
      GroupKey without_gfx = keys[index];
      without_gfx.gfx = {};
      const auto legacy = numbers.find(without_gfx);
      if (legacy != numbers.end()) {
        merged = merge_rows(*own, chosen[legacy->second]);
        own = &merged;
      }
    }
    const Intervals intervals = lay_out_intervals(*own, keys[index].n);
    Group& group = groups[index];
    group.n = keys[index].n;
    group.row_count = static_cast<std::uint32_t>(own->size());
    group.interval_count = static_cast<std::uint32_t>(intervals.starts.size());
    rows.insert(rows.end(), own->begin(), own->end());
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
  const auto keys = state_->number_groups(items);
  state_->lay_out(keys, state_->choose_rows(std::move(items), keys.size()));
}

TunedTable::~TunedTable() = default;
TunedTable::TunedTable(TunedTable&&) noexcept = default;
TunedTable& TunedTable::operator=(TunedTable&&) noexcept = default;

const std::vector<TunedEntry>& TunedTable::entries() const { return state_->entries; }
const std::vector<std::size_t>& TunedTable::duplicates() const { return state_->duplicates; }

const TunedTable::Group* TunedTable::find_group(const LookupKey& key_without_m) const {
  GroupKey key = group_key(key_without_m.gfx, key_without_m.cu_num, key_without_m.problem);
  auto at = state_->numbers.find(key);
  if (at == state_->numbers.end() && amd_architecture(key.gfx)) {
    key.gfx = {};
    at = state_->numbers.find(key);
  }
  if (at == state_->numbers.end()) return nullptr;
  const Group& group = state_->groups[at->second];
  return group.row_count == 0 ? nullptr : &group;
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
  add_at(Match::exact, m);
  for (const GroupRow* row = first_not_below(m); row != end; ++row) {
    if (row->m_from == 0 || row->m_from > m) continue;
    add(Match::range, *row);
    break;
  }
  add_at(Match::fine, padded_m(m, group->n, 0));
  add_at(Match::coarse, padded_m(m, group->n, 1));
  return hits;
}

}  // namespace gemmtune
