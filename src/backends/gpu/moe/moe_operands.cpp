#include "backends/gpu/moe/moe_operands.h"

#include "backends/gpu/families/element_code.h"

namespace gemmtune::gpu {

int moe_type_code(DataType type) {
  constexpr int int4_code = 7;  // of mixtures alone
  if (type == DataType::i4) return int4_code;
  return type == DataType::f32 ? -1 : element_code(type);
}

int moe_scale_code(ScaleType type) { return type == ScaleType::none ? 0 : type == ScaleType::f32 ? 1 : 2; }

MoeScales moe_scales_of(const ScaleShape& shape, const void* values) {
  return {values, shape.elements(), shape.columns, static_cast<int>(shape.row_block),
          static_cast<int>(shape.k_block)};
}

}  // namespace gemmtune::gpu
