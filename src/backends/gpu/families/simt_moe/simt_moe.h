// simt_moe: fused mixtures of experts without tensor cores, correct on any GPU for any type.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_simt_moe_family(Runtime& runtime);

}  // namespace gemmtune::gpu
