// `tune --replay`: shapes and policy are the recording's. Rows go into the output as if they had been
// measured; there is no journal.
#pragma once

#include "cli/tune/tune_options.h"
#include "evaluate/replay/recording.h"

namespace gemmtune::cli {

/// All shapes of the recording, cut to --limit.
ShapeList shapes_of_recording(const TuneOptions& options, const Recording& recording);

/// The recorded times are of one policy: an error where the options ask for another.
Status take_recorded_policy(const RecordedRun& run, const TuneOptions& options, TuneRequest& request);

}  // namespace gemmtune::cli
