// The clock of a CPU device.
#pragma once

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune::cpu {

/// Runs request.launches calls of the kernel, one after another, between two reads of the monotonic clock;
/// the mean of one call in microseconds. The first call that fails ends the sample and is its error.
Result<double> time_batch(const SampleRequest& request, Stream stream);

}  // namespace gemmtune::cpu
