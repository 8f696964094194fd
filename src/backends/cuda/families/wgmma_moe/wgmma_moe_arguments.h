// What the wgmma_moe kernel, one stage of a mixture of experts, is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/cuda/families/weight_format_arguments.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/device/types_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"

namespace gemmtune::cuda {

struct WgmmaMoeConfig {
  int stage;          // 1, 2
  bool fp4;           // weights of 4 bits, decoded behind shared memory; stages of 256 of k
  bool token_scales;  // of MXFP4: tokens of stage 1 have a scale each,
  float token_unit;   // and the unit of their elements
  int block_rows;     // of A: 64, 128, 256
  int block_tokens;   // of B
  int staged_tokens;  // at once in the epilogue
  bool quantizes;     // stage 1 stores fp8 and its scales, tiles being of 128 columns
  int min_width;      // tokens of the narrowest instructions
  int consumer_warpgroups;
  int k_atoms;  // block_k in units of 128 bytes
  // 1, 2. The blocks of a cluster of two compute neighbouring halves of a tile's tokens with the same rows of the
  // weight, of which each loads a half for both by multicast.
  int cluster;
  bool sort;               // each block sorts the pairs itself
  int blocks;              // of a multiprocessor
  int producer_registers;  // of a thread; 0: as compiled
  int consumer_registers;
  bool bias;
  bool weighted;        // stage 1 multiplies gate and up by routing weights
  WeightFormat weight;  // of fp4
  int group;            // of int4: elements of k with a scale: 32, 64, 128
  bool zero_points;     // of int4
  gpu::Element scales;  // of int4: f16, bf16
  bool scaled;          // of int4: elements are multiplied by their scales and rounded
};

struct WgmmaMoeArguments {
  TensorMap w;             // of all experts
  TensorMap hidden;        // stage 2: [pairs, k]
  const unsigned char* x;  // stage 1: [tokens, k], rows of x_row_bytes bytes
  void* to;                // [pairs, columns] by position
  const int* pair_of;
  const gpu::MoeTile* tiles;
  int* tile_count;  // then for each stage the work items that its blocks took from it
  const int* tiles_of;
  const float* weights;   // stage 1: routing weights by pair that scale gate and up (weighted)
  const float* x_scales;  // token t at k: x_scales[t * x_scale_step + k / 128 * x_scale_k_step]
  const float*
      w_scales;  // row r of an expert at k: [r / w_scale_rows * w_scale_columns + k / 128]; of 4 bits as the problem's
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
  // Of a weight of 4 bits: units of 128 of k; rows of w1's half or of w2; power of two that scales are aligned to.
  int k_units;
  int features;
  int w_scale_alignment;
  // Of blocks that sort: what they sort, and for stage 1 where positions by pair go (−1: no expert).
  int pairs;
  int experts;
  const int* ids;
  int* position_of;
  const float* bias;            // stage 1: [experts, rows of w1] (bias)
  float* to_scales;             // stage 1: of 128 columns of `to`, [columns / 128, pairs] (quantizes)
  gpu::FormatArguments format;  // of NVFP4 and int4 weights, by expert
};

static_assert(GEMMTUNE_OFFSET(WgmmaMoeArguments, x) == 256 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, x_row_bytes) == 328 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, x_scale_step) == 352 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, storage_bytes) == 388 &&
                  GEMMTUNE_OFFSET(WgmmaMoeArguments, format) == 448 && sizeof(WgmmaMoeArguments) == 512,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
