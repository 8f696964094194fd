// Which M a row may answer by the rules of look-up, and so the M at which the answers of a group can change.
#pragma once

#include <cstdint>
#include <vector>

#include "tuned/groups.h"
#include "tuned/range_rows.h"

namespace gemmtune {

/// The M that a look-up may answer with the row: its own, its range, what is padded to it. Each from m_from
/// to m, both within 1 … max_dimension; they may overlap.
std::vector<RowSpan> answered_spans(const TunedEntry& row);

/// Ascending M: from each one to before the next, every look-up of the group has one answer. Below the first
/// none of the rows answers.
std::vector<std::int64_t> answer_changes(const Rows& group);

}  // namespace gemmtune
