// oneDNN's int8 GEMM as a member of the rounds: s8 · s8 to s32 with packed weights and nothing after it.
#pragma once

#include "speed/workplace.h"

namespace gemmtune::speed {

/// Of `m` rows of the workplace's int8 problem. `not_found` without oneDNN, `unsupported` where it has no
/// fast code.
Result<RoundMember> int8_library(Workplace& workplace, std::int64_t m, int threads);

}  // namespace gemmtune::speed
