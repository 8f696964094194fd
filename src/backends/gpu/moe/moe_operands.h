// How device sources name the types and scales of a mixture's operands (moe_elements.cuh).
#pragma once

#include "backends/gpu/moe/moe_scales_arguments.h"
#include "numbers/data_type.h"
#include "problem/operands.h"

namespace gemmtune::gpu {

/// −1 for what mixtures are not read in.
int moe_type_code(DataType type);
int moe_scale_code(ScaleType type);
MoeScales moe_scales_of(const ScaleShape& shape, const void* values);

}  // namespace gemmtune::gpu
