// T4, the results format of auto-tuners (Kernel Tuner's schema 1.0.0): a journal's outcome as one of its results.
#pragma once

#include <string>

#include "evaluate/journal/journal_report.h"

namespace gemmtune::cli {

/// What stands before the results and behind them; results are separated by commas.
inline constexpr const char* t4_begin = "{\"schema_version\": \"1.0.0\", \"results\": [\n";
inline constexpr const char* t4_end = "]}\n";

/// One line of JSON. `configuration` holds the problem, the kernel's name and each of its parameters; times are milliseconds, as
/// Kernel Tuner's, measurements name their unit; `correctness` is the share of y's elements within tolerance, 0 of what
/// was never verified.
std::string t4_result(const JournalLine& line);

}  // namespace gemmtune::cli
