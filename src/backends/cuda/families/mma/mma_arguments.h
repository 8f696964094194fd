// What the mma kernel is compiled for, and the arguments of it and of its split-K reduction. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct MmaConfig {
  int block_m, block_n;
  int warps_m, warps_n;
  int num_stages;  // at least 2
  bool split_k;    // blocks divide k and write partial sums in float32
  bool x_columns;  // the operand is column-major; two-byte elements
  bool w_columns;
};

struct MmaArguments {
  const unsigned char* x;
  const unsigned char* w;
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  const float* x_scale;
  const float* w_scale;
  GEMMTUNE_OUTPUT* y;      // [m, ldy]
  float* partials;         // [batches][split_k][m][n], the workspace
  long long x_line_bytes;  // between rows of x, or columns of a column-major x; a multiple of 16, as the next
  long long w_line_bytes;
  long long k_bytes;  // of a row's elements
  long long ldy;
  long long x_batch_bytes, w_batch_bytes;  // a batch is a block along z
  long long y_batch_step;                  // elements
  int m, n;
  int split_k;
  int tiles_m, tiles_n;
};

static_assert(GEMMTUNE_OFFSET(MmaArguments, partials) == 48 && GEMMTUNE_OFFSET(MmaArguments, ldy) == 80 &&
                  GEMMTUNE_OFFSET(MmaArguments, split_k) == 120 &&
                  GEMMTUNE_OFFSET(MmaArguments, tiles_n) == 128 && sizeof(MmaArguments) == 136,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
