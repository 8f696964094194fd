// skinny: GEMMs with few rows of x on gfx90a, gfx942 and gfx950, without MFMA.
#pragma once

#include <memory>
#include <string_view>

#include "backends/gpu/runtime.h"

namespace gemmtune::hip {

/// The runtime must outlive the family and its kernels; its architecture has_mfma().
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime);

// Texts of skinny_arguments.h and of skinny.cu, which follows it.
std::string_view skinny_arguments_text();
std::string_view skinny_text();

}  // namespace gemmtune::hip
