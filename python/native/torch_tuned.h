// Operators that run a tuned row's kernel where one answers, and another operator elsewhere.
#pragma once

#include <cstdint>

#include "torch_shim.h"

namespace gemmtune::torch_shim {

/// out = x · w (+ bias), x [M, K], w [K, N], a view of a weight [N, K]; by PyTorch's kernel where no row answers.
void tuned_linear_out(Value* values, std::uint64_t arguments, std::uint64_t results);
/// vLLM's fp8 products of x [rows or more, K] with scales; another operator of vLLM where no row answers.
void tuned_scaled_linear(Value* values, std::uint64_t arguments, std::uint64_t results);

}  // namespace gemmtune::torch_shim
