// A dense table as ranges: neighbours in M with one winner become one row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tuned/entry.h"
#include "tuned/groups.h"

namespace gemmtune {

/// A row of the compressed table.
struct RangeRow {
  std::size_t entry = 0;    // index of the row that stays
  std::int64_t m_from = 0;  // 0: it stays as it is
  std::size_t merged = 1;   // rows that it stands for
};

/// `entries`: one row a key. Consecutive rows of a group (ascending in M) with the same winner become the one
/// of the largest M, its range beginning low enough for what was padded to the others; a row that answers
/// where a range cannot (above it, or below among other answers) stays. So do rows that never answer, and
/// groups whose requests other groups answer too (rows without gfx beside rows with it, activations of one
/// fused MoE). In the order of `entries`. Every look-up has its winner as before, but for an M between two
/// merged rows that padding or no row answered: their range answers it.
std::vector<RangeRow> compress(const std::vector<TunedEntry>& entries);

/// Rows whose removal, all of them together, changes the winner of no look-up: one row that stays answers
/// each of their M in the same way. Rows that may not be chosen, ranges, and groups whose requests other groups
/// answer too are never among them. Proven by look-ups at every M where the answer can change.
struct RedundantRow {
  const TunedEntry* row = nullptr;
  const TunedEntry* answers = nullptr;  // in its place, at its M
};
std::vector<RedundantRow> redundant_rows(std::span<const Rows> groups);

/// ok where every look-up has the winner in `after` that it has in `before`, but for an M between two merged
/// rows as in compress(); else names the first that has not. Asks at every M where an answer can change.
Status check_same_winners(std::vector<TunedEntry> before, std::vector<TunedEntry> after);

}  // namespace gemmtune
