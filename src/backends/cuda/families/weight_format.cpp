#include "backends/cuda/families/weight_format.h"

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

Status accepts_weight(const Problem& problem) {
  if (bits(problem.w_type) == 4 && !is_mixture(problem) && has_format(weight_quantization(problem)))
    return {};
  return refusal::refuse(refusal::operation,
                         "{} is not a4w4_blockscale, a16w4, a8w4, nor of NVFP4 or int4 weights",
                         to_string(form_of(problem)));
}

WeightTraits weight_traits(const Problem& problem) {
  WeightTraits weight;
  weight.format = format_of(weight_quantization(problem));
  if (weight.format == WeightFormat::int4 && problem.w_group != problem.k) weight.group = problem.w_group;
  weight.zero_points = problem.zero_points;
  const ScaleShape scales = operand_shapes(problem).w.scale;
  weight.scale_row = scales.columns * bytes_of(scales.type);
  return weight;
}

}  // namespace gemmtune::cuda
