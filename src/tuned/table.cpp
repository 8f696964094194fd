#include "tuned/table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/rounding.h"
#include "tuned/bucket_index.h"
#include "tuned/choice.h"
#include "tuned/group_index.h"
#include "tuned/groups.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

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

/// What a row of an invariant group answers at M.
LookupHit hit_of_class(const std::vector<TunedEntry>& entries, const GroupRow& row, std::int64_t m) {
  return {row.m == m ? Match::exact : Match::range, row.m, &entries[static_cast<std::size_t>(row.entry)]};
}

/// The rows of the bit class that most rows have; none if no row has one.
std::vector<GroupRow> rows_of_class(const std::vector<TunedEntry>& entries,
                                    const std::vector<GroupRow>& rows) {
  const auto bits_of = [&](const GroupRow& row) {
    return entries[static_cast<std::size_t>(row.entry)].bits.view();
  };
  std::map<std::string_view, std::size_t> counts;
  for (const GroupRow& row : rows) {
    if (!bits_of(row).empty()) ++counts[bits_of(row)];
  }
  if (counts.empty()) return {};
  const auto chosen = std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; });
  std::vector<GroupRow> kept;
  std::ranges::copy_if(rows, std::back_inserter(kept),
                       [&](const GroupRow& row) { return bits_of(row) == chosen->first; });
  return kept;
}

}  // namespace

std::string_view to_string(Match match) {
  static constexpr std::array<std::string_view, match_count> names{
      "exact", "range", "fine", "coarse", "untuned", "bucket", "fewer_threads"};
  return names[static_cast<std::size_t>(match)];
}

std::int64_t fine_step(std::int64_t m) { return m <= 256 ? 16 : m <= 1024 ? 32 : m <= 4096 ? 64 : 128; }

std::int64_t padded_m(std::int64_t m, std::int64_t n, int level) {
  if (level == 0) return round_up(m, fine_step(m));
  if (m > 8192 && n > 4096) return 8192;
  return m < 1 ? 1 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)));
}

struct TunedTable::State {
  std::vector<TunedEntry> entries;
  GroupIndex groups;
  // The rows of all groups, each group's ascending in M. The M lie apart, so that a search reads few cache lines.
  std::vector<std::uint32_t> row_m;
  std::vector<GroupRow> rows;
  BucketIndex buckets;
  std::map<std::string, std::set<int, std::greater<>>, std::less<>> thread_counts;  // of CPUs' architectures

  std::vector<GroupKey> number_groups(std::vector<Item>& items);
  std::vector<std::vector<GroupRow>> choose_rows(std::vector<Item> items, std::size_t group_count);
  void add_wild_groups(std::vector<GroupKey>& keys, std::vector<std::vector<GroupRow>>& chosen);
  std::vector<GroupRow> rows_of(const GroupKey& key, const std::vector<GroupRow>& own,
                                const std::vector<std::vector<GroupRow>>& chosen) const;
  void lay_out(std::uint32_t group, const std::vector<GroupRow>& rows_of_group);
  const GroupSlice* find(const FlatKey& key, bool amd) const;
  const GroupSlice* find_group(const LookupKey& key) const;
};

std::vector<GroupKey> TunedTable::State::number_groups(std::vector<Item>& items) {
  std::vector<GroupKey> keys;
  items.reserve(entries.size());
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (!is_of_look_up(entry) || !entry.bucket.empty()) continue;
    const GroupKey key = group_key_of(entry);
    const std::uint32_t group = groups.insert(key);
    if (group == keys.size()) {
      keys.push_back(key);
      if (cpu_architecture(entry.gfx)) thread_counts[entry.gfx].insert(entry.cu_num);
    }
    items.push_back({group, static_cast<std::uint32_t>(entry.problem.m), static_cast<std::int32_t>(index)});
  }
  return keys;
}

std::vector<std::vector<GroupRow>> TunedTable::State::choose_rows(std::vector<Item> items,
                                                                  std::size_t group_count) {
  const auto less = [](const Item& a, const Item& b) {
    return std::tuple(a.group, a.m, a.entry) < std::tuple(b.group, b.m, b.entry);
  };
  // Files are written in this order.
  if (!std::ranges::is_sorted(items, less)) std::ranges::sort(items, less);
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
  const auto is_of_mixture = [](const GroupKey& key) { return is_mixture(key.group); };
  if (std::ranges::none_of(keys, is_of_mixture)) return;
  // Of rows of one key the chosen one, whose place in the file counts.
  std::vector<std::size_t> winners;
  for (std::size_t group = 0; group < chosen.size(); ++group) {
    if (!is_of_mixture(keys[group])) continue;
    for (const GroupRow& row : chosen[group]) winners.push_back(static_cast<std::size_t>(row.entry));
  }
  std::ranges::sort(winners);
  for (const std::size_t index : winners) {
    const TunedEntry& entry = entries[index];
    const GroupKey key = of_any_activation(group_key_of(entry));
    const std::uint32_t group = groups.insert(key);
    if (group == keys.size()) {
      keys.push_back(key);
      chosen.emplace_back();
    }
    chosen[group].push_back({static_cast<std::uint32_t>(entry.problem.m), usable_m_from(entry),
                             static_cast<std::int32_t>(index)});
  }
  for (std::size_t index = 0; index < keys.size(); ++index) {
    if (!keys[index].any_activation) continue;
    std::vector<GroupRow>& rows_of_group = chosen[index];
    const auto less = [](const GroupRow& a, const GroupRow& b) { return a.m < b.m; };
    std::ranges::stable_sort(rows_of_group, less);
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
  const std::uint32_t at = groups.find(groups.flat(other));
  return at == GroupIndex::none ? own : merge_rows(own, chosen[at]);
}

void TunedTable::State::lay_out(std::uint32_t group, const std::vector<GroupRow>& rows_of_group) {
  GroupSlice& slice = groups[group];
  slice.first_row = static_cast<std::uint32_t>(rows.size());
  const std::vector<GroupRow> of_class = rows_of_class(entries, rows_of_group);
  slice.is_invariant = !of_class.empty();
  const std::vector<GroupRow>& answering = slice.is_invariant ? of_class : rows_of_group;
  slice.row_count = static_cast<std::uint32_t>(answering.size()) & 0x3fffffffU;
  for (const GroupRow& row : answering) {
    slice.has_ranges = slice.has_ranges || row.m_from != 0;
    row_m.push_back(row.m);
    rows.push_back(row);
  }
}

TunedTable::TunedTable(std::vector<TunedEntry> entries) : state_(std::make_unique<State>()) {
  state_->entries = std::move(entries);
  std::vector<Item> items;
  auto keys = state_->number_groups(items);
  const bool may_have_buckets = items.size() != state_->entries.size();
  auto chosen = state_->choose_rows(std::move(items), keys.size());
  state_->add_wild_groups(keys, chosen);
  for (std::uint32_t group = 0; group < keys.size(); ++group) {
    state_->lay_out(group, state_->rows_of(keys[group], chosen[group], chosen));
  }
  if (may_have_buckets) state_->buckets = BucketIndex(state_->entries);
}

TunedTable::~TunedTable() = default;
TunedTable::TunedTable(TunedTable&&) noexcept = default;
TunedTable& TunedTable::operator=(TunedTable&&) noexcept = default;

const std::vector<TunedEntry>& TunedTable::entries() const { return state_->entries; }

/// Null if no row that may answer has this key. Rows without gfx answer if the architecture is AMD's.
const GroupSlice* TunedTable::State::find(const FlatKey& key, bool amd) const {
  const std::uint32_t group = groups.find(key);
  if (group != GroupIndex::none && groups[group].row_count != 0) return &groups[group];
  if (!amd || key.gfx == 0) return nullptr;
  return find({key.words, 0, key.unknown_types}, amd);
}

/// The rows of the key with any M. Null if there is none.
const GroupSlice* TunedTable::State::find_group(const LookupKey& asked) const {
  FlatKey key{key_words(asked.cu_num, asked.problem), groups.text(asked.gfx),
              groups.text(asked.unknown_types)};
  const bool amd = amd_architecture(asked.gfx);
  const GroupSlice* group = find(key, amd);
  if (group != nullptr || !is_mixture(asked.problem)) return group;
  key.words = key_words(of_any_activation({{}, asked.cu_num, group_of(asked.problem)}));
  return find(key, amd);
}

namespace {

/// The rows of a group, and where an M lies among them.
class GroupRows {
 public:
  GroupRows(const std::uint32_t* m, const GroupRow* rows, std::size_t count, std::int64_t asked)
      : m_(m), rows_(rows), count_(count), asked_(asked), own_(first_not_below(asked, 0, count)) {}

  /// Null if there is no row of this M. No two rows have one M, so that a larger M lies near.
  const GroupRow* at(std::int64_t wanted) const {
    const std::size_t index =
        wanted == asked_ ? own_
        : wanted < asked_
            ? first_not_below(wanted, 0, own_)
            : first_not_below(wanted, own_,
                              std::min(count_, own_ + static_cast<std::size_t>(wanted - asked_)));
    return index < count_ && m_[index] == wanted ? rows_ + index : nullptr;
  }
  /// The range with the smallest M that holds the M asked for.
  const GroupRow* range() const {
    const auto holds = [&](const GroupRow& row) { return row.m_from != 0 && row.m_from <= asked_; };
    const GroupRow* range = std::find_if(rows_ + own_, rows_ + count_, holds);
    return range == rows_ + count_ ? nullptr : range;
  }
  /// Calls `visit` with all rows, the nearest by the ratio of M first, the larger M of two, until it answers false.
  template <typename Visit>
  void visit_nearest(const Visit& visit) const {
    std::size_t above = own_;
    std::size_t below = own_;
    while (below > 0 || above < count_) {
      const bool takes_above =
          below == 0 || (above < count_ && std::uint64_t{m_[above]} * m_[below - 1] <=
                                               static_cast<std::uint64_t>(asked_ * asked_));
      if (!visit(rows_[takes_above ? above++ : --below])) return;
    }
  }

 private:
  std::size_t first_not_below(std::int64_t wanted, std::size_t from, std::size_t end) const {
    return static_cast<std::size_t>(std::lower_bound(m_ + from, m_ + end, wanted) - m_);
  }

  const std::uint32_t* m_;
  const GroupRow* rows_;
  std::size_t count_;
  std::int64_t asked_;
  std::size_t own_;
};

}  // namespace

LookupHits TunedTable::lookup(const LookupKey& key) const {
  LookupHits hits;
  const std::int64_t m = key.problem.m;
  if (m < 1 || m > max_dimension) return hits;
  static constexpr GroupSlice no_rows;
  const GroupSlice* found = state_->find_group(key);
  const GroupSlice& group = found == nullptr ? no_rows : *found;
  const GroupRows rows(state_->row_m.data() + group.first_row, state_->rows.data() + group.first_row,
                       group.row_count, m);
  const auto add = [&](Match match, const GroupRow* row) {
    if (row == nullptr) return;
    const TunedEntry* entry = &state_->entries[static_cast<std::size_t>(row->entry)];
    const bool known = std::ranges::any_of(hits, [&](const LookupHit& hit) { return hit.entry == entry; });
    if (!known) hits.push_back({match, row->m, entry});
  };
  const auto bucket = state_->buckets.find(key);
  const auto add_bucket = [&](bool of_all_sizes) {
    if (!bucket || bucket->of_all_sizes != of_all_sizes) return;
    const TunedEntry* entry = &state_->entries[bucket->entry];
    hits.push_back({Match::bucket, entry->problem.m, entry});
  };
  if (group.is_invariant) {
    rows.visit_nearest([&](const GroupRow& row) {
      hits.push_back(hit_of_class(state_->entries, row, m));
      return hits.size() + 1 < match_count;
    });
    return hits;
  }
  const Padding padding = traits(key.problem.operation).padding;
  if (padding == Padding::token_tiers) {
    const std::int64_t tier = token_tier(m);
    if (tier == m) add(Match::exact, rows.at(m));
    if (group.has_ranges) add(Match::range, rows.range());
    const bool no_row = hits.empty();
    add_bucket(false);
    const std::size_t before = hits.size();
    add(Match::coarse, rows.at(tier));
    if (tier == upper_token_tier && no_row && hits.size() == before) {
      add(Match::coarse, rows.at(lower_token_tier));
    }
    add_bucket(true);
    return hits;
  }
  add(Match::exact, rows.at(m));
  if (group.has_ranges) add(Match::range, rows.range());
  add_bucket(false);
  if (padding == Padding::two_levels) {
    const std::int64_t fine = padded_m(m, key.problem.n, 0);
    const std::int64_t coarse = padded_m(m, key.problem.n, 1);
    if (fine != m) add(Match::fine, rows.at(fine));
    if (coarse != m && coarse != fine) add(Match::coarse, rows.at(coarse));
  }
  add_bucket(true);
  return hits;
}

std::vector<LookupHit> TunedTable::lookup_invariant(const LookupKey& key) const {
  std::vector<LookupHit> hits;
  const std::int64_t m = key.problem.m;
  const GroupSlice* group = m < 1 || m > max_dimension ? nullptr : state_->find_group(key);
  if (group == nullptr || !group->is_invariant) return hits;
  const GroupRows rows(state_->row_m.data() + group->first_row, state_->rows.data() + group->first_row,
                       group->row_count, m);
  rows.visit_nearest([&](const GroupRow& row) {
    hits.push_back(hit_of_class(state_->entries, row, m));
    return true;
  });
  return hits;
}

std::optional<LookupHit> TunedTable::lookup_fewer_threads(const LookupKey& key) const {
  const auto counts = state_->thread_counts.find(key.gfx);
  if (counts == state_->thread_counts.end()) return std::nullopt;
  LookupKey asked = key;
  for (auto count = counts->second.upper_bound(key.cu_num); count != counts->second.end(); ++count) {
    asked.cu_num = *count;
    for (const LookupHit& hit : lookup(asked)) {
      if (hit.match != Match::bucket) return LookupHit{Match::fewer_threads, hit.hit_m, hit.entry};
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune
