// Arguments of the random fill. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct RandomFillArguments {
  GEMMTUNE_ELEMENT* to;           // `count` elements
  const GEMMTUNE_ELEMENT* table;  // 4096 elements
  unsigned long long state;       // of the SplitMix64, before the first number
  long long count;
};

static_assert(GEMMTUNE_OFFSET(RandomFillArguments, state) == 16 &&
                  GEMMTUNE_OFFSET(RandomFillArguments, count) == 24 && sizeof(RandomFillArguments) == 32,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
