// A run over several operations: a file holds one, a model or a folder of recorded shapes has more.
#pragma once

#include <cstddef>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// A part of the run, with the options of a run of its own.
struct OperationRun {
  TuneOptions options;
  std::size_t shapes = 0;
};

/// One run for each operation that the options ask for: of a model without --op into a folder (-o FOLDER, or the config folder),
/// and of a folder of lists as -i (with --op of that list alone). Just the options as they are for any other run. Requires checked options.
Result<std::vector<OperationRun>> runs_of(const TuneOptions& options, const Environment& environment);

/// Tunes them in turn; --budget is divided by shapes, and what one leaves goes to the next ones. Prints their answers, as one
/// JSON document with --json. Returns the exit code.
Result<int> tune_each(const std::vector<OperationRun>& runs, const Environment& environment);

}  // namespace gemmtune::cli
