// What the moe_decode kernel, a whole layer of a mixture of experts for few tokens, is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/cuda/families/weight_format_arguments.h"
#include "backends/gpu/device/types_arguments.h"
#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct MoeDecodeConfig {
  gemmtune::gpu::Element hidden;  // f16, bf16: what the hidden layer is stored as
  int warps;                      // consumers
  int teams;         // that they are divided into: each has every teams-th unit of w1, and all of its k
  int hidden_teams;  // the same of experts' w2
  int row_bytes;     // of w1
  int slab;          // k of a row of w1 in a stage, in atoms: 128 bytes, of strips 32
  int hidden_bytes;  // of a row of w2
  int hidden_slab;   // k of a row of w2 in a stage
  int entries;       // of w2 in a stage; with whole rows more than one
  int stage_bytes;
  int slots;      // for the warps' sums of a unit of the first product
  int tiles;      // maximum number of tiles of 16 rows of w2 that a block has
  int grid;       // blocks
  bool weighted;  // routing weights scale the first product
  bool bias;
  bool strips;        // weights of 4 bits; a stage is a strip of whole rows, their scales and zero points
  bool tokens_fp8;    // of MXFP4: x is fp8 with a scale each
  bool hidden_ahead;  // the hidden layer of the next w2 is loaded while this one's is multiplied
  // Of strips, in shared memory: bytes from row to row of w1, of its scales and of its zero points; the same of w2.
  int pitch;
  int scale_pitch;
  int zero_pitch;
  int hidden_pitch;
  int hidden_scale_pitch;
  int hidden_zero_pitch;
  WeightFormat weight;
  int group;         // of int4: elements of k with a scale: 32, 64, 128
  bool zero_points;  // of int4
};

struct MoeDecodeArguments {
  const unsigned char* w;   // w1 of all experts; of a gated one the gate's rows come first
  const unsigned char* w2;  // of all experts
  const unsigned char* x;   // [tokens, k], rows of x_row_bytes bytes, a multiple of 16
  const int* ids;           // [tokens, topk - shared]
  const float* weights;     // as ids
  // Scale of element (row, k) of an expert: [expert * matrix + row of scales * columns + k / 128].
  const float* x_scales;
  const float* w_scales;
  const float* w2_scales;
  const float* bias;       // [experts, rows of w1] (bias)
  const float* bias2;      // [experts, rows of w2] (bias)
  unsigned short* hidden;  // [entries, tokens, features]
  unsigned* counters;      // of the grid's barrier (grid_barrier.cuh)
  GEMMTUNE_OUTPUT* y;      // [tokens, ldy]
  long long ldy;
  long long x_row_bytes;
  long long w_scale_matrix;
  long long w2_scale_matrix;
  int x_scale_columns;
  int w_scale_columns;
  int w2_scale_columns;
  int tokens;
  int topk;
  int shared;  // the last slots of a token, of the last experts
  int experts;
  int features;  // of the hidden layer
  int rows;      // of w2
  int groups;    // units of w1's rows of an expert
  int num_stages;
  gpu::FormatArguments format;  // of w1 by expert, of NVFP4 and int4 weights
  gpu::FormatArguments format2;
};

static_assert(GEMMTUNE_OFFSET(MoeDecodeArguments, x) == 16 &&
                  GEMMTUNE_OFFSET(MoeDecodeArguments, ldy) == 104 &&
                  GEMMTUNE_OFFSET(MoeDecodeArguments, x_scale_columns) == 136 &&
                  GEMMTUNE_OFFSET(MoeDecodeArguments, format) == 184 && sizeof(MoeDecodeArguments) == 232,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
