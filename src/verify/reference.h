// The reference of verification: float64, independent of every kernel family.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "problem/problem.h"
#include "verify/inputs.h"
#include "verify/line_numbers.h"

namespace gemmtune {

/// Elements of y in float64 (before rounding to y's type, bias included) with the magnitude that bounds their
/// rounding error: sum over k of |x|·|w|, of the numbers that are finite. For large problems only some rows and
/// columns are there, plus what a random-vector (Freivalds) check of the whole result needs. Of fused_moe only rows
/// (tokens) are sampled, and N below is model_dim.
struct Reference {
  bool complete = true;               // every element of y is in `values`
  std::vector<std::int64_t> rows;     // sampled rows (all columns of each), where not complete
  std::vector<std::int64_t> columns;  // sampled columns (all rows of each), where not complete
  std::vector<double> values;         // complete: [M, N]; else rows × N, then columns × M
  std::vector<double> magnitudes;     // as values
  // As values: what no partial sum of some order passes, infinite where the order of scales decides whether the result
  // is a number. Empty: as the magnitudes.
  std::vector<double> reaches;
  // Of operands that may be anything, where not complete: the rows of x, and the rows of w (of fused_moe none: then a
  // row's norm bounds the results of its token). Empty: results are numbers.
  std::vector<LineNumbers> x_lines;
  std::vector<LineNumbers> w_lines;
  std::vector<double>
      vector;  // Freivalds: ±(½ … 1½) at random, length N, 0 for a column of w with other than finite
               // numbers; empty where complete
  std::vector<double> product;             // Freivalds: y · vector, [M], in float64
  std::vector<double> product_magnitudes;  // of each row: a bound of √(Σ over n of magnitude²)
  std::vector<Reference> batches;          // of batched operations, one each; then all else is empty
};

struct ReferenceOptions {
  int threads = 1;
  double max_complete_flops = 6e9;  // 2·M·N·K above this: sampled
  std::int64_t sampled_rows = 8;
  std::int64_t sampled_columns = 32;
  std::uint64_t seed = 0x5eed;
  // Operands are a caller's: NaN, infinities and numbers whose sums pass the range of float32 may be among them. Without
  // it their results are numbers.
  bool any_numbers = false;
};

/// `unsupported` for an operation, an operand type or an order that has no reference here; `out_of_memory`.
Result<Reference> compute_reference(const Problem& problem, const HostOperands& operands,
                                    const ReferenceOptions& options);

/// What compute_reference() keeps, in bytes; the largest number where that overflows. Requires
/// check(problem).ok().
std::int64_t reference_bytes(const Problem& problem, const ReferenceOptions& options);

}  // namespace gemmtune
