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

/// A worker of `device`, which the options opened. It may hold evaluation.memory_limit_bytes (0: half of what is
/// free). `cancelled` ends its requests.
std::unique_ptr<WorkerEvaluator> make_worker(const Device& device, const DeviceOptions& options,
                                             const Environment& environment,
                                             const InProcessOptions& evaluation,
                                             double timeout_seconds = WorkerOptions().timeout_seconds,
                                             std::function<bool()> cancelled = interrupted);

}  // namespace gemmtune::cli
