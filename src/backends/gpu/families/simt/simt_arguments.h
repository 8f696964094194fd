// Arguments of the simt kernel. The host includes this file; its text comes before the kernel's source.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct SimtArguments {
  const GEMMTUNE_ELEMENT* x;    // [m, ldx]
  const GEMMTUNE_ELEMENT* w;    // [n, k], or packed in the layout tile64x128
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  const float* x_scale;
  const float* w_scale;
  GEMMTUNE_OUTPUT* y;  // [m, ldy]
  long long m, n, k, ldx, ldy;
  long long k_atoms;  // tiles of a packed weight along k
};

static_assert(GEMMTUNE_OFFSET(SimtArguments, y) == 40 && GEMMTUNE_OFFSET(SimtArguments, m) == 48 &&
                  GEMMTUNE_OFFSET(SimtArguments, k_atoms) == 88 && sizeof(SimtArguments) == 96,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
