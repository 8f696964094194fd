// silu_and_mul on a CPU, in the vectors of an instruction set.
#pragma once

#include "backends/cpu/machine/isa.h"
#include "backends/cpu/threads/executor.h"
#include "backends/silu_and_mul.h"

namespace gemmtune::cpu {

/// Requires a checked call and a level that this machine has.
void silu_and_mul(const SiluAndMul& call, Isa level, Executor& executor);

}  // namespace gemmtune::cpu
