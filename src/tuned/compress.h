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
/// of the largest M; rows that never answer, and groups whose requests other groups answer too (rows
/// without gfx beside rows with it, activations of one fused MoE), stay as they are. In the order of
/// `entries`. Answers every M of the table as before; an M between two merged rows, which padding answered,
/// is now answered by their range.
std::vector<RangeRow> compress(const std::vector<TunedEntry>& entries);

/// Rows whose removal, all of them together, changes the winner of no look-up: one row that stays answers
/// each of their M in the same way. Rows without a valid time, ranges, and groups whose requests other groups
/// answer too are never among them. Proven by look-ups at every M where the answer can change.
struct RedundantRow {
  const TunedEntry* row = nullptr;
  const TunedEntry* answers = nullptr;  // in its place, at its M
};
std::vector<RedundantRow> redundant_rows(std::span<const Rows> groups);

/// ok where `after` answers every key of `before` that a look-up reaches with the same winner; else names the
/// first that it does not.
Status check_same_winners(std::vector<TunedEntry> before, std::vector<TunedEntry> after);

}  // namespace gemmtune
