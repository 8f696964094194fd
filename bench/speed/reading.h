// The roofline's kernel: a streaming read of a weight.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu/threads/executor.h"

namespace gemmtune::speed {

/// Reads `bytes` from Operands::w, each thread a contiguous share, lines `ahead` bytes in front prefetched
/// (0: by the hardware alone). Runs where the device's own kernels do.
std::unique_ptr<Kernel> make_reading_kernel(std::size_t bytes, std::size_t ahead, WeightLayout layout);

}  // namespace gemmtune::speed
