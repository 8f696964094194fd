// What `tune --m-range` says at the end: a table and a summary for people, one document for programs.
#pragma once

#include <string>

#include "cli/tune/tune_options.h"
#include "tuning/m_range_tuner.h"

namespace gemmtune::cli {

/// "2048x2048 bf16": N, K and what else tells the weight.
std::string weight_text(const Problem& problem);
/// "5 rows for M = 1 to 8192, 14 M searched, 32 compared, 3 min 5 s", or the state and its reason.
std::string group_text(const MRangeReport& report);

struct RangeEnding {
  const MRangeSummary& summary;
  const ShapeList& shapes;
  const Outputs& outputs;
  const DeviceInfo& device;
  MRange range;
  bool interrupted = false;
};

std::string ending_text(const RangeEnding& ending);
std::string ending_json(const RangeEnding& ending);
/// exit_interrupted, exit_findings (weights without a row, M without a kernel, rows that could not be read)
/// or exit_done.
int ending_code(const RangeEnding& ending);

/// The groups as a list of problems, for the end of a journal's run.
TuneSummary as_problems(const MRangeSummary& summary);

}  // namespace gemmtune::cli
