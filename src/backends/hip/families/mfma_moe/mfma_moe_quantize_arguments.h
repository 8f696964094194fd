// Arguments of the kernel that quantizes the hidden layer. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::hip {

/// Of position p and group g the scale is scales[g * pairs + p].
struct MfmaMoeQuantizeArguments {
  const unsigned short* hidden;  // [pairs, columns], bf16; columns are a multiple of 4
  unsigned char* to;             // [pairs, columns]
  float* scales;
  long long pairs;
  int columns;
  int group;  // columns that share a scale: 128, or all
};

static_assert(GEMMTUNE_OFFSET(MfmaMoeQuantizeArguments, columns) == 32 &&
                  sizeof(MfmaMoeQuantizeArguments) == 40,
              "host and device layouts differ");

}  // namespace gemmtune::hip
