#include "dispatch/plan.h"

namespace gemmtune {

OperandNeeds::OperandNeeds(const Problem& problem) : OperandNeeds(problem, operand_shapes(problem)) {}

OperandNeeds::OperandNeeds(const Problem& problem, const OperandShapes& shapes) {
  x_lines = shapes.x.lines();
  x_line_elements = shapes.x.line_elements();
  y_columns = output_columns(problem);
  x_scale = shapes.x.scale.type != ScaleType::none;
  w_scale = shapes.w.scale.type != ScaleType::none;
  w2_scale = shapes.w2.scale.type != ScaleType::none;
  mixture = is_mixture(problem);
  bias2 = mixture && problem.bias;
  x_or_one = !mixture && quantization(problem) == QuantType::per_token;
  w_or_one = !mixture && weight_quantization(problem) == QuantType::per_token;
  x_global_scale = shapes.x.scale.global;
  w_global_scale = shapes.w.scale.global;
  w_zero_points = shapes.w.scale.zero_points;
  w2_global_scale = shapes.w2.scale.global;
  w2_zero_points = shapes.w2.scale.zero_points;
  halves = bits(problem.x_type) == 4;
  reads = problem.k != 0;
  x_bits = bits(problem.x_type);
  y_bits = bits(problem.y_type);
  w_bytes = shapes.w.bytes();
  w2_bytes = shapes.w2.bytes();
  bias_bytes = shapes.bias.bytes();
  bias2_bytes = shapes.bias2.bytes();
  x_scale_bytes = shapes.x.scale_bytes();
  w_scale_bytes = shapes.w.scale_bytes();
  w2_scale_bytes = shapes.w2.scale_bytes();
  x_global_bytes = shapes.x.global_scale_bytes();
  w_global_bytes = shapes.w.global_scale_bytes();
  zero_point_bytes = shapes.w.zero_point_bytes();
  w2_global_bytes = shapes.w2.global_scale_bytes();
  w2_zero_point_bytes = shapes.w2.zero_point_bytes();
  route_bytes = given_pairs(problem) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

}  // namespace gemmtune
