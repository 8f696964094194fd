// What the mxfp4_stream kernel is compiled for, and its arguments: one stage of a mixture of experts. The host includes this file too.
#pragma once

#include "backends/cuda/families/weight_format_arguments.h"
#include "backends/gpu/device/types_arguments.h"
#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"

namespace gemmtune::cuda {

struct Mxfp4StreamConfig {
  int stage;          // 1, 2
  int warps;          // that multiply
  int teams;          // that they are divided into: each has every teams-th slab, and its warps divide k
  int strips;         // of 16 rows, of a slab, which a stage has
  int units;          // of 64 of k, of a warp
  bool wide;          // of NVFP4 and groups of 128: warps multiply two units at once
  int all_units;      // of a row
  bool tail;          // some warp has fewer
  int groups;         // of eight rows of x
  int blocks;         // of a multiprocessor
  bool bias;          // experts have one, which stage 1 adds and stage 2 prefetches for the sum
  bool token_scales;  // x_scales; of stage 1
  float token_unit;   // what sums are multiplied by
  bool rows_apart;    // rows of the weight have gaps in shared memory,
  bool scales_apart;  // and their scales
  bool zeros_apart;   // and their zero points
  bool sort;          // each block sorts the pairs itself
  WeightFormat weight;
  int group;                          // of int4: elements of k with a scale: 32, 64, 128
  bool zero_points;                   // of int4
  gemmtune::gpu::Element scale_type;  // of int4
};

struct Mxfp4StreamArguments {
  const unsigned char* w;       // plain, of all experts
  const unsigned char* scales;  // as many rows
  const unsigned short* x;      // bf16 or fp16; of stage 2 the hidden layer, by position
  GEMMTUNE_OUTPUT* to;          // by position
  long long x_row;              // elements
  long long to_row;             // elements
  long long w_matrix;           // bytes, from expert to expert
  long long scale_matrix;       // bytes, from expert to expert
  int row_bytes;                // of w
  int pitch;                    // of w's rows in shared memory
  int scale_row;                // bytes
  int scale_pitch;              // in shared memory
  int units;                    // of 64 of k
  int features;                 // rows of w; of a gated w1 half of them
  int slabs;                    // of an expert
  int num_stages;
  int num_slots;  // for the warps' sums of a slab
  int stage_bytes;
  int chunk;  // slabs of an expert that all its tiles compute before the next ones
  int x_scale_step;
  const int* pair_of;
  const gpu::MoeTile* tiles;
  const int* tile_count;
  const int* tiles_of;
  const float* weights;  // stage 1: routing weights by pair that scale gate and up; null: none
  const int* ids;        // of blocks that sort
  int* position_of;      // of blocks that sort, stage 1: positions by pair (−1: no expert)
  int topk;
  int pairs;
  int experts;
  const float* x_scales;        // stage 1: [tokens], or one with a step of 0 (TOKEN_SCALES)
  const float* bias;            // [experts, rows of w] (BIAS)
  gpu::FormatArguments format;  // of NVFP4 and int4 weights, by expert
  long long zero_matrix;        // bytes, from expert to expert
  int zero_row;                 // bytes
  int zero_pitch;               // in shared memory
};

static_assert(GEMMTUNE_OFFSET(Mxfp4StreamArguments, row_bytes) == 64 &&
                  GEMMTUNE_OFFSET(Mxfp4StreamArguments, pair_of) == 112 &&
                  GEMMTUNE_OFFSET(Mxfp4StreamArguments, topk) == 168 &&
                  GEMMTUNE_OFFSET(Mxfp4StreamArguments, bias) == 192 && sizeof(Mxfp4StreamArguments) == 240,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
