// The text behind gemmtune_tuning_last_error().
#pragma once

#include "base/status.h"

namespace gemmtune {

/// Keeps the sentence for this thread and returns the number of the code.
int keep_tuning_error(const Status& status);

}  // namespace gemmtune
