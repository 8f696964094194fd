// wgmma_moe: fused mixtures of experts on Hopper's tensor cores, a persistent grid over the tiles of all experts.
#pragma once

#include <memory>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_wgmma_moe_family(gpu::Runtime& runtime, const CudaDriver& driver);

}  // namespace gemmtune::cuda
