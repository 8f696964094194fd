// The cuda backend: NVIDIA's GPUs.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/gpu/gpu_runtime.h"

namespace gemmtune::cuda {

const Backend& cuda_backend();

/// The runtime of a device that the cuda backend opens. Of the request the folders count and rebuild_kernels.
Result<std::unique_ptr<gpu::GpuRuntime>> open_runtime(int ordinal, const DeviceRequest& request);

}  // namespace gemmtune::cuda
