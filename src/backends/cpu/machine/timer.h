// The clock of a CPU device.
#pragma once

#include <functional>

#include "backends/backend.h"
#include "backends/cpu/threads/processor_clock.h"
#include "base/status.h"

namespace gemmtune::cpu {

/// Runs request.launches calls of the kernel, one after another, between two reads of the monotonic clock;
/// the mean of one call in microseconds. The first call that fails ends the sample and is its error. With `before_each`
/// each call is timed alone, after a call of that. With `processor`, the executor of `stream`, by its clock.
Result<double> time_batch(const SampleRequest& request, Stream stream,
                          const std::function<void()>& before_each = {}, ProcessorClock* processor = nullptr);

}  // namespace gemmtune::cpu
