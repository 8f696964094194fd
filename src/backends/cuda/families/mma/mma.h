// mma: dense GEMMs on the tensor cores of every GPU from sm_80 on.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_mma_family(gpu::Runtime& runtime);

}  // namespace gemmtune::cuda
