#include "tuned/intervals.h"

#include <algorithm>
#include <set>
#include <utility>

namespace gemmtune {
namespace {

constexpr auto last_m = static_cast<std::uint32_t>(max_dimension);

struct Reach {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::int32_t entry = -1;
};

/// Answers ascending M from disjoint intervals that are ascending too.
class DisjointCursor {
 public:
  explicit DisjointCursor(std::vector<Reach> reaches) : reaches_(std::move(reaches)) {}
  const std::vector<Reach>& reaches() const { return reaches_; }
  std::int32_t at(std::uint32_t m) {
    while (next_ < reaches_.size() && reaches_[next_].last < m) ++next_;
    return next_ < reaches_.size() && reaches_[next_].first <= m ? reaches_[next_].entry : -1;
  }

 private:
  std::vector<Reach> reaches_;
  std::size_t next_ = 0;
};

/// Answers ascending M from intervals that may overlap: the one that ends first wins.
class OverlapCursor {
 public:
  explicit OverlapCursor(std::vector<Reach> reaches) : reaches_(std::move(reaches)) {
    std::sort(reaches_.begin(), reaches_.end(), [](const Reach& a, const Reach& b) {
      return std::pair(a.first, a.last) < std::pair(b.first, b.last);
    });
  }
  const std::vector<Reach>& reaches() const { return reaches_; }
  std::int32_t at(std::uint32_t m) {
    for (; next_ < reaches_.size() && reaches_[next_].first <= m; ++next_) {
      open_.emplace(reaches_[next_].last, reaches_[next_].entry);
    }
    while (!open_.empty() && open_.begin()->first < m) open_.erase(open_.begin());
    return open_.empty() ? -1 : open_.begin()->second;
  }

 private:
  std::vector<Reach> reaches_;
  std::set<std::pair<std::uint32_t, std::int32_t>> open_;
  std::size_t next_ = 0;
};

std::vector<Reach> reaches_of_level(const std::vector<GroupRow>& rows, std::int64_t n, int level) {
  std::vector<Reach> reaches;
  for (const GroupRow& row : rows) {
    const auto reach = padded_reach(row.m, n, level);
    if (reach) reaches.push_back({reach->first, reach->last, row.entry});
  }
  return reaches;
}

std::vector<Reach> reaches_of_tiers(const std::vector<GroupRow>& rows) {
  std::vector<Reach> reaches;
  for (const GroupRow& row : rows) {
    const auto reach = tier_reach(row.m);
    if (!reach) continue;
    if (row.m == upper_token_tier && !reaches.empty()) {
      reaches.back().last = std::min(reaches.back().last, row.m - 1);
    }
    reaches.push_back({reach->first, reach->last, row.entry});
  }
  return reaches;
}

void add_bounds(const std::vector<Reach>& reaches, std::vector<std::uint32_t>& bounds) {
  for (const Reach& reach : reaches) {
    bounds.push_back(reach.first);
    bounds.push_back(reach.last + 1);
  }
}

}  // namespace

std::optional<PaddedReach> padded_reach(std::uint32_t row_m, std::int64_t n, int level) {
  if (padded_m(row_m, n, level) != row_m) return std::nullopt;
  if (level == 0) {
    // The steps' borders (256, 1024, 4096) are multiples of both steps, so a reach never crosses one.
    const std::uint32_t step = row_m <= 256 ? 16 : row_m <= 1024 ? 32 : row_m <= 4096 ? 64 : 128;
    return PaddedReach{row_m - step + 1, row_m};
  }
  return PaddedReach{row_m / 2 + 1, row_m == 8192 && n > 4096 ? last_m : row_m};
}

std::optional<PaddedReach> tier_reach(std::uint32_t row_m) {
  if (token_tier(row_m) != row_m) return std::nullopt;
  if (row_m == upper_token_tier) return PaddedReach{row_m, last_m};
  return PaddedReach{row_m / 2 + 1, row_m == lower_token_tier ? last_m : row_m};
}

Intervals lay_out_intervals(const std::vector<GroupRow>& rows, std::int64_t n, Padding padding) {
  const bool tiers = padding == Padding::token_tiers;
  std::vector<Reach> exact_reaches;
  std::vector<Reach> range_reaches;
  for (const GroupRow& row : rows) {
    if (!tiers || tier_reach(row.m)) exact_reaches.push_back({row.m, row.m, row.entry});
    if (row.m_from != 0) range_reaches.push_back({row.m_from, row.m, row.entry});
  }
  DisjointCursor exact(std::move(exact_reaches));
  OverlapCursor range(std::move(range_reaches));
  const bool levels = padding == Padding::two_levels;
  DisjointCursor fine(levels ? reaches_of_level(rows, n, 0) : std::vector<Reach>());
  DisjointCursor coarse(tiers    ? reaches_of_tiers(rows)
                        : levels ? reaches_of_level(rows, n, 1)
                                 : std::vector<Reach>());

  std::vector<std::uint32_t> bounds{0};
  add_bounds(exact.reaches(), bounds);
  add_bounds(range.reaches(), bounds);
  add_bounds(fine.reaches(), bounds);
  add_bounds(coarse.reaches(), bounds);
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());

  Intervals intervals;
  for (const std::uint32_t bound : bounds) {
    const std::pair<Match, std::int32_t> found[] = {{Match::exact, exact.at(bound)},
                                                    {Match::range, range.at(bound)},
                                                    {Match::fine, fine.at(bound)},
                                                    {Match::coarse, coarse.at(bound)}};
    TunedTable::Answer answer;
    for (const auto& [match, entry] : found) {
      if (entry < 0) continue;
      answer = {match, entry};
      break;
    }
    if (!intervals.answers.empty() && intervals.answers.back() == answer) continue;
    intervals.starts.push_back(bound);
    intervals.answers.push_back(answer);
  }
  return intervals;
}

}  // namespace gemmtune
