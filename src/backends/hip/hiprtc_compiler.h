// hipRTC as a compiler. Needs no GPU.
#pragma once

#include <memory>
#include <string>

#include "backends/gpu/jit/compiler.h"

namespace gemmtune::hip {

/// `not_found` with the reason where hipRTC is not here.
Result<std::unique_ptr<gpu::Compiler>> make_hiprtc_compiler(const std::string& library_folder);

}  // namespace gemmtune::hip
