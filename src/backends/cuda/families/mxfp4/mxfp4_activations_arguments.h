// Arguments of the kernel that widens activations to bf16. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct Mxfp4ActivationsArguments {
  const unsigned char* x;
  const unsigned char* scales;  // of fp4: e8m0 [m, k / 32], or e4m3 [m, k / 16]
  unsigned short*
      to;  // bf16 [m, k]; of fp16 [m, 2, k]: the upper eight bits of each element's mantissa, and what is left of it
  long long row_bytes;  // of x
  int m, k;
  int aligned;  // 1: x and its rows are at multiples of 16 bytes
};

static_assert(GEMMTUNE_OFFSET(Mxfp4ActivationsArguments, m) == 32 && sizeof(Mxfp4ActivationsArguments) == 48,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
