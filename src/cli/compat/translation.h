// The words of AITER's tuners and of tune_gemm, in ours.
#pragma once

#include <optional>

#include "base/environment.h"
#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// What their options and variables mean: before check_options(). An error says what to use instead of an option that
/// gemmtune has nothing for.
Status translate(const Environment& environment, TuneOptions& options);

/// --run_config is `bench`, --compare_wo_tuning `check` and --benchmark a table of times: the exit code. Nothing if the
/// options ask to tune. Requires checked options.
Result<std::optional<int>> run_other_command(const TuneOptions& options, const Environment& environment);

}  // namespace gemmtune::cli
