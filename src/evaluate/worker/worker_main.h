// The worker's side: answers requests on the descriptors that its parent left, with the evaluator that
// measures in process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune {

using DeviceOpener =
    std::function<Result<std::unique_ptr<Device>>(const std::string& backend, const DeviceRequest& request)>;

/// Was this process started as a worker?
bool has_worker_descriptors();

/// Answers until the parent closes the socket. Ctrl-C is the parent's to decide: SIGINT and SIGTERM are
/// ignored. Answers the process's exit code.
int run_worker(const DeviceOpener& open);

}  // namespace gemmtune
