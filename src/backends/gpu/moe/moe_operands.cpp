#include "backends/gpu/moe/moe_operands.h"

#include <fmt/format.h>

#include "backends/gpu/families/element_code.h"

namespace gemmtune::gpu {

int moe_type_code(DataType type) {
  constexpr int int4_code = 7;  // of mixtures alone
  if (type == DataType::i4) return int4_code;
  return type == DataType::f32 ? -1 : element_code(type);
}

// The kernels' numbers are the enumeration's.
static_assert(static_cast<int>(ScaleType::none) == 0 && static_cast<int>(ScaleType::f32) == 1 &&
              static_cast<int>(ScaleType::e8m0) == 2 && static_cast<int>(ScaleType::e4m3) == 3 &&
              static_cast<int>(ScaleType::bf16) == 4 && static_cast<int>(ScaleType::f16) == 5);
int moe_scale_code(ScaleType type) { return static_cast<int>(type); }

std::vector<std::string> moe_weight_defines(DataType type, const ScaleShape& scale) {
  return {fmt::format("W_TYPE={}", moe_type_code(type)),
          fmt::format("W_SCALES={}", moe_scale_code(scale.type)),
          fmt::format("W_GLOBAL={}", scale.global ? 1 : 0),
          fmt::format("W_ZERO_POINTS={}", scale.zero_points ? 1 : 0)};
}

FormatArguments moe_format_of(const void* w_global_scale, const void* w_zero_points) {
  return {nullptr, static_cast<const float*>(w_global_scale), static_cast<const signed char*>(w_zero_points)};
}

MoeScales moe_scales_of(const ScaleShape& shape, const void* values) {
  return {values, shape.elements(), shape.columns, static_cast<int>(shape.row_block),
          static_cast<int>(shape.k_block)};
}

}  // namespace gemmtune::gpu
