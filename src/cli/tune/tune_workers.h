// Who measures for `tune`: worker processes, one a device, or this process (--in-process).
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/worker_evaluator.h"
#include "cli/tune/tune_options.h"
#include "evaluate/evaluator.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// The devices of --device, else all of the backend that are equal to its first, and of these as many as --mp
/// says (more than there are: all). Their gfx and cu_num are equal and they share no core:
/// a shape may run on any of them. This process lists candidates with them; it pins threads, and measures,
/// only where the options say so (--in-process).
Result<std::vector<std::unique_ptr<Device>>> open_tune_devices(const TuneOptions& options,
                                                               const Environment& environment);

/// One a device, which they do not outlive. A worker starts at its first request, and ends what it measures when
/// the hooks say so.
std::vector<std::unique_ptr<Evaluator>> make_evaluators(const TuneOptions& options,
                                                        const Environment& environment,
                                                        const std::vector<std::unique_ptr<Device>>& devices,
                                                        const TuneRequest& request, const WorkerHooks& hooks);

}  // namespace gemmtune::cli
