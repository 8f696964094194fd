// How device sources name the types and scales of a mixture's operands (moe_elements.cuh).
#pragma once

#include <string>
#include <vector>

#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/moe/moe_scales_arguments.h"
#include "numbers/data_type.h"
#include "problem/operands.h"

namespace gemmtune::gpu {

/// −1 for what mixtures are not read in.
int moe_type_code(DataType type);
int moe_scale_code(ScaleType type);
MoeScales moe_scales_of(const ScaleShape& shape, const void* values);
/// W_TYPE, W_SCALES, W_GLOBAL and W_ZERO_POINTS of the weight of a stage.
std::vector<std::string> moe_weight_defines(DataType type, const ScaleShape& scale);
/// What the weight of a stage has beside its scales, by expert; null where it has none.
FormatArguments moe_format_of(const void* w_global_scale, const void* w_zero_points);

}  // namespace gemmtune::gpu
