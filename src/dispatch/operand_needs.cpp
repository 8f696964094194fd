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
  per_tensor = traits(problem.operation).quantization == QuantType::per_token;
  mx_weight = traits(problem.operation).mx_weight;
  halves = bits(problem.x_type) == 4;
}

}  // namespace gemmtune
