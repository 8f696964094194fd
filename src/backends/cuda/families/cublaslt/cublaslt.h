// cublaslt: NVIDIA's library, by its own heuristic's choices.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// nullptr where the library is missing. Both must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_cublaslt_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                   const std::string& library_folder);

}  // namespace gemmtune::cuda
