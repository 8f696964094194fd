// Which rows may be chosen: the one rule of look-up, merge and everything that compares rows.
#pragma once

#include <string_view>

#include "tuned/entry.h"

namespace gemmtune {

/// Limits of stored errors: the largest share of elements outside of the tolerance.
inline constexpr double stored_err_limit = 0.05;
inline constexpr double stored_stage_err_limit = 0.1;  // of either stage of a fused MoE

/// True if the row's error, or that of a stage of a fused MoE, is above its limit. An empty cell is not.
bool is_over_tolerance(const TunedEntry& row, double err_ratio, double stage_err_ratio);
/// True if the row's valid time is shorter than its device's shortest_microseconds() (peaks.h): it was not measured. Of rows
/// with types that are not known there is no such time.
bool is_impossible_rate(const TunedEntry& row);

/// Why the row is never chosen: its time is not valid or impossible, or its error is above the limits. Empty if
/// it may be chosen; so may rows of a file without times (TunedEntry::never_timed), the first of one key. Rows that are never chosen are read, kept, and named by an audit.
std::string_view why_never_chosen(const TunedEntry& row);
inline bool may_be_chosen(const TunedEntry& row) { return why_never_chosen(row).empty(); }

}  // namespace gemmtune
