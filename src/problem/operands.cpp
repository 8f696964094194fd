#include "problem/operands.h"

#include <algorithm>

#include "base/rounding.h"

namespace gemmtune {
namespace {

/// How many rows and elements of k share a scale, and what is beside the scales.
struct Granularity {
  ScaleType type = ScaleType::none;
  std::int64_t rows = 1;
  std::int64_t k = 1;
  bool global = false;
  bool zero_points = false;
};
constexpr std::int64_t all = 0;  // rows, or elements of k: one scale for however many there are

ScaleShape scale_shape(const MatrixShape& matrix, const Granularity& granularity) {
  ScaleShape shape;
  shape.type = granularity.type;
  if (shape.type == ScaleType::none) return shape;
  shape.global = granularity.global;
  shape.zero_points = granularity.zero_points;
  const auto share = [](std::int64_t size, std::int64_t of_one, std::int64_t& block, std::int64_t& count) {
    block = of_one == all ? std::max<std::int64_t>(size, 1) : of_one;
    count = of_one == all ? 1 : ceil_div(size, of_one);
  };
  share(matrix.rows, granularity.rows, shape.row_block, shape.rows);
  share(matrix.columns, granularity.k, shape.k_block, shape.columns);
  return shape;
}

Granularity granularity_of(const Problem& problem, bool weight) {
  switch (weight ? weight_quantization(problem) : quantization(problem)) {
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
      return {problem.e8m0_scales ? ScaleType::e8m0 : ScaleType::f32, weight ? scale_block : 1, scale_block};
    case QuantType::per_1x16:
      return {ScaleType::e4m3, 1, nv_block, true};
    case QuantType::per_group:
      return {problem.y_type == DataType::f16 ? ScaleType::f16 : ScaleType::bf16, 1,
              has_whole_rows(problem) ? all : problem.w_group, false, problem.zero_points};
  }
  return {};
}

/// Elements of 4 bits that k is a multiple of; `all`: of none. Mixtures have blocks of 32 whatever the scales, but for the
/// formats of weights alone.
std::int64_t four_bit_block(const Problem& problem, bool weight) {
  const QuantType format = weight_quantization(problem);
  const bool own_block =
      format == QuantType::per_1x16 || (format == QuantType::per_group && !has_whole_rows(problem));
  return is_mixture(problem) && !own_block ? mx_block : granularity_of(problem, weight).k;
}

void set_scale(const Problem& problem, MatrixShape& matrix, bool weight) {
  const bool wide = bits(matrix.type) >= 16 && is_mixture(problem);
  if (wide) return;
  matrix.scale = scale_shape(matrix, granularity_of(problem, weight));
}

}  // namespace

OperandShapes operand_shapes(const Problem& problem) {
  const bool moe = is_mixture(problem);
  OperandShapes shapes;
  shapes.x = {problem.x_type, problem.batch, problem.m, problem.k, {}, problem.x_order};
  shapes.y = {problem.y_type, problem.batch, problem.m, output_columns(problem), {}};
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

std::int64_t k_multiple(const Problem& problem) {
  std::int64_t multiple = 1;
  for (const bool weight : {false, true}) {
    if (bits(weight ? problem.w_type : problem.x_type) != 4) continue;
    const std::int64_t block = four_bit_block(problem, weight);
    const bool whole_bytes = block != all && block % 2 == 0;
    multiple = std::max(multiple, whole_bytes ? block : 2);
  }
  return multiple;
}

std::int64_t output_columns(const Problem& problem) { return is_mixture(problem) ? problem.k : problem.n; }

std::int64_t routed_pairs(const Problem& problem) {
  return is_mixture(problem) ? problem.m * problem.moe.topk : 0;
}

std::int64_t given_pairs(const Problem& problem) {
  return is_mixture(problem) ? problem.m * problem.moe.routed_topk() : 0;
}

}  // namespace gemmtune
