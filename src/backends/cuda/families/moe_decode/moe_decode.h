// moe_decode: a layer of a mixture of experts for a few tokens as one kernel on Hopper, which reads the experts' weights at the speed of memory.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_moe_decode_family(gpu::Runtime& runtime);

}  // namespace gemmtune::cuda
