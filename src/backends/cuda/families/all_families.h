// The kernel families of an NVIDIA GPU, preferred ones first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/cuda_runtime.h"

namespace gemmtune::cuda {

/// Those that this device can run; the runtime must outlive them and their kernels.
std::vector<std::unique_ptr<KernelFamily>> make_families(CudaRuntime& runtime,
                                                         const std::string& library_folder);

}  // namespace gemmtune::cuda
