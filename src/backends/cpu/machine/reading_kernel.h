// A kernel that only reads its weight: how fast this machine can read under a timed loop.
#pragma once

#include <cstddef>
#include <memory>

#include "backends/backend.h"

namespace gemmtune::cpu {

/// Reads the first `bytes` of Operands::w, each thread of the executor a contiguous share.
std::unique_ptr<Kernel> make_reading_kernel(std::size_t bytes);

}  // namespace gemmtune::cpu
