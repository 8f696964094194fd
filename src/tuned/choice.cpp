#include "tuned/choice.h"

#include "tuned/peaks.h"

namespace gemmtune {

bool is_over_tolerance(const TunedEntry& row, double err_ratio, double stage_err_ratio) {
  if (row.stages == nullptr) return row.err_ratio > err_ratio;
  return row.stages->err1 > stage_err_ratio || row.stages->err2 > stage_err_ratio;
}

bool is_impossible_rate(const TunedEntry& row) {
  if (!valid_time(row.us) || !row.unknown_types.empty()) return false;
  return row.us < row.rated_share * shortest_microseconds(row.gfx, row.cu_num, row.problem);
}

std::string_view why_never_chosen(const TunedEntry& row) {
  if (!valid_time(row.us) && !row.never_timed) return "no valid time";
  if (is_over_tolerance(row, stored_err_limit, stored_stage_err_limit)) return "an error above the limit";
  return is_impossible_rate(row) ? "faster than the device can compute" : "";
}

}  // namespace gemmtune
