// oneDNN's int8 multiplication as a contestant: s8 · s8 to s32 with packed weights and nothing after it.
#pragma once

#include "speed/workplace.h"

namespace gemmtune::speed {

/// Of `m` rows of the workplace's int8 problem. `not_found` without oneDNN, `unsupported` where it has no
/// fast code.
Result<Contestant> int8_library(Workplace& workplace, std::int64_t m, int threads);

}  // namespace gemmtune::speed
