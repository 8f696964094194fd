#include "tuned/range_rows.h"

#include <algorithm>

#include "tuned/table.h"

namespace gemmtune {
namespace {

/// The parts of `whole` that none of `spans` (ascending) holds.
std::vector<RowSpan> uncovered(const RowSpan& whole, const std::vector<RowSpan>& spans) {
  std::vector<RowSpan> parts;
  std::int64_t next = whole.m_from;
  for (const RowSpan& span : spans) {
    if (span.m < next) continue;
    if (span.m_from > whole.m) break;
    if (span.m_from > next) parts.push_back({next, span.m_from - 1});
    next = span.m + 1;
  }
  if (next <= whole.m) parts.push_back({next, whole.m});
  return parts;
}

/// What is padded to the row's M.
void add_padded(const TunedEntry& row, std::vector<RowSpan>& spans) {
  const std::int64_t m = row.problem.m;
  const std::int64_t n = row.problem.n;
  if (padded_m(m, n, 0) == m) spans.push_back({m - fine_step(m) + 1, m});
  if (padded_m(m, n, 1) != m) return;
  // The highest power of two that is rounded up to answers every larger M, too.
  const bool highest = padded_m(max_dimension, n, 1) == m;
  spans.push_back({m / 2 + 1, highest ? max_dimension : m});
}

void add_tiers(const TunedEntry& row, std::vector<RowSpan>& spans) {
  const std::int64_t m = row.problem.m;
  if (token_tier(m) != m) return;
  // Without a row of the upper tier, the lower one answers for it.
  if (m == upper_token_tier) {
    spans.push_back({m, max_dimension});
  } else {
    spans.push_back({m / 2 + 1, m == lower_token_tier ? max_dimension : m});
  }
}

}  // namespace

RangeUpdate update_range(const RowSpan& old, std::vector<RowSpan> fresh) {
  std::ranges::sort(fresh, [](const RowSpan& a, const RowSpan& b) { return a.m < b.m; });
  RangeUpdate update;
  update.m_from = old.m_from;
  for (const RowSpan& span : fresh) {
    if (span.m_from <= old.m && span.m >= old.m) update.removed = true;
    if (span.m_from < span.m && span.m < old.m && span.m >= update.m_from) update.m_from = span.m + 1;
  }
  if (update.removed) {
    update.lost = uncovered(old, fresh);
  } else if (update.m_from > old.m_from) {
    update.lost = uncovered({old.m_from, update.m_from - 1}, fresh);
  }
  return update;
}

std::vector<std::int64_t> disjoint_starts(std::span<const RowSpan> ranges) {
  std::vector<std::int64_t> starts;
  for (const RowSpan& range : ranges) {
    std::vector<RowSpan> before;
    for (const RowSpan& other : ranges) {
      if (other.m < range.m) before.push_back(other);
    }
    std::ranges::sort(before, [](const RowSpan& a, const RowSpan& b) { return a.m_from < b.m_from; });
    std::int64_t start = range.m_from;
    for (const RowSpan& other : before) {
      if (other.m_from <= start && other.m >= start) start = other.m + 1;
    }
    starts.push_back(start);
  }
  return starts;
}

std::vector<RowSpan> answered_spans(const TunedEntry& row) {
  const std::int64_t m = row.problem.m;
  std::vector<RowSpan> spans{{m, m}};
  if (row.m_from && *row.m_from >= 1 && *row.m_from < m) spans.push_back({*row.m_from, m});
  const Padding padding = traits(row.problem.operation).padding;
  if (padding == Padding::two_levels) add_padded(row, spans);
  if (padding == Padding::token_tiers) add_tiers(row, spans);
  for (RowSpan& span : spans) span.m_from = std::max<std::int64_t>(span.m_from, 1);
  return spans;
}

std::vector<std::int64_t> answer_changes(const Rows& group) {
  std::vector<std::int64_t> changes;
  for (const TunedEntry* row : group) {
    for (const RowSpan& span : answered_spans(*row)) {
      changes.push_back(span.m_from);
      if (span.m < max_dimension) changes.push_back(span.m + 1);
    }
  }
  std::ranges::sort(changes);
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  return changes;
}

}  // namespace gemmtune
