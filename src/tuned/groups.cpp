#include "tuned/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "tuned/choice.h"

namespace gemmtune {
namespace {

struct FullKey {
  GroupKey group;
  std::string_view tag;
  std::string_view other_key;
  friend bool operator==(const FullKey&, const FullKey&) = default;
};

struct FullKeyHash {
  std::size_t operator()(const FullKey& key) const {
    const std::hash<std::string_view> text;
    return GroupKeyHash{}(key.group) ^ (text(key.tag) * 31 + text(key.other_key));
  }
};

std::string_view tag_of(const TunedEntry& row) {
  return row.stages != nullptr ? std::string_view(row.stages->tag) : std::string_view();
}

FullKey full_key_of(const TunedEntry& row, TagRule tags) {
  const bool apart = tags == TagRule::merge || tag_of(row) == unused_tag;
  return {group_key_of(row), apart ? tag_of(row) : std::string_view(), row.other_key.view()};
}

}  // namespace

GroupKey group_key_of(const TunedEntry& row) {
  return {table_gfx(row), row.cu_num, group_of(row.problem), false, row.unknown_types};
}

Rows rows_of(const std::vector<TunedEntry>& entries) {
  Rows rows;
  rows.reserve(entries.size());
  for (const TunedEntry& entry : entries) rows.push_back(&entry);
  return rows;
}

std::vector<Rows> rows_by_group(std::span<const TunedEntry* const> rows, TagRule tags) {
  std::vector<Rows> groups;
  std::unordered_map<FullKey, std::size_t, FullKeyHash> numbers;
  for (const TunedEntry* row : rows) {
    const auto [at, made] = numbers.try_emplace(full_key_of(*row, tags), groups.size());
    if (made) groups.emplace_back();
    groups[at->second].push_back(row);
  }
  for (Rows& group : groups) {
    std::ranges::stable_sort(
        group, [](const TunedEntry* a, const TunedEntry* b) { return a->problem.m < b->problem.m; });
  }
  return groups;
}

Accuracy accuracy_class(const TunedEntry& row) { return row.accuracy.value_or(Accuracy::fp32); }

bool better_row(const TunedEntry& a, const TunedEntry& b) {
  if (!may_be_chosen(a)) return false;
  if (!may_be_chosen(b)) return true;
  if (tag_of(a) != tag_of(b)) return false;
  const Accuracy of_a = accuracy_class(a);
  const Accuracy of_b = accuracy_class(b);
  return of_a != of_b ? of_a > of_b : a.us < b.us;
}

Rows chosen_rows(std::span<const TunedEntry* const> group) {
  Rows chosen;
  for (const TunedEntry* row : group) {
    if (chosen.empty() || chosen.back()->problem.m != row->problem.m) {
      chosen.push_back(row);
    } else if (better_row(*row, *chosen.back())) {
      chosen.back() = row;
    }
  }
  return chosen;
}

std::string describe_row(const TunedEntry& row) {
  return fmt::format("{} cu_num={} {}{}{}", row.gfx.empty() ? "(no gfx)" : row.gfx, row.cu_num,
                     print(row.problem), row.unknown_types.empty() ? "" : " ", row.unknown_types);
}

}  // namespace gemmtune
