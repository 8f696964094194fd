// cublaslt: NVIDIA's library, by its own heuristic's choices.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cuda_runtime.h"

namespace gemmtune::cuda {

/// nullptr where the library is not here. The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_cublaslt_family(CudaRuntime& runtime, const std::string& library_folder);

}  // namespace gemmtune::cuda
