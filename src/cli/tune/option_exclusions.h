// Which options of `gemmtune tune` cannot be given together.
#pragma once

#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// The first pair of options that contradict each other, as an error that names both.
Status check_exclusions(const TuneOptions& options);

}  // namespace gemmtune::cli
