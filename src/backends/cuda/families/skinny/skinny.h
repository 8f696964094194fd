// skinny: few rows of x on Hopper. The weight is loaded once; A and B are swapped; clusters divide k.
#pragma once

#include <memory>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver);

}  // namespace gemmtune::cuda
