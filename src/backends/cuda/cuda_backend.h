// The cuda backend: NVIDIA's GPUs.
#pragma once

#include <memory>
#include <span>

#include "backends/backend.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/gpu_runtime.h"

namespace gemmtune::cuda {

const Backend& cuda_backend();

/// The families of gpu/ and of cuda/, in the order of their ranks; the build writes the list (families.cmake).
std::span<const gpu::FamilyEntry* const> family_entries();

/// The runtime of a device that the cuda backend opens. Of the request the folders count and rebuild_kernels.
Result<std::unique_ptr<gpu::GpuRuntime>> open_runtime(int ordinal, const DeviceRequest& request);

}  // namespace gemmtune::cuda
