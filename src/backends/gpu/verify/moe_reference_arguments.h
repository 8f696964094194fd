// Arguments of the reference of mixtures of experts. The host includes this file too.
#pragma once

#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"
#include "backends/gpu/moe/moe_scales_arguments.h"

namespace gemmtune::gpu {

/// At most 64 consecutive positions of one expert. Positions number the pairs of token and expert of a round, sorted by
/// expert.
struct MoeReferenceTile {
  int expert;
  int first;  // position
  int count;
};

/// One stage: rows of x of each tile times its expert's w.
struct MoeReferenceArguments {
  const unsigned char* x;  // stage 1: [tokens, ldx] of x's type; stage 2: hidden [positions, ldx], float64
  const unsigned char* w;  // [experts, rows, k]
  MoeScales x_scales;      // of stage 1
  MoeScales w_scales;
  double* values;         // stage 1: hidden; stage 2: partial results; [positions, columns]
  float* magnitudes;      // of stage 2
  const int* token_of;    // by position, of stage 1
  const double* weights;  // routing weights by position; null: none
  const float* bias;      // [experts, rows of w]; null: none
  const MoeReferenceTile* tiles;
  long long ldx, k, columns;
  double swiglu_limit, swiglu_alpha;
  double hidden_floor;  // of stage 2: is added to each |hidden| of the magnitudes
  int tile_count;
  FormatArguments format;  // of w: w_global [experts] (W_GLOBAL), zero_points as w_scales (W_ZERO_POINTS)
};

/// Sums the partial results of each token's slots.
struct MoeReferenceSumArguments {
  const double* partials;           // [positions, columns]
  const float* partial_magnitudes;  // the same
  const int* position_of;           // [tokens, topk]; -1: the slot adds nothing
  double* values;                   // [tokens, columns]
  float* magnitudes;
  long long columns;
  int topk;
};

static_assert(sizeof(MoeReferenceTile) == 12 && GEMMTUNE_OFFSET(MoeReferenceArguments, values) == 80 &&
                  GEMMTUNE_OFFSET(MoeReferenceArguments, ldx) == 128 &&
                  GEMMTUNE_OFFSET(MoeReferenceArguments, tile_count) == 176 &&
                  GEMMTUNE_OFFSET(MoeReferenceArguments, format) == 184 &&
                  sizeof(MoeReferenceArguments) == 208 &&
                  GEMMTUNE_OFFSET(MoeReferenceSumArguments, columns) == 40 &&
                  sizeof(MoeReferenceSumArguments) == 56,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
