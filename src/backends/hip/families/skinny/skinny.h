// skinny: GEMMs with few rows of x on gfx90a, gfx942 and gfx950, without MFMA.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::hip {

/// The runtime must outlive the family and its kernels; its architecture has_mfma().
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime);

}  // namespace gemmtune::hip
