// Arguments of the kernel that makes tokens bf16 and permutes them for MXFP4 weights. The host includes this file; its text comes before the
// kernel's source.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct MoePermuteArguments {
  const unsigned char* x;  // [tokens, columns], rows of x_row_bytes bytes, a multiple of 16
  unsigned char* to;       // [tokens, units * 128]
  long long x_row_bytes;
  int tokens;
  int columns;                    // a multiple of 32
  int units;                      // of 128 columns; zeros past the last column
  const unsigned char* x_scales;  // [tokens, columns / 32], e8m0 (X_SCALES)
};

static_assert(GEMMTUNE_OFFSET(MoePermuteArguments, tokens) == 24 && sizeof(MoePermuteArguments) == 48,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
