// Range rows of one group beside each other: what becomes of the old ones where new ones answer, and how an
// overlap of two is undone. A range is anchored at its largest M, where it was measured: it can be cut from
// below only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gemmtune {

/// A row with m_from: it answers every M of [m_from, m].
struct RowSpan {
  std::int64_t m_from = 0;
  std::int64_t m = 0;
  friend bool operator==(const RowSpan&, const RowSpan&) = default;
};

struct RangeUpdate {
  bool removed = false;
  std::int64_t m_from = 0;    // of the row that stays
  std::vector<RowSpan> lost;  // M that neither the row nor the new ones answer any more
};

/// An old range where `fresh` ones (disjoint) come into its group. It goes where its largest M is one of
/// theirs, else it begins behind the last of them. New rows of a single M leave it as it is: an exact row
/// wins over a range.
RangeUpdate update_range(const RowSpan& old, std::vector<RowSpan> fresh);

/// The m_from that each range needs so as not to overlap those with a smaller m, which answer first, in the
/// order of `ranges`. Every M keeps its answer; one that lies strictly inside of another still overlaps.
std::vector<std::int64_t> disjoint_starts(std::span<const RowSpan> ranges);

}  // namespace gemmtune
