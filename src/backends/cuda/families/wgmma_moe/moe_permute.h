// x of a mixture in front of a kernel with an MXFP4 weight: as bf16, in the order that the kernel wants.
#pragma once

#include <cstdint>

#include "backends/gpu/jit/compiler.h"
#include "backends/gpu/moe/moe_layer.h"
#include "backends/gpu/runtime.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

inline constexpr std::int64_t permuted_unit = 128;  // columns, to which rows are padded

/// Of weights of 4 bits whose products need no scale, and of int4 weights, whose groups of 32 stay together.
enum class ColumnOrder { plain, permuted, permuted_within_32 };
/// Rows of what is written: the round's tokens, or its pairs by position, for which the sort must have been enqueued.
enum class RowOrder { tokens, sorted };

/// Types of x that become bf16 exactly, scales of 32 columns included; other scales of x are left to the kernel behind it.
bool widens_exactly(const Problem& problem);
/// Where x has a float32 scale for each token, or one: the sums of the first product are multiplied by it.
bool scales_tokens(const Problem& problem);

/// What products of the bf16 rows are multiplied by: 1, or of e8m0 scales, of which the largest times an element is more than bf16
/// holds, the power of two that elements are divided by.
int permuted_unit_of(const Problem& problem);

gpu::Source moe_permute_source(const Problem& problem, ColumnOrder order);
/// Bytes of a token's row.
std::int64_t permuted_row_bytes(const Problem& problem);
/// Enqueues it for the round; starts early.
Status launch_moe_permute(const gpu::Program& program, const Problem& problem, const gpu::MoeRound& round,
                          RowOrder order, void* to, Stream stream);

}  // namespace gemmtune::cuda
