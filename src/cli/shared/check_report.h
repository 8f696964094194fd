// Rows that were verified, as text and JSON: for `check`, `tune --compare` and `tune --compare_wo_tuning`.
#pragma once

#include <string>
#include <vector>

#include "evaluate/outcome.h"
#include "formats/json.h"
#include "tuned/entry.h"
#include "tuning/row_check.h"

namespace gemmtune::cli {

struct CheckedRow {
  TunedEntry entry;
  RowCheck check;
};

/// Null for what was not measured.
OrderedJson error_json(const MeasuredError& error);
/// ", error 2.9e-04 (largest 0.0012)"; empty for what was not measured.
std::string error_text(const MeasuredError& error);
/// State, reason, err_ratio, accuracy, error, deterministic.
OrderedJson check_json(const RowCheck& check);
/// Line, problem, kernel and check.
OrderedJson checked_rows_json(const std::vector<CheckedRow>& rows);
/// A line a row as tune_gemm has it: "16x16x16 f16 tiled_r1_…: correctness: ✅ err_ratio 0, error …"; ❌ and the
/// reason if the result is wrong, "not run" and the reason if the kernel does not run here.
std::string correctness_text(const std::vector<CheckedRow>& rows);
/// All are right.
bool all_right(const std::vector<CheckedRow>& rows);

}  // namespace gemmtune::cli
