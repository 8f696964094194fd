// Every algorithm of cuBLASLt that does a problem, not only those it proposes.
#pragma once

#include <vector>

#include "backends/cuda/families/cublaslt/algorithm.h"

namespace gemmtune::cuda {

/// Algorithm ids x tiles x stages x clusters x splits of k, and the algorithms' own options and tile orders,
/// as far as the library's check says yes within `workspace_bytes`. In the order of the ids, without
/// repetition. Takes a second or more. Splits whose partial sums are rounded to y's type are left out: the
/// correctness gate refuses them.
std::vector<Config> enumerate_algorithms(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                         std::size_t workspace_bytes);

}  // namespace gemmtune::cuda
