#include "backends/cuda/families/weight_format.h"

#include <utility>

#include "backends/refusal.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

namespace {

/// Of a format of 4-bit weights; the others have none.
bool has_format(QuantType type) {
  return type == QuantType::per_1x32 || type == QuantType::per_1x16 || type == QuantType::per_group;
}
WeightFormat format_of(QuantType type) {
  return type == QuantType::per_1x32   ? WeightFormat::mxfp4
         : type == QuantType::per_1x16 ? WeightFormat::nvfp4
                                       : WeightFormat::int4;
}

}  // namespace

double WeightTraits::scale_bytes(double k) const {
  switch (format) {
    case WeightFormat::mxfp4:
      return k / static_cast<double>(mx_block);
    case WeightFormat::nvfp4:
      return k / static_cast<double>(nv_block);
    case WeightFormat::int4:
      return group == 0 ? 0 : k / static_cast<double>(group) * (zero_points ? 3 : 2);
  }
  return 0;
}

std::int64_t WeightTraits::scale_row_of(std::int64_t k) const {
  switch (format) {
    case WeightFormat::mxfp4:
      return k / mx_block;
    case WeightFormat::nvfp4:
      return k / nv_block;
    case WeightFormat::int4:
      return 2 * (group == 0 ? 1 : k / group);
  }
  return 0;
}

std::int64_t WeightTraits::zero_row_of(std::int64_t k) const { return zero_points ? scale_row_of(k) / 2 : 0; }

bool has_weight_format(const Problem& problem) {
  return bits(problem.w_type) == 4 && has_format(weight_quantization(problem));
}

Status accepts_weight(const Problem& problem) {
  if (has_weight_format(problem) && !is_mixture(problem)) return {};
  return refusal::refuse(refusal::operation,
                         "{} is not a4w4_blockscale, a16w4, a8w4, nor of NVFP4 or int4 weights",
                         to_string(form_of(problem)));
}

WeightTraits weight_traits(const Problem& problem) {
  WeightTraits weight;
  weight.format = format_of(weight_quantization(problem));
  // Groups of all of k are rows, but for a mixture, whose matrices differ in k.
  const bool rows = is_mixture(problem) ? has_whole_rows(problem) : problem.w_group == problem.k;
  if (weight.format == WeightFormat::int4 && !rows) weight.group = problem.w_group;
  weight.zero_points = problem.zero_points;
  const ScaleShape scales = operand_shapes(problem).w.scale;
  weight.scale_row = scales.columns * bytes_of(scales.type);
  return weight;
}

bool may_scale_elements(const Problem& problem) {
  return has_weight_format(problem) && weight_traits(problem).is_grouped() &&
         (is_mixture(problem) || is_packed(problem)) && problem.x_type == DataType::bf16 &&
         problem.y_type == DataType::bf16;
}

Parameter scaled_parameter(const Problem& problem) {
  Parameter scaled{
      "scaled", {}, "0", "1: elements are multiplied by their scales and rounded, 0: sums are multiplied"};
  if (may_scale_elements(problem)) scaled.values = {"0", "1"};
  return scaled;
}

Status accepts_strips(const Problem& problem) {
  const WeightTraits weight = weight_traits(problem);
  if (weight.format == WeightFormat::int4 && !weight.is_grouped())
    return refusal::refuse(refusal::types, "w {} with a scale a row, only of groups",
                           to_string(problem.w_type));
  for (const auto& [name, elements] : {std::pair{"k", problem.k}, std::pair{"n", problem.n}}) {
    if (elements % 64 != 0)
      return refusal::refuse(refusal::alignment, "{} = {}, no multiple of 64", name, elements);
    if (weight.zero_row_of(elements) % 2 != 0)
      return refusal::refuse(refusal::alignment, "{} = {} with zero points, no multiple of {}", name,
                             elements, 2 * weight.group);
  }
  return {};
}

}  // namespace gemmtune::cuda
