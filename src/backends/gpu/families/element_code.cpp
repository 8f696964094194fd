#include "backends/gpu/families/element_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "backends/gpu/device/types_arguments.h"
#include "problem/operands.h"

namespace gemmtune::gpu {

namespace {

/// The number of a define: of Element or Scales. -1: it has none.
template <typename Type, typename Code, std::size_t count>
int code_in(const std::pair<Type, Code> (&codes)[count], Type type) {
  const auto* const found = std::ranges::find(codes, type, &std::pair<Type, Code>::first);
  return found == std::end(codes) ? -1 : static_cast<int>(found->second);
}

}  // namespace

int element_code(DataType type) {
  constexpr std::pair<DataType, Element> codes[] = {{DataType::f32, Element::f32},
                                                    {DataType::f16, Element::f16},
                                                    {DataType::bf16, Element::bf16},
                                                    {DataType::f8_e4m3fn, Element::e4m3},
                                                    {DataType::i8, Element::int8},
                                                    {DataType::f4_e2m1, Element::e2m1},
                                                    {DataType::f8_e4m3fnuz, Element::e4m3fnuz},
                                                    {DataType::i4, Element::int4}};
  return code_in(codes, type);
}

int scale_code(QuantType type) {
  constexpr std::pair<QuantType, Scales> codes[] = {
      {QuantType::none, Scales::none},       {QuantType::per_tensor, Scales::matrix},
      {QuantType::per_token, Scales::rows},  {QuantType::per_1x128, Scales::blocks},
      {QuantType::per_1x32, Scales::mx},     {QuantType::per_1x16, Scales::nv},
      {QuantType::per_group, Scales::groups}};
  return code_in(codes, type);
}

int scale_code(const Problem& problem) { return scale_code(quantization(problem)); }

std::vector<std::string> type_defines(const Problem& problem) {
  return {fmt::format("ELEMENT={}", element_code(problem.x_type)),
          fmt::format("OUTPUT={}", element_code(problem.y_type)),
          fmt::format("SCALES={}", scale_code(problem)),
          fmt::format("E8M0={}", problem.e8m0_scales ? 1 : 0),
          fmt::format("W_ELEMENT={}", element_code(problem.w_type)),
          fmt::format("W_SCALES={}", scale_code(weight_quantization(problem))),
          fmt::format("W_GROUP={}", problem.w_group == problem.k ? 0 : problem.w_group),
          fmt::format("ZERO_POINTS={}", problem.zero_points ? 1 : 0),
          fmt::format("BATCHED={}", traits(problem.operation).batched ? 1 : 0)};
}

ScalesArguments scales_of(const Problem& problem, const Operands& operands) {
  const OperandShapes shapes = operand_shapes(problem);
  // One scale for all rows has no step.
  const auto row_step = [](QuantType type, const ScaleShape& shape, std::int64_t given) -> std::int64_t {
    if (type == QuantType::none || type == QuantType::per_tensor) return 0;
    return type == QuantType::per_token ? given : shape.columns;
  };
  return {static_cast<const float*>(operands.x_scale), static_cast<const float*>(operands.w_scale),
          row_step(quantization(problem), shapes.x.scale, operands.x_scale_step),
          row_step(weight_quantization(problem), shapes.w.scale, operands.w_scale_step)};
}

FormatArguments format_of(const Operands& operands) {
  return {static_cast<const float*>(operands.x_global_scale),
          static_cast<const float*>(operands.w_global_scale),
          static_cast<const signed char*>(operands.w_zero_points)};
}

namespace {

bool takes(QuantType type, const DenseSupport& taken) {
  switch (type) {
    case QuantType::none:
    case QuantType::per_tensor:
      return true;
    case QuantType::per_token:
      return taken.row_scales;
    case QuantType::per_1x128:
      return taken.block_scales;
    case QuantType::per_1x32:
      return taken.fp4;
    case QuantType::per_1x16:
    case QuantType::per_group:
      return taken.all_formats;
    case QuantType::per_128x128:
      return false;
  }
  return false;
}

Status check_operation(const Problem& problem, const DenseSupport& taken) {
  const OperationTraits& row = traits(problem.operation);
  const bool takes_scales = takes(quantization(problem), taken) && takes(weight_quantization(problem), taken);
  if ((row.batched && !taken.batches) || row.mixture || !takes_scales) {
    return refusal::refuse(refusal::operation, "{} is not a16w16{}{}{}{}{}", to_string(form_of(problem)),
                           taken.row_scales ? ", a8w8" : "", taken.block_scales ? ", a8w8_blockscale" : "",
                           taken.fp4 ? ", a4w4_blockscale, a16w4, a8w4" : "",
                           taken.all_formats ? ", of another format of 4-bit weights" : "",
                           taken.batches ? ", batched" : "");
  }
  if (!row.batched) return refusal::check_one_batch(problem, taken.orders);
  if (problem.batch > max_batches)
    return refusal::refuse(refusal::batch, "{} is above {}", problem.batch, max_batches);
  return refusal::check_order(problem, taken.orders);
}

bool takes_elements(DataType type, const DenseSupport& taken) {
  switch (type) {
    case DataType::i8:
      return taken.int8;
    case DataType::f8_e4m3fn:
      return taken.fp8 == Fp8::fn || taken.fp8 == Fp8::both;
    case DataType::f8_e4m3fnuz:
      return taken.fp8 == Fp8::fnuz || taken.fp8 == Fp8::both;
    default:
      return element_code(type) >= 0;
  }
}

}  // namespace

Status accepts_dense(const Problem& problem, const DenseSupport& taken) {
  GEMMTUNE_RETURN_IF_ERROR(check_operation(problem, taken));
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (!takes_elements(problem.x_type, taken) || element_code(problem.y_type) < 0 ||
      bits(problem.y_type) == 8) {
    return refusal::refuse(refusal::types, "{} to {}", to_string(problem.x_type), to_string(problem.y_type));
  }
  const WeightLayout layout = problem.weight_layout;
  if (layout != WeightLayout::plain && traits(problem.operation).batched)
    return refusal::refuse(refusal::layout, "{} of batches, only plain", to_string(layout));
  const WeightLayout packed =
      taken.weights == Weights::shuffled_too ? WeightLayout::aiter16x16 : packed_layout_of(problem);
  const bool is_taken = layout == WeightLayout::any || layout == packed;
  if (layout != WeightLayout::plain && (taken.weights == Weights::plain || !is_taken)) {
    return refusal::refuse(
        refusal::layout, "{}, only plain{}", to_string(layout),
        taken.weights == Weights::plain ? std::string() : fmt::format(" and {}", to_string(packed)));
  }
  return {};
}

Status accepts_on_tensor_cores(const Problem& problem, const DenseSupport& taken) {
  GEMMTUNE_RETURN_IF_ERROR(accepts_dense(problem, taken));
  if (problem.x_type == DataType::f32)
    return refusal::refuse(refusal::types, "f32 operands: the tensor cores have no such instruction");
  return {};
}

Status accepts_sizes(const Problem& problem) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (problem.m <= most && problem.n <= most && problem.k <= most) return {};
  return refusal::refuse(refusal::size, "{} x {} x {}, at most {} each", problem.m, problem.n, problem.k,
                         most);
}

WeightLayout packed_layout_of(const Problem& problem) {
  return bits(problem.w_type) == 4 ? WeightLayout::fragment64 : WeightLayout::tile64x128;
}

WeightLayout weight_layout_of(const Problem& problem) {
  return is_packed(problem) ? packed_layout_of(problem) : WeightLayout::plain;
}

Fragment64 fragments_of(const Problem& problem) { return {.n = problem.n, .k = problem.k}; }

Tile16 shuffled_tiles_of(const Problem& problem) {
  if (bits(problem.w_type) < 8) return {.n = problem.n, .k = bytes_of(problem.w_type, problem.k)};
  return {.n = problem.n, .k = problem.k, .element_bytes = bits(problem.w_type) / 8};
}

std::int64_t shuffled_k_multiple(const Problem& problem) {
  return Tile16::k_multiple * (bits(problem.w_type) < 8 ? 8 / bits(problem.w_type) : 1);
}

Tile64 tiles_of(const Problem& problem) {
  return {.n = problem.n, .k = problem.k, .element_bytes = bits(problem.w_type) / 8};
}

}  // namespace gemmtune::gpu
