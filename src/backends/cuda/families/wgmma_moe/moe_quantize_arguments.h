// Arguments of the kernel that quantizes the hidden layer. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

/// Of position p and group g the scale is scales[g * pairs + p].
struct MoeQuantizeArguments {
  const unsigned short* hidden;  // [pairs, columns], bf16; columns are a multiple of 16
  unsigned char* to;             // [pairs, columns], fp8 e4m3fn
  float* scales;
  int pairs;
  int columns;
  int group;  // columns that share a scale: 128, or all
};

static_assert(GEMMTUNE_OFFSET(MoeQuantizeArguments, pairs) == 24 && sizeof(MoeQuantizeArguments) == 40,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
