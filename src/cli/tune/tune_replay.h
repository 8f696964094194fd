// `tune --replay`: the tuner over a recording, with a simulated clock and no machine.
#pragma once

#include "base/environment.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// The device, its families and the measuring policy are the recording's; shapes too where none are given.
/// Rows go into the output as if they had been measured; there is no journal.
int replay_tuning(const TuneOptions& options, const Environment& environment);

}  // namespace gemmtune::cli
