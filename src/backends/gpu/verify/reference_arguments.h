// Arguments of the reference kernel. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct ReferenceArguments {
  const GEMMTUNE_ELEMENT* x;    // [m, k]
  const GEMMTUNE_ELEMENT* w;    // [n, k]
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  ScalesArguments scales;
  double* values;     // [batches, m, n]
  float* magnitudes;  // [batches, m, n]
  long long m, n, k;
  long long x_row_step, x_k_step, w_row_step, w_k_step;  // elements
  long long x_batch_step, w_batch_step;                  // elements; a batch is a block along z
  FormatArguments format;
};

static_assert(GEMMTUNE_OFFSET(ReferenceArguments, values) == 56 &&
                  GEMMTUNE_OFFSET(ReferenceArguments, m) == 72 &&
                  GEMMTUNE_OFFSET(ReferenceArguments, w_k_step) == 120 && sizeof(ReferenceArguments) == 168,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
