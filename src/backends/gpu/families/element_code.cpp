#include "backends/gpu/families/element_code.h"

#include <fmt/format.h>

namespace gemmtune::gpu {

int element_code(DataType type) {
  switch (type) {
    case DataType::f32:
      return 0;
    case DataType::f16:
      return 1;
    case DataType::bf16:
      return 2;
    case DataType::f8_e4m3fn:
      return 3;
    default:
      return -1;
  }
}

std::vector<std::string> type_defines(const Problem& problem) {
  return {fmt::format("ELEMENT={}", element_code(problem.x_type)),
          fmt::format("OUTPUT={}", element_code(problem.y_type))};
}

Status accepts_dense(const Problem& problem, Weights weights, refusal::Orders orders) {
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_dense_gemm(problem, orders));
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (element_code(problem.x_type) < 0 || element_code(problem.y_type) < 0 || traits(problem.y_type).fp8) {
    return refusal::refuse(refusal::types, "{} to {}", to_string(problem.x_type), to_string(problem.y_type));
  }
  const WeightLayout layout = problem.weight_layout;
  const bool tiles = layout == WeightLayout::any || layout == WeightLayout::tile64x128;
  if (layout != WeightLayout::plain && (weights == Weights::plain || !tiles)) {
    return refusal::refuse(refusal::layout, "{}, only plain{}", to_string(layout),
                           weights == Weights::plain ? "" : " and tile64x128");
  }
  return {};
}

Status accepts_on_tensor_cores(const Problem& problem, Weights weights, refusal::Orders orders) {
  GEMMTUNE_RETURN_IF_ERROR(accepts_dense(problem, weights, orders));
  if (problem.x_type == DataType::f32)
    return refusal::refuse(refusal::types, "f32 operands: the tensor cores have no such instruction");
  return {};
}

WeightLayout weight_layout_of(const Problem& problem) {
  return problem.bpreshuffle ? WeightLayout::tile64x128 : WeightLayout::plain;
}

Tile64 tiles_of(const Problem& problem) {
  return {.n = problem.n, .k = problem.k, .element_bytes = bits(problem.w_type) / 8};
}

}  // namespace gemmtune::gpu
