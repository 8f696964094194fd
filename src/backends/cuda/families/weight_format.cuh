// What a kernel on a 4-bit weight reads of its format. It comes after config(), which has the members weight and group.
#pragma once

#include "backends/cuda/families/weight_format_arguments.h"

static __device__ constexpr bool is_int4() { return config().weight == gemmtune::cuda::WeightFormat::int4; }
// Sums of a group of k are multiplied by its scale and added to those of all k.
static __device__ constexpr bool is_grouped() { return is_int4() && config().group > 0; }

enum : int {
  // Elements of k with a scale; 0: a row's, which the mainloop does not read.
  SCALE_K = config().weight == gemmtune::cuda::WeightFormat::mxfp4   ? 32
            : config().weight == gemmtune::cuda::WeightFormat::nvfp4 ? 16
                                                                     : config().group,
};
