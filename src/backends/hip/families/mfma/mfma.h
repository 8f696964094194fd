// mfma: dense GEMMs on the matrix cores of gfx90a, gfx942 and gfx950.
#pragma once

#include <memory>
#include <string_view>

#include "backends/gpu/runtime.h"

namespace gemmtune::hip {

/// The runtime must outlive the family and its kernels; its architecture has_mfma().
std::unique_ptr<KernelFamily> make_mfma_family(gpu::Runtime& runtime);

// Texts of mfma_arguments.h, mfma_instructions.cuh and mfma.cu, compiled in this order.
std::string_view mfma_arguments_text();
std::string_view mfma_instructions_text();
std::string_view mfma_text();

}  // namespace gemmtune::hip
