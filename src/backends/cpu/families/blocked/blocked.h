// blocked, inside: settings of a config, and the kernel they make.
#pragma once

#include <memory>

#include "backends/cpu/families/blocked/block_gemm.h"

namespace gemmtune::cpu {

struct BlockedSettings {
  BlockTile tile;
  std::int64_t mc = 64;  // rows of x that one pass over the weights meets
};

/// The layout that a problem's weight has or, not decided, will have.
WeightLayout block_layout(const Problem& problem);
/// One batch's multiplication of a dense problem.
BlockFormat format_of(const Problem& problem);
/// ok where operands are in these orders, their types can be read and the weight's layout fits.
Status accepts_blocked(const Problem& problem, refusal::Orders taken = refusal::Orders::row_major);

/// Requires settings whose tile is among block_panels() of the problem.
std::unique_ptr<Kernel> make_blocked_kernel(const KernelSet& set, const Problem& problem,
                                            const BlockedSettings& settings, int threads);

/// The families over kernels other than the CPU's own.
std::unique_ptr<KernelFamily> make_quantized_family(const KernelSet& set, int threads);
std::unique_ptr<KernelFamily> make_batched_family(const KernelSet& set, int threads);
std::unique_ptr<KernelFamily> make_moe_family(const KernelSet& set, int threads);

}  // namespace gemmtune::cpu
