// What the mxfp4 kernel is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/cuda/families/weight_format_arguments.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct Mxfp4Config {
  int warpgroups;  // consumers: 1, 2, 3
  int tiles;       // of 64 rows of the weight, of a warp group: 1, 2
  int block_n;     // rows of x
  bool together;   // fragments of several 16 of k are multiplied together
  int k_atoms;     // block_k in units of 64 elements: 2, 4, 8
  bool wide;  // two warp groups of consumers take registers from the producer, which is a warp group then
  bool send;  // blocks of a cluster send each other their partial sums
  bool mma;   // the instructions of a warp, for few rows of x; else those of a warp group
  bool row_scales;  // rows of x have scales, or all of it has one
  bool x_fp4;       // x was MXFP4, whose elements have a unit
  int rows_per_y;   // rows of x whose sums make a row of y: 2 if an fp16 row became two of bf16
  bool persistent;  // no split of k, and a block computes several tiles
  bool packed;      // the weight has the layout fragment64
  WeightFormat weight;
  int group;         // of int4: elements of k with a scale: 32, 64, 128; 0: all of a row
  bool zero_points;  // of int4
  bool rescaled;     // of groups of 128 of int4: sums are in units of the latest group's scale
  bool scaled;       // of groups of int4: elements are multiplied by their scales and rounded
  int stream;  // PERSISTENT: blocks of the grid, which divide the k of the tiles behind whole waves; 0: they do not
};

struct Mxfp4Arguments {
  TensorMap w;                     // plain: boxes of BLOCK_M rows x 128 bytes
  TensorMap x;                     // bf16, boxes of BLOCK_N rows x 128 bytes
  const unsigned char* fragments;  // replaces `w` if PACKED
  const unsigned char* scales;     // of rows of the weight
  const GEMMTUNE_OUTPUT* bias;     // [n], of y's type; null: none
  GEMMTUNE_OUTPUT* y;              // [m, ldy]
  const float* x_scales;           // of rows of x; without ROW_SCALES null
  long long ldy;
  int x_scale_step;     // from one row's to the next; 0: one for all
  int m, n;             // of y
  int w_tiles;          // of 64 rows
  int k_atoms;          // of 64 elements of k, of the whole weight
  int scale_row;        // bytes of a row's scales
  int scale_alignment;  // of rows of scales: 4, 2, 1 bytes
  int num_stages;
  int split_k;           // blocks of a cluster
  int k_tiles;           // of a block, BLOCK_K elements each; elements past the end of k read as zero
  int extra_k_tiles;     // the first blocks of the cluster, this many, have one k tile more
  int dependent_launch;  // 1: the kernel may load the weight and its scales before the previous kernel has ended
  int storage_bytes;     // of the pipeline, or of the partial sums in its place
  int prefetch_k_tiles;  // of the weight, into L2, before griddepcontrol.wait returns,
  int prefetch_blocks;   // by the first blocks of the grid, which start at once
  int exchange_bytes;  // of the partial sums that blocks send, or of the rows of y on their way to memory, behind it
  int tiles;           // of y
  int w_blocks;                 // of BLOCK_M rows
  int x_tiles;                  // of BLOCK_N rows of x
  int x_tiles_in_turn;          // PERSISTENT: of these neighbouring blocks have the same rows of the weight
  gpu::FormatArguments format;  // of formats other than mxfp4
  // STREAM, behind `whole_tiles`: k tiles of each block, of which the first `extra_tail` have one more.
  int whole_tiles;
  int tail_k_tiles;
  int extra_tail;
  unsigned* arrived;  // of each block 1 when its partial sums are in memory
  unsigned* barrier;  // the grid's (grid_barrier.cuh)
  float* partials;    // [blocks][BLOCK_M x BLOCK_N]
};

static_assert(GEMMTUNE_OFFSET(Mxfp4Arguments, x) == 128 &&
                  GEMMTUNE_OFFSET(Mxfp4Arguments, fragments) == 256 &&
                  GEMMTUNE_OFFSET(Mxfp4Arguments, m) == 308 &&
                  GEMMTUNE_OFFSET(Mxfp4Arguments, storage_bytes) == 352 &&
                  GEMMTUNE_OFFSET(Mxfp4Arguments, format) == 384 && sizeof(Mxfp4Arguments) == 512,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
