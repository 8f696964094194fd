// skinny_w4, inside: the kernel that a config makes.
#pragma once

#include <memory>

#include "backends/cpu/families/blocked/w4_gemm.h"

namespace gemmtune::cpu {

/// Requires a register tile of the level.
std::unique_ptr<Kernel> make_skinny_w4_kernel(const KernelSet& set, const Problem& problem,
                                              const W4Tile& tile, int threads);
/// The family over kernels other than the CPU's own.
std::unique_ptr<KernelFamily> make_skinny_w4_family(const KernelSet& set, int threads);

}  // namespace gemmtune::cpu
