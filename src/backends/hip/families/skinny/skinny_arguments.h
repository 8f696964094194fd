// What the skinny kernel of AMD GPUs is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::hip {

struct SkinnyConfig {
  int rows;         // of x: 1, 2, 4, 8, 16
  int weight_rows;  // of a lane
  int waves;        // that divide k
  int unroll;       // loads of 16 bytes of each row in flight
  bool shuffled;    // the weight has the layout aiter16x16
  bool w_columns;   // the weight is column-major
};

struct SkinnyArguments {
  const unsigned char* x;
  const unsigned char* w;
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  gpu::ScalesArguments scales;
  GEMMTUNE_OUTPUT* y;      // [m, ldy]
  long long x_line_bytes;  // between rows of x
  long long k_bytes;       // of a row of the weight
  long long ldy;
  // Of x and w bytes, of y elements. A batch is a block along z.
  long long x_batch_step, w_batch_step, y_batch_step;
  int m, n;
};

static_assert(GEMMTUNE_OFFSET(SkinnyArguments, y) == 56 && GEMMTUNE_OFFSET(SkinnyArguments, ldy) == 80 &&
                  sizeof(SkinnyArguments) == 120,
              "host and device layouts differ");

}  // namespace gemmtune::hip
