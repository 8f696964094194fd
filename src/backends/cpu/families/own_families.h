// The kernel families that gemmtune brings along for CPUs. Each factory takes the instruction-set level that
// the device may use (already capped) and how many threads its executor offers; both bound the family's
// space.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu/machine/isa.h"

namespace gemmtune::cpu {

/// Plain loops, float64 accumulation: the obvious answer, never a fallback.
std::unique_ptr<KernelFamily> make_reference_family(Isa level);
/// Cache-blocked GEMM for any M; of floats, and of int8 with scales.
std::unique_ptr<KernelFamily> make_tiled_family(Isa level, int threads);
/// M ≤ 32: every weight byte is read from memory once.
std::unique_ptr<KernelFamily> make_skinny_family(Isa level, int threads);

/// Scaled operands (int8, fp8, block-scaled fp8, MXFP4), decoded while they are packed.
std::unique_ptr<KernelFamily> make_quantized_family(Isa level, int threads);
/// Scaled operands in packed weights, small M (int8: any): every weight byte is read once and decoded in
/// registers.
std::unique_ptr<KernelFamily> make_streaming_family(Isa level, int threads);
/// Weights of 4 bits in plain rows, small M: every weight byte is read once and decoded in registers.
std::unique_ptr<KernelFamily> make_skinny_w4_family(Isa level, int threads);
/// Batches of bf16, int8 or fp8, threads over batches and columns.
std::unique_ptr<KernelFamily> make_batched_family(Isa level, int threads);
/// A mixture of experts: tokens sorted by expert, two grouped multiplications, a weighted sum.
std::unique_ptr<KernelFamily> make_moe_family(Isa level, int threads);

/// The panel16 shape of a problem's weight (pair is 4 for int8, 2 for bf16, 1 for fp16 and fp32). Requires a
/// w_type of these.
Panel16 panel16_of(const Problem& problem);

}  // namespace gemmtune::cpu
