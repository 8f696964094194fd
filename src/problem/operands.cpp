#include "problem/operands.h"

#include <algorithm>

#include "base/rounding.h"
#include "numbers/quantize.h"

namespace gemmtune {
namespace {

/// How many rows and elements of k share a scale.
struct Granularity {
  ScaleType type = ScaleType::none;
  std::int64_t rows = 1;
  std::int64_t k = 1;
};

ScaleShape scale_shape(const MatrixShape& matrix, const Granularity& granularity) {
  ScaleShape shape;
  shape.type = granularity.type;
  if (shape.type == ScaleType::none) return shape;
  shape.row_block = granularity.rows;
  shape.k_block = granularity.k;
  shape.rows = ceil_div(matrix.rows, granularity.rows);
  shape.columns = ceil_div(matrix.columns, granularity.k);
  return shape;
}

/// The granularity that a mixture's q_type means.
Granularity of_quant_type(QuantType type, const MatrixShape& matrix, bool weight) {
  switch (type) {
    case QuantType::none:
      return {};
    case QuantType::per_tensor:
      return {ScaleType::f32, std::max<std::int64_t>(matrix.rows, 1), matrix.columns};  // no rows are legal
    case QuantType::per_token:
      return {ScaleType::f32, 1, matrix.columns};
    case QuantType::per_1x32:
      return {ScaleType::e8m0, 1, mx_block};
    case QuantType::per_1x128:
    case QuantType::per_128x128:
      return {ScaleType::f32, weight ? scale_block : 1, scale_block};
  }
  return {};
}

/// How an operation without a q_type of its own quantizes.
QuantType quant_type_of(const Problem& problem) {
  switch (problem.operation) {
    case Operation::a16w16:
      return problem.scale_ab ? QuantType::per_tensor : QuantType::none;
    case Operation::a8w8:
    case Operation::a8w8_bpreshuffle:
    case Operation::batched_a8w8:
      return QuantType::per_token;
    case Operation::a8w8_blockscale:
    case Operation::a8w8_blockscale_bpreshuffle:
      return QuantType::per_1x128;
    case Operation::a4w4_blockscale:
      return QuantType::per_1x32;
    case Operation::batched_bf16:
      return QuantType::none;
    case Operation::fused_moe:
      break;
  }
  return problem.moe.quant_type;
}

void set_scale(const Problem& problem, MatrixShape& matrix, bool weight) {
  const bool wide = bits(matrix.type) >= 16 && problem.operation == Operation::fused_moe;
  if (!wide) matrix.scale = scale_shape(matrix, of_quant_type(quant_type_of(problem), matrix, weight));
}

}  // namespace

OperandShapes operand_shapes(const Problem& problem) {
  const bool moe = problem.operation == Operation::fused_moe;
  OperandShapes shapes;
  shapes.x = {problem.x_type, problem.batch, problem.m, problem.k, {}};
  shapes.y = {problem.y_type, problem.batch, problem.m, output_columns(problem), {}};
  if (moe) {
    shapes.w = {problem.w_type, problem.moe.experts, problem.n * (problem.moe.gated ? 2 : 1), problem.k, {}};
    shapes.w2 = {problem.w_type, problem.moe.experts, problem.k, problem.n, {}};
  } else {
    shapes.w = {problem.w_type, problem.batch, problem.n, problem.k, {}};
    shapes.w2.count = 0;
  }
  set_scale(problem, shapes.x, false);
  set_scale(problem, shapes.w, true);
  if (moe) set_scale(problem, shapes.w2, true);
  return shapes;
}

std::int64_t output_columns(const Problem& problem) {
  return problem.operation == Operation::fused_moe ? problem.k : problem.n;
}

std::int64_t routed_pairs(const Problem& problem) {
  return problem.operation == Operation::fused_moe ? problem.m * problem.moe.topk : 0;
}

}  // namespace gemmtune
