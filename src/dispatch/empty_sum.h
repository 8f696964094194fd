// Kernels of K = 0: each row of y is the bias, or zero.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace gemmtune {

/// For operands in host memory.
std::unique_ptr<Kernel> host_empty_sum(const Problem& problem);
/// For any device: `kernel`, of the problem `least` that has the least K instead, on operands that are zero.
Result<std::unique_ptr<Kernel>> device_empty_sum(Device& device, const Problem& least,
                                                 std::unique_ptr<Kernel> kernel);

}  // namespace gemmtune
