// What the wgmma kernel is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/cuda/families/hopper_arguments.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct WgmmaConfig {
  int block_m;  // rows of A in a tile
  int block_n;  // rows of B, a multiple of 16; of an MN-major B of 64
  int consumer_warpgroups;
  bool ping_pong;
  bool swap_ab;         // A is the weight, B is x
  int split_k;          // blocks of the cluster that divide k
  bool single_tile;     // each block computes one tile: the kernel is not persistent
  int staging_buffers;  // 1 or 2: of each warp, for results
  bool whole_staging;   // there are enough of them for a tile
  bool multicast;       // blocks of the cluster share operands
  int k_atoms;          // block_k in units of 128 bytes
  // Sets of partial sums that are added to float32 registers after every 128 of k; 0: the tensor core accumulates
  // over all of k.
  int promotion;
  int n_slices;            // instructions along block_n: 1; with promotion 1: 1 or 2
  int producer_registers;  // of a thread after a reallocation, for which the producer is a warp group; 0: none
  int consumer_registers;
  bool bias;
  bool packed;  // the weight has the layout tile64x128
  // The operand is column-major in global memory and MN-major in shared memory; of two-byte elements.
  bool a_mn_major;
  bool b_mn_major;
  bool last_x;  // the last of several tiles of x has boxes of its own
};

/// A divisor that the host knows: floor(n / divisor) for n below 2^31 is the upper half of n * multiplier,
/// shifted right.
struct FastDivisor {
  int divisor;
  unsigned multiplier;  // 0: the divisor is 1
  unsigned shift;
};

// The fields that a block reads first are adjacent: a line of constant memory that is not cached costs
// hundreds of cycles.
struct WgmmaArguments {
  int num_stages;
  int storage_bytes;     // of the pipeline and the staging buffers; the barriers follow
  int k_tiles;           // block_k elements each; elements past the end of k read as zero
  int dependent_launch;  // 1: the kernel may load the weight, and nothing else, before the previous kernel
                         // has ended
  int log2_cluster_m;
  int log2_cluster_n;
  int empty_arrivals;    // on a stage's empty barrier, for each phase
  int prefetch_k_tiles;  // of the weight, into L2, before griddepcontrol.wait returns
  int tiles;             // output tiles of a cluster, of all batches
  int full_groups;  // groups of group_m tiles along A's rows; consecutive tiles of a group share operands in
                    // L2
  FastDivisor group_tiles;   // tiles of a full group
  FastDivisor group_m;       // tiles along A's rows in a full group
  FastDivisor last_group_m;  // in the incomplete last group
  FastDivisor batch_tiles;   // tiles of a batch; not read without batches
  int use_tma_store;         // 1: y and its rows are aligned to 16 bytes
  int m, n;
  long long ldy;
  long long y_batch_step;       // elements; not read without batches
  GEMMTUNE_OUTPUT* y;           // [m, ldy]
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; not read without a bias
  gemmtune::gpu::ScalesArguments scales;
  PackedWeight packed;  // replaces the weight's tensor map if packed
  int scale_groups;     // places for groups of scales of blocks; 0 without these
  int scale_maps;       // 1: they come through x_scales and w_scales
  int x_box_rows;       // that a block loads of a row-major x for a tile
  int loaded_bytes;     // of a stage
  int last_x_row;       // with last_x where the last tile of x begins,
  int last_x_box_rows;  // and the two above of tiles from there on
  int last_loaded_bytes;
  // Boxes of rows x 128 bytes, of x x_box_rows, of the weight block_m / cluster_n or block_n / cluster_m. MN-major: 64 / cluster_n
  // (b: cluster_m) k x 64 rows.
  TensorMap a;
  TensorMap b;
  TensorMap y_map;       // boxes of 128 bytes of y's rows
  TensorMap y_tail_map;  // boxes of the tile's columns past the last multiple of 128 bytes
  TensorMap x_scales;    // of blocks: boxes of a tile's rows x four scales
  TensorMap w_scales;
  TensorMap last_x;  // with last_x as that of x, with boxes of last_x_box_rows
};

static_assert(sizeof(FastDivisor) == 12, "host and device layouts differ");
static_assert(GEMMTUNE_OFFSET(WgmmaArguments, group_tiles) == 40 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, use_tma_store) == 88 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, ldy) == 104 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, scales) == 136 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, packed) == 168 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, scale_groups) == 184 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, a) == 256 && GEMMTUNE_OFFSET(WgmmaArguments, b) == 384 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, y_map) == 512 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, y_tail_map) == 640 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, w_scales) == 896 &&
                  GEMMTUNE_OFFSET(WgmmaArguments, last_x) == 1024 && sizeof(WgmmaArguments) == 1152,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
