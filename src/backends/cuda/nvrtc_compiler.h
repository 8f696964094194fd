// NVRTC as a compiler. Needs no GPU.
#pragma once

#include <memory>

#include "backends/cuda/libraries.h"
#include "backends/gpu/jit/compiler.h"

namespace gemmtune::cuda {

/// `not_found` with the reason where NVRTC is not here.
Result<std::unique_ptr<gpu::Compiler>> make_nvrtc_compiler(const std::string& library_folder);

}  // namespace gemmtune::cuda
