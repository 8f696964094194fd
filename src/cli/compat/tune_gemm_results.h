// --compare_wo_tuning and --benchmark: results of an earlier run verified or timed, without tuning.
#pragma once

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// Prints a line a row and a summary, or one document (--json). The exit code: 1 if a row is wrong or cannot run
/// here, or cannot be read. A configuration that only Triton can run is named so, never called wrong.
Result<int> check_results(const TuneOptions& options, const Environment& environment, Device& device);

/// The same with times: writes tune_gemm's table trans,M,N,K,TFLOPS,us of the rows that ran right. An existing
/// table is replaced.
Result<int> benchmark_results(const TuneOptions& options, const Environment& environment, Device& device);

}  // namespace gemmtune::cli
