// NVIDIA's libraries, opened at run time. A missing one is a missing ability, with the reason.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/cuda_api.h"
#include "backends/gpu/opened_library.h"
#include "base/status.h"

namespace gemmtune::cuda {

using gpu::Opened;

/// The driver that is on this machine; also initialized. Opened once a process.
const Opened<api::Driver>& driver();
/// `folder`: where to look first (GEMMTUNE_LIBRARY_DIR). Opened once a process and folder.
const Opened<api::Nvrtc>& nvrtc(const std::string& folder);
const Opened<api::CublasLt>& cublas_lt(const std::string& folder);
const Opened<api::Nvml>& nvml();

/// The driver's error as a Status: "<what>: CUDA_ERROR_…: <text>".
Status driver_status(api::Result result, std::string_view what);

/// Where a toolkit's library may lie: `folder`, the loader's own places, /usr/local/cuda, pip's packages
/// beside the system's Pythons.
std::vector<std::string> toolkit_paths(const std::string& folder, const std::vector<std::string>& names);

}  // namespace gemmtune::cuda
