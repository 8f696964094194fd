// Arguments of the comparison of two outputs. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct SameArguments {
  const unsigned* one;
  const unsigned* other;
  unsigned* differences;  // set to 1 if any bit differs; the caller clears it
  long long bytes;
};

static_assert(GEMMTUNE_OFFSET(SameArguments, differences) == 16 &&
                  GEMMTUNE_OFFSET(SameArguments, bytes) == 24 && sizeof(SameArguments) == 32,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
