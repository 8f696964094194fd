// Range rows of one group beside each other: what becomes of the old ones where new ones answer, and how an
// overlap of two is undone. A range is anchored at its largest M, where it was measured: it can be cut from
// below only. Which M rows may answer, and so where the answers of a group can change.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tuned/groups.h"

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

/// The M that a look-up may answer with the row: its own, its range, what is padded to it. Each from m_from
/// to m, both within 1 … max_dimension; they may overlap.
std::vector<RowSpan> answered_spans(const TunedEntry& row);

/// Ascending M: from each one to before the next, every look-up of the group has one answer. Below the first
/// none of the rows answers.
std::vector<std::int64_t> answer_changes(const Rows& group);

}  // namespace gemmtune
