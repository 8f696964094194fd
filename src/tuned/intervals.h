// Lays exact rows, ranges and padded levels of one group out as a flat list of intervals of M.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune {

/// A row that may answer, of one group.
struct GroupRow {
  std::uint32_t m = 0;
  std::uint32_t m_from = 0;  // 0: the row is no range
  std::int32_t entry = -1;
};

struct Intervals {
  std::vector<std::uint32_t> starts;  // ascending, the first is 0; an interval ends where the next begins
  std::vector<TunedTable::Answer> answers;
};

/// The values of M from `first` to `last` that one padded level sends to a row.
struct PaddedReach {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};
/// nullopt where no M is padded to the row's M at that level.
std::optional<PaddedReach> padded_reach(std::uint32_t row_m, std::int64_t n, int level);

/// The values of M that token_tier() sends to a row of a fused MoE, the row of 32768 as if there were none of
/// 131072; nullopt where there is none.
std::optional<PaddedReach> tier_reach(std::uint32_t row_m);

/// `rows` ascending in M, no M twice. Cost: O(rows · log rows), once when a table is made.
Intervals lay_out_intervals(const std::vector<GroupRow>& rows, std::int64_t n, Padding padding);

}  // namespace gemmtune
