// What the operands of a problem are in memory: the one place that knows the sizes of matrices and scales.
#pragma once

#include <cstdint>

#include "numbers/scale_type.h"
#include "problem/problem.h"

namespace gemmtune {

/// The scales of one matrix [rows, columns], row-major: each holds for `row_block` rows and `k_block`
/// elements.
struct ScaleShape {
  ScaleType type = ScaleType::none;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_block = 1;
  std::int64_t k_block = 1;
  bool global = false;       // one float32 more for the matrix, which multiplies all of them
  bool zero_points = false;  // an int8 beside each, −8 … 8, which is subtracted from the elements first

  std::int64_t elements() const { return rows * columns; }
  std::int64_t bytes() const { return elements() * bytes_of(type); }
  std::int64_t global_bytes() const { return global ? std::int64_t{sizeof(float)} : 0; }
  std::int64_t zero_point_bytes() const { return zero_points ? elements() : 0; }
  std::int64_t index(std::int64_t row, std::int64_t k) const {
    return row / row_block * columns + k / k_block;
  }
};

/// `count` matrices [rows, columns], one after another: batches, or experts; each with its scales. Rows begin
/// at whole bytes (columns of 4-bit types are even). Column-major ones have no scales of rows.
struct MatrixShape {
  DataType type = DataType::bf16;
  std::int64_t count = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  ScaleShape scale;
  Order order = Order::row_major;

  /// What is contiguous in memory: the rows, or the columns of a column-major matrix; how many, and their
  /// elements (the leading dimension of a dense matrix).
  std::int64_t lines() const { return order == Order::row_major ? rows : columns; }
  std::int64_t line_elements() const { return order == Order::row_major ? columns : rows; }
  /// Elements from row to row, and from column to column, with lines `leading` elements apart.
  std::int64_t row_step(std::int64_t leading) const { return order == Order::row_major ? leading : 1; }
  std::int64_t column_step(std::int64_t leading) const { return order == Order::row_major ? 1 : leading; }

  std::int64_t elements() const { return count * rows * columns; }
  std::int64_t bytes() const { return bytes_of(type, elements()); }
  std::int64_t scale_bytes() const { return count * scale.bytes(); }
  std::int64_t global_scale_bytes() const { return count * scale.global_bytes(); }
  std::int64_t zero_point_bytes() const { return count * scale.zero_point_bytes(); }
};

/// x [M, K] and y [M, N] (batched: B of each), w [N, K]; x and w each in its order. fused_moe: x [T, model_dim], y [T, model_dim], w
/// (w1) [experts, inter_dim or, gated, 2·inter_dim with the gate's rows first, model_dim], w2 [experts,
/// model_dim, inter_dim].
///
/// Scales: of a8w8 and batched_a8w8 one a row of x and of w (or one alone, see Operands::x_scale_step); of
/// the block-scaled ones and of per_1x128 and per_128x128 one for 1 × 128 of x and 128 × 128 of w, float32 or e8m0; of a4w4
/// and per_1x32 e8m0 for 1 × 32 of both, of a16w4 and a8w4 of w (a8w4: x has one a row); of scaleAB and per_tensor one alone (an expert); of per_token one a
/// row. Operands of fused_moe of a 16-bit type have none. per_1x16 and per_group of fused_moe are of w1 and w2, beside x of 16
/// bits.
///
/// NVFP4 (w of a16w4_nvfp4, a8w4_nvfp4 and per_1x16, both of a4w4_nvfp4): e4m3 for 1 × 16, and one float32 for the matrix (the
/// expert): an element is e2m1 · scale · global.
/// int4 (w of a16w4_int4, a8w4_int4 and per_group): y's type for 1 × Problem::w_group: an element is (i4 − zero point) · scale. x of a8w4_nvfp4 and
/// a8w4_int4 has one a row, as of a8w8.
///
/// Where the problem has a bias: bias [N] of y's type, of all batches; of fused_moe bias (bias1) and bias2, float32, [experts, rows of w1] and
/// [experts, model_dim].
struct OperandShapes {
  MatrixShape x;
  MatrixShape w;
  MatrixShape w2;  // fused_moe only: count is 0 elsewhere
  MatrixShape y;
  MatrixShape bias;   // count is 0 without a bias
  MatrixShape bias2;  // of fused_moe
};

/// Requires check(problem).ok().
OperandShapes operand_shapes(const Problem& problem);

/// What K is a multiple of (and inter_dim of a mixture): of elements of 4 bits whole blocks, or whole bytes of rows with one scale.
std::int64_t k_multiple(const Problem& problem);

/// Columns of y: N; model_dim of fused_moe.
std::int64_t output_columns(const Problem& problem);
/// (token, expert) pairs of fused_moe: M · topk.
std::int64_t routed_pairs(const Problem& problem);
/// Those that operands name: without the pairs of shared experts.
std::int64_t given_pairs(const Problem& problem);

}  // namespace gemmtune
