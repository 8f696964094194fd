// A cuBLASLt algorithm as a config: all attributes that the library lets one read and set.
#pragma once

#include <vector>

#include "backends/cuda/libraries.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

/// What cuBLASLt is asked for a problem: y as the column-major [N, M] product of w and xᵀ.
struct LtProblem {
  api::LtMatmul matmul{};
  api::LtLayout w{};
  api::LtLayout x{};
  api::LtLayout y{};
  int element_type = 0;
  int output_type = 0;
  bool has_fast = false;  // there is a choice of the accumulation: the operands are fp8
  bool fast = false;      // CUBLASLT_MATMUL_DESC_FAST_ACCUM
};

/// How fp8 operands are scaled: one scale a matrix, or one a row of each.
enum class LtScales { matrix, rows };

/// `fast`: 1: the tensor core accumulates fp8 products over all of k.
inline constexpr const char* fast_key = "fast";

/// The library's code for a type; −1 where it has none that gemmtune uses.
int lt_type(DataType type);

/// `unsupported` for fast accumulation of other operands than fp8. Requires quantization(problem) per_token for scales
/// of rows.
Result<LtProblem> describe(const api::CublasLt& lt, const Problem& problem, bool fast, LtScales scales);

/// The parameters of the family, any value legal; without `fast`.
std::vector<Parameter> algorithm_parameters();
Config config_of(const api::CublasLt& lt, const LtProblem& problem, const api::LtAlgorithm& algorithm);
/// The algorithm with exactly these attributes, and the workspace that it needs; `unsupported` where the
/// library has none, or would take another value for one of them.
Result<api::LtHeuristic> algorithm_of(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                      const Config& config);

/// What the library itself proposes within `workspace_bytes`, its first choice first; empty where it has
/// nothing.
std::vector<api::LtHeuristic> heuristics(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                         std::int64_t alignment, std::size_t workspace_bytes);

}  // namespace gemmtune::cuda
