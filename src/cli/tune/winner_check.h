// Correctness of winners, which tune_gemm's --compare prints after tuning.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "cli/shared/check_report.h"
#include "cli/tune/tune_options.h"
#include "evaluate/evaluator.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Verifies the row of each shape of the run; of shapes that were skipped the row in the outputs.
Result<std::vector<CheckedRow>> check_winners(const Device& device, Evaluator& evaluator,
                                              const RunSummary& summary, const Outputs& outputs);

}  // namespace gemmtune::cli
