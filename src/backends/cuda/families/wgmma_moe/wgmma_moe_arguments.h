// Arguments of the wgmma_moe kernel, one stage of a mixture of experts. The host includes this file too.
#pragma once

#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"

namespace gemmtune::cuda {

struct WgmmaMoeArguments {
  TensorMap w;             // of all experts
  TensorMap hidden;        // stage 2: [pairs, k]
  const unsigned char* x;  // stage 1: [tokens, k], rows of x_row_bytes bytes
  void* to;                // [pairs, columns] by position
  const int* pair_of;
  const gpu::MoeTile* tiles;
  int* tile_count;  // then for each stage the work items that its blocks took from it
  const int* tiles_of;
  const float* weights;   // stage 1: routing weights by pair that scale gate and up (WEIGHTED)
  const float* x_scales;  // token t at k: x_scales[t * x_scale_step + k / 128 * x_scale_k_step]
  const float*
      w_scales;  // row r of an expert at k: [r / w_scale_rows * w_scale_columns + k / 128]; MXFP4: e8m0
  long long x_row_bytes;     // multiple of 16
  long long w_scale_matrix;  // elements from expert to expert
  long long x_scale_k_step;
  int x_scale_step;
  int w_scale_rows;
  int w_scale_columns;
  int topk;
  int k_bytes;  // of a row
  int k_tiles;
  int columns;       // of `to`
  int column_tiles;  // tiles of w's rows
  int num_stages;
  int storage_bytes;  // of the pipeline's stages and the staging buffers
  // Of an MXFP4 weight: units of 128 of k; rows of w1's half or of w2; power of two that scales are aligned to.
  int k_units;
  int features;
  int w_scale_alignment;
  // Of blocks that sort: what they sort, and for stage 1 where positions by pair go (−1: no expert).
  int pairs;
  int experts;
  const int* ids;
  int* position_of;
  const float* bias;  // stage 1: [experts, rows of w1] (BIAS)
  float* to_scales;   // stage 1: of 128 columns of `to`, [columns / 128, pairs] (QUANTIZES)
};

static_assert(GEMMTUNE_OFFSET(WgmmaMoeArguments, x) == 256 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, x_row_bytes) == 328 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, x_scale_step) == 352 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, storage_bytes) == 388 &&
                  sizeof(WgmmaMoeArguments) == 512,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
