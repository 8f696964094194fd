// The OutputChecker of GPUs: a reference and comparisons compiled at run time.
#pragma once

#include <memory>
#include <vector>

#include "backends/gpu/runtime.h"
#include "backends/output_checker.h"

namespace gemmtune::gpu {

/// What the checker of a problem compiles: the reference, the comparison with it, and that of two outputs.
std::vector<Source> checker_sources(const Problem& problem);

/// Reserves 12 bytes for each element of y. `unsupported` for what is no plain dense GEMM and no mixture of experts;
/// `out_of_memory` where that is more than a quarter of what is free: the weights that times are taken on
/// need room too. Both arguments must outlive it.
Result<std::unique_ptr<OutputChecker>> make_output_checker(Device& device, Runtime& runtime,
                                                           const Problem& problem);

}  // namespace gemmtune::gpu
