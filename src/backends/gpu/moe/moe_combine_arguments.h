// Arguments of the kernel that sums a token's experts. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct MoeCombineArguments {
  const void* partials;    // [pairs, columns] by position, float32 or of y's type (PARTIALS)
  const int* position_of;  // [tokens, topk]; −1: the slot adds nothing, −2: the token's row becomes NaN
  const float* weights;    // [tokens, topk]; null: all 1
  GEMMTUNE_OUTPUT* y;      // [tokens, ldy]
  long long columns;
  long long ldy;
  int topk;
  int vectors;  // 1: y's rows and columns are of whole units of 16 bytes
  // With BIAS.
  const float* bias;  // [experts, columns]
  const int*
      ids;  // [tokens, routed_topk]; experts of the other slots follow each other from routed_experts on
  int routed_topk;
  int routed_experts;
};

static_assert(GEMMTUNE_OFFSET(MoeCombineArguments, columns) == 32 &&
                  GEMMTUNE_OFFSET(MoeCombineArguments, bias) == 56 && sizeof(MoeCombineArguments) == 80,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
