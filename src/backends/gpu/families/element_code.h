// How device sources name data types (numbers.cuh), and what all families of dense GEMMs refuse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/runtime.h"
#include "backends/refusal.h"
#include "numbers/weight_layout.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// 0: fp32, 1: fp16, 2: bf16, 3: fp8 e4m3fn; −1 for others.
int element_code(DataType type);

/// The text of numbers.cuh: conversions for ELEMENT and OUTPUT, which type_defines() sets.
std::string_view numbers_text();
std::vector<std::string> type_defines(const Problem& problem);

enum class Weights { plain, packed_too };

/// ok for a16w16 on operands of these types and orders, with a weight that is plain or, where the family reads
/// them, packed in tile64x128 (or `any`: it will be); else `unsupported`: "<family>: <subject>: <detail>".
Status accepts_dense(const Problem& problem, Weights weights = Weights::plain,
                     refusal::Orders orders = refusal::Orders::row_major);

/// accepts_dense() without float32 operands.
Status accepts_on_tensor_cores(const Problem& problem, Weights weights = Weights::plain,
                               refusal::Orders orders = refusal::Orders::row_major);

/// plain, or where the problem's weight is packed, tile64x128.
WeightLayout weight_layout_of(const Problem& problem);
Tile64 tiles_of(const Problem& problem);

}  // namespace gemmtune::gpu
