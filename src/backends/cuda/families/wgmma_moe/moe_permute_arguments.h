// Arguments of the kernel that makes tokens bf16 and permutes them for MXFP4 weights. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct MoePermuteArguments {
  const unsigned char* x;  // [tokens, columns], rows of x_row_bytes bytes, a multiple of 16
  unsigned char* to;       // [rows, units * 128]
  const int* pair_of;      // [rows], pairs by position, whose tokens go to `to`; null: the tokens themselves
  long long x_row_bytes;
  int rows;
  int topk;
  int tokens;
  int columns;                    // a multiple of 32
  int units;                      // of 128 columns; zeros past the last column
  const unsigned char* x_scales;  // [tokens, columns / 32], e8m0 (X_SCALES)
};

static_assert(GEMMTUNE_OFFSET(MoePermuteArguments, tokens) == 40 && sizeof(MoePermuteArguments) == 64,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
