// Arguments of the simt kernel. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct SimtArguments {
  const GEMMTUNE_ELEMENT* x;    // [m, k]
  const GEMMTUNE_ELEMENT* w;    // [n, k], or packed in the layout tile64x128
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  ScalesArguments scales;
  GEMMTUNE_OUTPUT* y;  // [m, ldy]
  long long m, n, k, ldy;
  long long k_atoms;                                     // tiles of a packed weight along k
  long long x_row_step, x_k_step, w_row_step, w_k_step;  // elements; of w if it is not packed
  long long x_batch_step, w_batch_step, y_batch_step;    // elements; a batch is a block along z
  FormatArguments format;
};

static_assert(GEMMTUNE_OFFSET(SimtArguments, y) == 56 && GEMMTUNE_OFFSET(SimtArguments, m) == 64 &&
                  GEMMTUNE_OFFSET(SimtArguments, w_k_step) == 128 &&
                  GEMMTUNE_OFFSET(SimtArguments, x_batch_step) == 136 && sizeof(SimtArguments) == 184,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
