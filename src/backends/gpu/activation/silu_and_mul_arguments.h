// Arguments of the kernel of silu_and_mul. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct SiluAndMulArguments {
  const GEMMTUNE_OUTPUT* gate;
  const GEMMTUNE_OUTPUT* up;
  GEMMTUNE_OUTPUT* y;
  long long columns;
  long long ldgate;
  long long ldup;
  long long ldy;
  int vectors;  // 1: pointers, rows and columns are of whole units of 16 bytes
};

static_assert(GEMMTUNE_OFFSET(SiluAndMulArguments, columns) == 24 && sizeof(SiluAndMulArguments) == 64,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
