// Arguments of the kernel that repeats a scale. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct ExpandScaleArguments {
  const float* from;  // one
  float* to;          // [count]
  long long count;
};

static_assert(GEMMTUNE_OFFSET(ExpandScaleArguments, count) == 16 && sizeof(ExpandScaleArguments) == 24,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
