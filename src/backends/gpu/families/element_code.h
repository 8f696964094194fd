// How device sources name data types (numbers.cuh), and what all families of dense GEMMs refuse.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/runtime.h"
#include "backends/refusal.h"
#include "numbers/weight_layout.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// The number of an Element (device/types_arguments.h); −1 for types that no kernel has.
int element_code(DataType type);
/// The number of a Scales; −1 for others. Of a problem: those of x.
int scale_code(QuantType type);
int scale_code(const Problem& problem);

/// The defines by which device/types.cuh names types.
std::vector<std::string> type_defines(const Problem& problem);
ScalesArguments scales_of(const Problem& problem, const Operands& operands);
FormatArguments format_of(const Operands& operands);

enum class Weights { plain, packed_too, shuffled_too };
enum class Fp8 { none, fn, fnuz, both };

/// What a family takes beside a16w16 on plain row-major operands.
struct DenseSupport {
  Weights weights = Weights::plain;  // packed_too: packed_layout_of(); shuffled_too: aiter16x16
  refusal::Orders orders = refusal::Orders::row_major;
  bool row_scales = false;    // a8w8
  bool block_scales = false;  // a8w8_blockscale
  bool int8 = false;
  Fp8 fp8 = Fp8::fn;
  bool fp4 = false;          // MXFP4: a4w4_blockscale, a16w4, a8w4
  bool all_formats = false;  // with fp4: every format of 4-bit weights
  bool batches = false;      // batched_bf16 and, with row_scales, batched_a8w8; plain weights
};

/// What kernels that may be slow take: everything.
inline constexpr DenseSupport any_dense{.weights = Weights::packed_too,
                                        .orders = refusal::Orders::any_input,
                                        .row_scales = true,
                                        .block_scales = true,
                                        .int8 = true,
                                        .fp8 = Fp8::both,
                                        .fp4 = true,
                                        .all_formats = true,
                                        .batches = true};

/// Blocks along the grid's z, of which kernels give each batch one.
inline constexpr std::int64_t max_batches = 65535;

/// ok for one dense GEMM, or batches of them, on operands that the family takes, with a weight that is plain or packed (or `any`: it
/// will be); else `unsupported`: "<subject>: <detail>".
Status accepts_dense(const Problem& problem, const DenseSupport& taken = {});

/// accepts_dense() without float32 operands.
Status accepts_on_tensor_cores(const Problem& problem, const DenseSupport& taken = {});

/// `unsupported` for sizes that arguments of 32 bits and their sums do not hold.
Status accepts_sizes(const Problem& problem);

/// tile64x128, of weights of 4 bits fragment64.
WeightLayout packed_layout_of(const Problem& problem);
/// plain, or where the problem's weight is packed, packed_layout_of().
WeightLayout weight_layout_of(const Problem& problem);
Tile64 tiles_of(const Problem& problem);
Fragment64 fragments_of(const Problem& problem);
/// Of aiter16x16; of fp4 weights in bytes.
Tile16 shuffled_tiles_of(const Problem& problem);
/// Elements that k must be a multiple of.
std::int64_t shuffled_k_multiple(const Problem& problem);

}  // namespace gemmtune::gpu
