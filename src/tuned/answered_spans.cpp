#include "tuned/answered_spans.h"

#include <algorithm>

#include "tuned/table.h"

namespace gemmtune {
namespace {

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
