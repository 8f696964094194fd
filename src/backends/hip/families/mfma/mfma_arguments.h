// Arguments of the mfma kernel and of its split-K reduction. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::hip {

struct MfmaArguments {
  const unsigned char* x;
  const unsigned char* w;
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  gpu::ScalesArguments scales;
  GEMMTUNE_OUTPUT* y;      // [m, ldy]
  void* partials;          // [batches][split_k][m][n], the workspace: float32, of int8 operands int32
  long long x_line_bytes;  // between rows of x, or columns of a column-major x
  long long w_line_bytes;
  long long k_bytes;  // of a row's elements
  long long ldy;
  long long x_batch_bytes, w_batch_bytes;  // a batch is a block along z
  long long y_batch_step;                  // elements
  int m, n;
  int split_k;
  int tiles_m, tiles_n;
  int group_m;  // tiles along m in a rasterization group
  int xcds;     // dies that blocks are dealt to in turn; 1: no reordering
};

static_assert(GEMMTUNE_OFFSET(MfmaArguments, y) == 56 && GEMMTUNE_OFFSET(MfmaArguments, ldy) == 96 &&
                  GEMMTUNE_OFFSET(MfmaArguments, split_k) == 136 &&
                  GEMMTUNE_OFFSET(MfmaArguments, xcds) == 152 && sizeof(MfmaArguments) == 160,
              "host and device layouts differ");

}  // namespace gemmtune::hip
