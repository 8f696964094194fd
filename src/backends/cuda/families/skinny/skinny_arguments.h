// What the skinny kernel is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/cuda/families/hopper_arguments.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct SkinnyConfig {
  int block_m;    // rows of the weight: 64, 128
  int block_n;    // rows that x is padded to: 8, 16, 32, 64
  int k_atoms;    // block_k in units of 128 bytes
  int promotion;  // 1: partial sums of 128 elements of k are added to float32 registers; 0: the tensor core accumulates over all of k
  bool packed;    // the weight has the layout tile64x128
};

struct SkinnyArguments {
  TensorMap w;                  // boxes of block_m rows x 128 bytes
  TensorMap x;                  // boxes of min(m, block_n) rows x 128 bytes
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  gemmtune::gpu::ScalesArguments scales;
  GEMMTUNE_OUTPUT* y;  // [m, ldy]
  long long ldy;
  long long y_batch_step;  // elements; not read without batches
  int m, n;
  int num_stages;
  int split_k;           // blocks of a cluster
  int k_tiles;           // of a block, block_k elements each; elements past the end of k read as zero
  int extra_k_tiles;     // the first blocks of the cluster, this many, have one k tile more
  int max_row_groups;    // groups of 8 weight rows that a block reduces, at most
  int dependent_launch;  // 1: the kernel may load the weight, and nothing else, before the previous kernel
                         // has ended
  int prefetch_k_tiles;  // of the weight, into L2, before griddepcontrol.wait returns,
  int prefetch_blocks;   // by the first blocks of the grid, which start at once
  unsigned long long
      first_row_groups;  // 5 bits for each block of the cluster: the first group that it reduces
  PackedWeight packed;   // replaces `w` if packed
};

static_assert(GEMMTUNE_OFFSET(SkinnyArguments, x) == 128 && GEMMTUNE_OFFSET(SkinnyArguments, bias) == 256 &&
                  GEMMTUNE_OFFSET(SkinnyArguments, ldy) == 304 &&
                  GEMMTUNE_OFFSET(SkinnyArguments, num_stages) == 328 &&
                  GEMMTUNE_OFFSET(SkinnyArguments, prefetch_blocks) == 356 &&
                  GEMMTUNE_OFFSET(SkinnyArguments, first_row_groups) == 360 &&
                  GEMMTUNE_OFFSET(SkinnyArguments, packed) == 368 && sizeof(SkinnyArguments) == 384,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
