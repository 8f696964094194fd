// wgmma: the general kernel of Hopper: a warp-specialized, persistent GEMM with TMA, multicast clusters and
// split-K.
#pragma once

#include <memory>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_wgmma_family(gpu::Runtime& runtime, const CudaDriver& driver);

}  // namespace gemmtune::cuda
