// The evaluator of commands that run kernels in a worker process.
#pragma once

#include <functional>
#include <memory>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/interrupt.h"
#include "cli/shared/device_options.h"
#include "evaluate/worker/worker_evaluator.h"

namespace gemmtune::cli {

/// What a worker asks and reports while it is busy, as in WorkerOptions.
struct WorkerHooks {
  std::function<bool()> cancelled = interrupted;
  std::function<bool()> is_spent = {};
  std::function<void(double seconds)> on_waited = {};
};

/// A worker of `device`, which the options opened. It may hold evaluation.memory_limit_bytes (0: half of what is
/// free).
std::unique_ptr<WorkerEvaluator> make_worker(const Device& device, const DeviceOptions& options,
                                             const Environment& environment,
                                             const InProcessOptions& evaluation,
                                             double timeout_seconds = WorkerOptions().timeout_seconds,
                                             WorkerHooks hooks = {});

/// The same for a command that verifies kernels and times none, under the default policy; rows of x and y also run an odd
/// number of elements apart.
std::unique_ptr<WorkerEvaluator> make_verifying_worker(Device& device, const DeviceOptions& options,
                                                       const Environment& environment, double max_err_ratio);

}  // namespace gemmtune::cli
