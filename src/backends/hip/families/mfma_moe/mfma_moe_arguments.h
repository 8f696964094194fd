// What the mfma_moe kernel is compiled for, one stage of a mixture of experts, and its arguments. The host includes this file too.
#pragma once

#include "backends/gpu/device/types_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"

namespace gemmtune::hip {

/// Beside MfmaConfig.
struct MfmaMoeConfig {
  int number;          // of the stage: 1, 2
  bool gated;          // half of the weight's rows are of the gate; of stage 1
  bool bias;           // experts have one; of stage 1
  bool weighted;       // routing weights scale gate and up; of stage 1
  gpu::Scales scales;  // none; rows, also of matrices; blocks
};

struct MfmaMoeArguments {
  const unsigned char* x;  // stage 1: [tokens, x_line_bytes]; stage 2: the hidden layer, by position
  const unsigned char* w;  // [experts, rows, k]
  void* to;                // [pairs, columns] by position
  const int* pair_of;
  const gpu::MoeTile* tiles;
  const int* tile_count;
  const int* tiles_of;
  const float* weights;  // routing weights by pair, if weighted
  const float*
      x_scales;  // row r (token, position) at k: x_scales[r * x_scale_step + k / 128 * x_scale_k_step]
  const float* w_scales;  // row r of an expert at k: [r / w_scale_rows * w_scale_columns + k / 128]
  long long x_line_bytes;
  long long k_bytes;         // of a row's elements
  long long w_matrix_bytes;  // from expert to expert
  long long w_scale_matrix;  // elements from expert to expert
  long long x_scale_k_step;
  int x_scale_step;
  int w_scale_rows;
  int w_scale_columns;
  int topk;
  int columns;        // of `to`, a multiple of 4
  int column_tiles;   // tiles of the weight's rows
  int xcds;           // dies that blocks are dealt to in turn
  const float* bias;  // stage 1: [experts, rows of w1], if there is one
};

static_assert(GEMMTUNE_OFFSET(MfmaMoeArguments, x_scales) == 64 &&
                  GEMMTUNE_OFFSET(MfmaMoeArguments, x_scale_step) == 120 &&
                  GEMMTUNE_OFFSET(MfmaMoeArguments, xcds) == 144 && sizeof(MfmaMoeArguments) == 160,
              "host and device layouts differ");

}  // namespace gemmtune::hip
