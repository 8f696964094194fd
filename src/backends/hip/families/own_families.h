// The kernel families that gemmtune brings along for AMD GPUs. The runtime must outlive them and their kernels; its architecture
// has_mfma().
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::hip {

/// Dense GEMMs on the matrix cores of gfx90a, gfx942 and gfx950.
std::unique_ptr<KernelFamily> make_mfma_family(gpu::Runtime& runtime);
/// Fused mixtures of experts on the matrix cores of gfx90a and gfx942, one grid over the tiles of all experts.
std::unique_ptr<KernelFamily> make_mfma_moe_family(gpu::Runtime& runtime);
/// GEMMs with few rows of x on gfx90a, gfx942 and gfx950, without MFMA.
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime);

}  // namespace gemmtune::hip
