// Every algorithm of cuBLASLt that supports a problem, not only those that its heuristic proposes.
#pragma once

#include <vector>

#include "backends/cuda/families/cublaslt/algorithm.h"

namespace gemmtune::cuda {

/// Algorithm ids x tiles x stages x clusters x split-K, and the custom options and swizzles, if the library's
/// check accepts them within `workspace_bytes`. In the order of the ids, without duplicates. Takes a second
/// or more. Split-K whose partial sums are rounded to y's type is left out: verification rejects it.
std::vector<Config> enumerate_algorithms(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                         std::size_t workspace_bytes);

}  // namespace gemmtune::cuda
