// What stands at the top of a report: its title, what was measured on, and what to do next.
#pragma once

#include <string>
#include <vector>

#include "cli/report/report_table.h"
#include "cli/report/report_tables.h"

namespace gemmtune::cli {

/// Names of the tuned files without their folders; where two are equal, with the folder that they lie in.
std::vector<std::string> shown_file_names(const ReportInputs& inputs);

/// "GEMM tuning report: NVIDIA H200, a16w16 bf16", of the device and operation with the most rows.
std::string report_title(const ReportInputs& inputs);
/// "12 rows in tuned.csv · NVIDIA H200 (sm_90, 132 compute units) · cublasLt 13.1.0, driver 13.0 · measured 2026-11-28 · cache …".
std::string report_subtitle(const ReportInputs& inputs);

/// What to do with the files, and which rows to look at, with the command for each.
ReportTable next_steps_table(const ReportInputs& inputs);

/// Rows of the first two files with the same key: their times and kernels.
ReportTable side_by_side_table(const ReportInputs& inputs);

/// What a run measured, of its environment's object in <file>.env.json; 0: not measured.
Roof measured_roof(std::string_view environment);

}  // namespace gemmtune::cli
