// The kernel families that gemmtune brings along for GPUs of any vendor. The runtime must outlive them and their kernels.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

/// Fused multiply-adds without tensor cores, correct on any GPU for any type.
std::unique_ptr<KernelFamily> make_simt_family(Runtime& runtime);
/// Fused mixtures of experts without tensor cores, correct on any GPU for any type.
std::unique_ptr<KernelFamily> make_simt_moe_family(Runtime& runtime);

}  // namespace gemmtune::gpu
