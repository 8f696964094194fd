// Arguments of the simt_moe kernel. The host includes this file too.
#pragma once

#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"
#include "backends/gpu/moe/moe_scales_arguments.h"

namespace gemmtune::gpu {

/// One stage: rows of x of each tile times its expert's w.
struct SimtMoeArguments {
  const unsigned char*
      x;  // stage 1: [tokens, ldx] elements of x's type; stage 2: hidden [pairs, ldx], float32
  const unsigned char* w;  // [experts, rows, k]
  MoeScales x_scales;      // of stage 1
  MoeScales w_scales;
  float* to;  // stage 1: hidden [pairs, columns]; stage 2: partial results [pairs, columns]; by position
  const int* pair_of;
  const MoeTile* tiles;
  const int* tile_count;
  const float* weights;  // stage 1: routing weights by pair that scale gate and up; null: none
  long long ldx, k, columns;
  int topk;
  const float* bias;       // stage 1: [experts, rows of w1] (BIAS)
  FormatArguments format;  // of w: w_global [experts] (W_GLOBAL), zero_points as w_scales (W_ZERO_POINTS)
};

static_assert(GEMMTUNE_OFFSET(SimtMoeArguments, to) == 80 && GEMMTUNE_OFFSET(SimtMoeArguments, topk) == 144 &&
                  GEMMTUNE_OFFSET(SimtMoeArguments, format) == 160 && sizeof(SimtMoeArguments) == 184,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
