// The clock of a CPU device.
#pragma once

#include <functional>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune::cpu {

/// Runs request.launches calls of the kernel, one after another, between two reads of the monotonic clock;
/// the mean of one call in microseconds. The first call that fails ends the sample and is its error. With `before_each`
/// each call is timed alone, after a call of that.
Result<double> time_batch(const SampleRequest& request, Stream stream,
                          const std::function<void()>& before_each = {});

}  // namespace gemmtune::cpu
