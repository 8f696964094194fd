#include "tuned/layouts.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "tuned/choice.h"

namespace gemmtune {
namespace {

/// The key of the rows of one weight.
using CallKey = std::tuple<std::int64_t, bool, bool>;  // M, bias, scaleAB

struct LayoutRows {
  WeightLayout layout = WeightLayout::any;
  Rows rows;
  std::map<CallKey, double> best_us;
};

GroupKey weight_key(const TunedEntry& row) { return {table_gfx(row), row.cu_num, weight_of(row.problem)}; }

void add_row(std::vector<LayoutRows>& layouts, WeightLayout layout, const TunedEntry& row) {
  auto at = std::ranges::find_if(layouts, [&](const LayoutRows& known) { return known.layout == layout; });
  if (at == layouts.end()) at = layouts.insert(layouts.end(), LayoutRows{layout, {}, {}});
  at->rows.push_back(&row);
  if (!may_be_chosen(row)) return;
  const CallKey key{row.problem.m, row.problem.bias, row.problem.scale_ab};
  const auto [best, made] = at->best_us.try_emplace(key, row.us);
  if (!made) best->second = std::min(best->second, row.us);
}

/// The sum of each layout over the keys that all have; empty where there is none.
std::vector<double> common_sums(const std::vector<LayoutRows>& layouts) {
  std::vector<double> sums;
  for (const auto& best : layouts.front().best_us) {
    const auto& key = best.first;
    const bool common =
        std::ranges::all_of(layouts, [&](const LayoutRows& one) { return one.best_us.count(key) != 0; });
    if (!common) continue;
    sums.resize(layouts.size());
    for (std::size_t index = 0; index < layouts.size(); ++index)
      sums[index] += layouts[index].best_us.at(key);
  }
  return sums;
}

std::size_t kept_layout(const std::vector<LayoutRows>& layouts) {
  const std::vector<double> sums = common_sums(layouts);
  if (!sums.empty()) {
    return static_cast<std::size_t>(std::ranges::min_element(sums) - sums.begin());
  }
  const auto most = std::ranges::max_element(
      layouts, [](const LayoutRows& a, const LayoutRows& b) { return a.best_us.size() < b.best_us.size(); });
  return static_cast<std::size_t>(most - layouts.begin());
}

}  // namespace

std::optional<WeightLayout> layout_of_kernel_name(std::string_view kernel_name) {
  for (const std::string_view part : split(kernel_name, '_')) {
    if (part.empty() || part.front() != 'w') continue;
    const auto layout = parse_weight_layout(part.substr(1));
    if (layout && *layout != WeightLayout::any) return layout;
  }
  return std::nullopt;
}

std::vector<LayoutChoice> choose_layouts(std::span<const TunedEntry* const> rows) {
  std::vector<std::vector<LayoutRows>> groups;
  std::unordered_map<GroupKey, std::size_t, GroupKeyHash> numbers;
  for (const TunedEntry* row : rows) {
    if (!is_packed(row->problem)) continue;
    const auto layout = layout_of_kernel_name(row->kernel_name);
    if (!layout) continue;
    const auto [at, made] = numbers.try_emplace(weight_key(*row), groups.size());
    if (made) groups.emplace_back();
    add_row(groups[at->second], *layout, *row);
  }
  std::vector<LayoutChoice> choices;
  for (const std::vector<LayoutRows>& layouts : groups) {
    if (layouts.size() < 2) continue;
    const std::size_t kept = kept_layout(layouts);
    LayoutChoice& choice = choices.emplace_back();
    choice.kept = layouts[kept].layout;
    choice.example = layouts[kept].rows.front();
    for (std::size_t index = 0; index < layouts.size(); ++index) {
      if (index == kept) continue;
      choice.dropped.insert(choice.dropped.end(), layouts[index].rows.begin(), layouts[index].rows.end());
    }
  }
  return choices;
}

}  // namespace gemmtune
