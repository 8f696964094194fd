#include <array>

#include "formats/aiter/schema.h"

namespace gemmtune {

std::string_view describe(Column column) {
  // In the order of Column.
  static constexpr std::array<std::string_view, column_count> meanings{
      "Architecture: gfx942, sm_90, x86-avx2, x86-avx512, x86-avx512bf16, x86-amx, x86-scalar. Absent in old "
      "files, whose rows are of AMD devices.",
      "Compute units; threads on a CPU. A row without it answers no device.",
      "Matrices of a batch.",
      "M: rows of x; tokens of a mixture.",
      "N: rows of w, columns of y; the inner dimension of a mixture.",
      "K: columns of x and w; the model's dimension of a mixture. MXFP4: in elements, twice the packed "
      "columns.",
      "True: a bias is added. Of fused_moe: each expert has biases; no part of the key there.",
      "Type of x and w.",
      "Type of y.",
      "True: x and w have scales.",
      "True: the weight is packed once, before the first call.",
      "Quantized type of x.",
      "Quantized type of w. Without it a row is int8 (a8w8) or the device's fp8 (pre-shuffled); the word fp8 "
      "is the fp8 of the row's device.",
      "How a mixture's operands are quantized: per tensor, token, channel or block. per_1x16 and per_group: "
      "its weights alone, NVFP4 and int4 in groups. per_1x32 of int4 weights beside tokens of 16 bits: "
      "groups of 32.",
      "Experts of a mixture, shared ones included.",
      "Experts of each token, shared ones included; -1 in a grouped table: any.",
      "Activation between a mixture's two stages.",
      "1: the first stage has a gate beside its up projection.",
      "1: weights of the routing are applied in the first stage.",
      "Of int4 weights: elements of k that share a scale, 32, 64 or 128, or row for whole rows. Absent: 128, "
      "with q_type per_1x32 of a mixture 32.",
      "Of int4 weights: True if they have zero points.",
      "Family of the kernel. Absent in the tables of a8w8, a4w4 and the batched operations.",
      "0 for gemmtune's kernels; a hint of others.",
      "Of fused_moe: rows of a block.",
      "Number of splits; 0 or 1: none. In AITER's rows its meaning depends on the family.",
      "Median time of a call, microseconds. At or below 0, or not finite: read and kept, never chosen.",
      "Of fused_moe: time of the first stage.",
      "Of fused_moe: time of the second stage.",
      "The kernel's identity: family_rREVISION_keyVALUE_… A written name keeps its meaning.",
      "Of fused_moe: the kernel of the second stage.",
      "Share of elements outside AITER's tolerance.",
      "Of fused_moe: error of the first stage, a share or a percentage.",
      "Of fused_moe: error of the second stage, a share or a percentage.",
      "Of fused_moe: 1 or True if one kernel runs both stages.",
      "Of fused_moe: 1 or True if x stays bf16.",
      "Of fused_moe: a count (0, 1, 2) that AITER's kernels read.",
      "Rate, by the formulas of AITER's tuner of the operation; never read.",
      "GB/s, by the same formulas; never read.",
      "Of fused_moe: a word of AITER. Rows tagged flydsl_fallback answer no look-up.",
      "Half-width of the 95 % interval of us, microseconds.",
      "Time of the default kernel in the same rounds, microseconds.",
      "Name of the default kernel.",
      "Median of the paired ratios default / tuned.",
      "What the tests say of the gain (docs/verdicts.md).",
      "Number of other kernels that may be as fast as the row's, by the rounds of its run; empty if not "
      "counted. A win with ties is a win.",
      "The row answers every M from here to its own (tune --m-range, merge --compress); other readers see a "
      "row of its M.",
      "Bound of what a range costs, as a share; empty if not measured.",
      "The best programmatic dependent launch, if tune --pdl allow found one that beats the plain kernel "
      "(docs/dependent_launches.md).",
      "Its time: us by the ratio of the rounds with both.",
      "Hash of the environment; its content is in FILE.env.json.",
      "Accuracy class of the row's kernels, fp32 or tensor_core, the lower one if they differ "
      "(docs/correctness.md). Empty in older files: the kernel's name says it.",
      "Lower end of the 95 % interval of speedup. Empty if the row has the default kernel or none to compare "
      "with, and in older files.",
      "Upper end of that interval.",
      "The bit class of the row's kernel (tune --invariant rows). Rows of such a weight answer every M "
      "(docs/invariant.md).",
      "Of fused_moe: how many of the row's experts are shared; no part of the key.",
      "Of fused_moe: the routing that the row was tuned on (docs/measuring.md); no part of the key.",
      "Of lists of shapes: calls of the shape in a step of the program.",
      "Of lists of shapes: the layer of the model.",
  };
  return meanings[static_cast<std::size_t>(column)];
}

}  // namespace gemmtune
