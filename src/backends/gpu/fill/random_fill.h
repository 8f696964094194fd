// Random fill of operands on a GPU: the host neither computes nor copies them.
#pragma once

#include "backends/gpu/runtime.h"
#include "verify/random_fill.h"

namespace gemmtune::gpu {

/// The source for elements of 1, 2 or 4 bytes.
Source random_fill_source(std::size_t element_bytes);

/// Writes all elements of `recipe` to `to` and waits for it. `unsupported` without a compiler.
Status fill_elements(Device& device, Runtime& runtime, void* to, const RandomFill& recipe);

}  // namespace gemmtune::gpu
