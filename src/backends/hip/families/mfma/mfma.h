// mfma: dense GEMMs on the matrix cores of gfx90a, gfx942 and gfx950.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::hip {

/// The runtime must outlive the family and its kernels; its architecture has_mfma().
std::unique_ptr<KernelFamily> make_mfma_family(gpu::Runtime& runtime);

}  // namespace gemmtune::hip
