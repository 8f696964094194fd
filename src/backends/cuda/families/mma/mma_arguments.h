// Arguments of the mma kernel and of its split-K reduction. The host includes this file; its text comes
// before the kernels' source.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct MmaArguments {
  const unsigned char* x;
  const unsigned char* w;
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  const float* x_scale;
  const float* w_scale;
  GEMMTUNE_OUTPUT* y;     // [m, ldy]
  float* partials;        // [split_k][m][n], the workspace
  long long x_row_bytes;  // between rows of x
  long long k_bytes;      // of a row; a multiple of 16
  long long ldy;
  int m, n;
  int split_k;
  int tiles_m, tiles_n;
};

static_assert(GEMMTUNE_OFFSET(MmaArguments, partials) == 48 && GEMMTUNE_OFFSET(MmaArguments, ldy) == 72 &&
                  GEMMTUNE_OFFSET(MmaArguments, split_k) == 88 &&
                  GEMMTUNE_OFFSET(MmaArguments, tiles_n) == 96 && sizeof(MmaArguments) == 104,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
