// What is wrong with rows that can be read: the checks of `gemmtune audit` that need neither files nor
// devices.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tuned/choice.h"
#include "tuned/finding.h"
#include "tuned/groups.h"

namespace gemmtune {

struct CheckOptions {
  double err_ratio = stored_err_limit;            // largest share of elements outside the tolerance
  double moe_err_ratio = stored_stage_err_limit;  // of either stage of a fused MoE
  double dominated_percent = 5;
};

/// failed_time, over_tolerance, impossible_rate, duplicate_key, mixed_layout, dominated, unreachable and
/// redundant of rows of any files and operations; in no particular order. paths[row.source] names a row's
/// file in messages. Cost: O(rows · log rows), and a proof
/// by look-ups for each row that another row of its group may make redundant.
std::vector<Finding> check_rows(std::span<const TunedEntry* const> rows, std::span<const std::string> paths,
                                const CheckOptions& options);

/// ok for a problem that tables may be asked for: as check(), but an inter_dim that no kernel of ours takes
/// is one that AITER's rows hold.
Status check_asked(const Problem& problem);

/// Why no request can look the row up; empty where one can, and for rows of tables that are only read.
std::string why_unreachable(const TunedEntry& row);
/// The one rule of what a row is for: some request can look it up, and it may be chosen. Others of its key may still be
/// chosen in its place (better_row()).
inline bool may_answer(const TunedEntry& row) { return may_be_chosen(row) && why_unreachable(row).empty(); }

/// The rows that lose against another of their key, each with its winner.
struct Duplicate {
  const TunedEntry* loser = nullptr;
  const TunedEntry* winner = nullptr;
};
std::vector<Duplicate> duplicate_rows(std::span<const Rows> groups);

}  // namespace gemmtune
