#include "tuned/range_rows.h"

#include <algorithm>

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

}  // namespace gemmtune
