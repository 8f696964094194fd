// AMD's libraries, opened at run time. A missing one is a missing ability, with the reason.
#pragma once

#include <string>

#include "backends/gpu/opened_library.h"
#include "backends/hip/hip_api.h"
#include "base/status.h"

namespace gemmtune::hip {

using gpu::Opened;

/// The HIP runtime that is on this machine; also initialized. Opened once a process.
const Opened<api::Runtime>& runtime();
/// `folder`: where to look first (GEMMTUNE_LIBRARY_DIR). Opened once a process and folder.
const Opened<api::Rtc>& rtc(const std::string& folder);
const Opened<api::HipblasLt>& hipblas_lt(const std::string& folder);
const Opened<api::Smi>& smi();

/// The runtime's error as a Status: "<what>: hipError…: <text>".
Status runtime_status(api::Result result, std::string_view what);

}  // namespace gemmtune::hip
