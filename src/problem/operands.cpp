#include "problem/operands.h"

#include <algorithm>

#include "base/rounding.h"

namespace gemmtune {
namespace {

/// How many rows and elements of k share a scale.
struct Granularity {
  ScaleType type = ScaleType::none;
  std::int64_t rows = 1;
  std::int64_t k = 1;
};
constexpr std::int64_t all = 0;  // rows, or elements of k: one scale for however many there are

ScaleShape scale_shape(const MatrixShape& matrix, const Granularity& granularity) {
  ScaleShape shape;
  shape.type = granularity.type;
  if (shape.type == ScaleType::none) return shape;
  const auto share = [](std::int64_t size, std::int64_t of_one, std::int64_t& block, std::int64_t& count) {
    block = of_one == all ? std::max<std::int64_t>(size, 1) : of_one;
    count = of_one == all ? 1 : ceil_div(size, of_one);
  };
  share(matrix.rows, granularity.rows, shape.row_block, shape.rows);
  share(matrix.columns, granularity.k, shape.k_block, shape.columns);
  return shape;
}

/// The granularity that a mixture's q_type means.
Granularity of_quant_type(QuantType type, bool weight) {
  switch (type) {
    case QuantType::none:
      return {};
    case QuantType::per_tensor:
      return {ScaleType::f32, all, all};
    case QuantType::per_token:
      return {ScaleType::f32, 1, all};
    case QuantType::per_1x32:
      return {ScaleType::e8m0, 1, mx_block};
    case QuantType::per_1x128:
    case QuantType::per_128x128:
      return {ScaleType::f32, weight ? scale_block : 1, scale_block};
  }
  return {};
}

void set_scale(const Problem& problem, MatrixShape& matrix, bool weight) {
  const bool wide = bits(matrix.type) >= 16 && is_mixture(problem);
  if (wide) return;
  const QuantType type = weight ? weight_quantization(problem) : quantization(problem);
  Granularity granularity = of_quant_type(type, weight);
  if (problem.e8m0_scales) granularity.type = ScaleType::e8m0;
  matrix.scale = scale_shape(matrix, granularity);
}

}  // namespace

OperandShapes operand_shapes(const Problem& problem) {
  const bool moe = is_mixture(problem);
  OperandShapes shapes;
  shapes.x = {problem.x_type, problem.batch, problem.m, problem.k, {}, problem.x_order};
  shapes.y = {problem.y_type, problem.batch, problem.m, output_columns(problem), {}, problem.y_order};
  if (moe) {
    shapes.w = {problem.w_type, problem.moe.experts, problem.n * (problem.moe.gated ? 2 : 1), problem.k, {}};
    shapes.w2 = {problem.w_type, problem.moe.experts, problem.k, problem.n, {}};
  } else {
    shapes.w = {problem.w_type, problem.batch, problem.n, problem.k, {}, problem.w_order};
    shapes.w2.count = 0;
  }
  shapes.bias.count = shapes.bias2.count = 0;
  if (problem.bias && moe) {
    shapes.bias = {DataType::f32, problem.moe.experts, 1, shapes.w.rows, {}};
    shapes.bias2 = {DataType::f32, problem.moe.experts, 1, problem.k, {}};
  } else if (problem.bias) {
    shapes.bias = {problem.y_type, 1, 1, problem.n, {}};
  }
  set_scale(problem, shapes.x, false);
  set_scale(problem, shapes.w, true);
  if (moe) set_scale(problem, shapes.w2, true);
  return shapes;
}

std::int64_t output_columns(const Problem& problem) { return is_mixture(problem) ? problem.k : problem.n; }

std::int64_t routed_pairs(const Problem& problem) {
  return is_mixture(problem) ? problem.m * problem.moe.topk : 0;
}

std::int64_t given_pairs(const Problem& problem) {
  return is_mixture(problem) ? problem.m * problem.moe.routed_topk() : 0;
}

}  // namespace gemmtune
