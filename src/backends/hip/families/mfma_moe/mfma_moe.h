// mfma_moe: fused mixtures of experts on the matrix cores of gfx90a and gfx942, one grid over the tiles of all experts.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::hip {

/// The runtime must outlive the family and its kernels; its architecture has_mfma().
std::unique_ptr<KernelFamily> make_mfma_moe_family(gpu::Runtime& runtime);

}  // namespace gemmtune::hip
