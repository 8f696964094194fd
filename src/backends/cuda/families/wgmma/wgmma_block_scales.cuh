// Scales of blocks (Scales::blocks), in groups of four k atoms: a row's scales of a group are 16 bytes. They come to shared memory beside the operands and
// complete on a barrier of the group; the consumers read them when they add partial sums. If rows of scales are aligned to 16 bytes, the operands'
// producer loads a group through TMA; else a second producer warp copies it.
#pragma once

#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_producer.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"
#include "backends/gpu/device/scales.cuh"

enum : int {
  X_ROWS = rows_of(x_operand()),
  W_ROWS_STEP = WEIGHT_ROWS & -WEIGHT_ROWS,
  // Blocks that a tile's rows of w may be of, wherever the first of them is: it is a multiple of WEIGHT_ROWS.
  WEIGHT_BLOCKS =
      ((W_ROWS_STEP < SCALE_BLOCK ? SCALE_BLOCK - W_ROWS_STEP : 0) + WEIGHT_ROWS + SCALE_BLOCK - 1) / SCALE_BLOCK,
  // Of a group: four scales for each row of x, then four for each block of w; wgmma_launch_config.h computes the same.
  GROUP_ROWS = X_ROWS + WEIGHT_BLOCKS,
  ROW_SCALES_BYTES = GROUP_ATOMS * 4,
  GROUP_SCALES_BYTES = scales_blocks() ? (GROUP_ROWS * ROW_SCALES_BYTES + 127) / 128 * 128 : 0,
  LANE_ROWS = (GROUP_ROWS + 31) / 32,  // of a group, for each lane of the warp that copies them
};

// Groups have no empty barriers: there are so many places for them (a.scale_groups) that whoever may write to the stage of a group's first atom may also
// write to the group's place. With multicast a stage is released when the tensor core has read it, and a warp may read its scales later, but not
// later than the release after the next.
static __device__ __forceinline__ unsigned group_scales(const SharedLayout& smem, int group) {
  return smem.scales + (unsigned)group * GROUP_SCALES_BYTES;
}

// Loads the group whose first atom is `k_atom` through TMA. What is past the ends of the scales reads as zero, and is of no product that is stored.
static __device__ __forceinline__ void load_group_scales(const WgmmaArguments& a, const SharedLayout& smem,
                                                         const Tile& tile, int k_atom, int group,
                                                         unsigned long long x_policy, unsigned long long w_policy) {
  const unsigned barrier = smem.scale_barriers + 8u * (unsigned)group;
  const unsigned to = group_scales(smem, group);
  barrier_arrive_expect_tx(barrier, GROUP_ROWS * ROW_SCALES_BYTES);
  tma_load(to, &a.x_scales, k_atom, SWAP_AB ? tile.b : tile.a, barrier, x_policy, 0);
  tma_load(to + X_ROWS * ROW_SCALES_BYTES, &a.w_scales, k_atom, (SWAP_AB ? tile.a : tile.b) / SCALE_BLOCK, barrier,
           w_policy, 0);
}

// A tile's first row of scales of x and the first block's of w, and how many follow each.
struct TileScales {
  const scale_bits* x;
  const scale_bits* w;
  int after_x, after_w;
};

static __device__ __forceinline__ TileScales tile_scales(const WgmmaArguments& a, const Tile& tile) {
  const int x_row = at_most(SWAP_AB ? tile.b : tile.a, a.m - 1);
  const int last_w = (a.n - 1) / SCALE_BLOCK;
  const int w_row = at_most((SWAP_AB ? tile.a : tile.b) / SCALE_BLOCK, last_w);
  return {(const scale_bits*)a.scales.x + x_row * a.scales.x_row_step,
          (const scale_bits*)a.scales.w + w_row * a.scales.w_row_step, a.m - 1 - x_row, last_w - w_row};
}

// A lane's row `i`, whose place in a group is i * 32 + lane, at k atom `k_atom`.
static __device__ __forceinline__ const scale_bits* lane_scale(const WgmmaArguments& a, const TileScales& scales, int i,
                                                               int k_atom) {
  const int at = i * 32 + (int)threadIdx.x % 32;
  const bool of_x = at < X_ROWS;
  const int rows = of_x ? at_most(at, scales.after_x) : at_most(at - X_ROWS, scales.after_w);
  return (of_x ? scales.x : scales.w) + (unsigned)rows * (unsigned)a.scales.x_row_step + k_atom;
}

static __device__ __forceinline__ bool is_lane_row(int i) { return i * 32 + (int)threadIdx.x % 32 < GROUP_ROWS; }

// The four e8m0 scales from `from` on, the first in the lowest byte. `words`: they are aligned. `more`: atoms that follow the first.
static __device__ __forceinline__ unsigned load_four_scales(const scale_bits* from, bool words, int more) {
  unsigned four = 0;
  if (words) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(four) : "l"(from) : "memory");
    return four;
  }
#pragma unroll 1
  for (int atom = GROUP_ATOMS - 1; atom >= 0; --atom) {
    unsigned bits;
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(bits) : "l"(from + at_most(atom, more)) : "memory");
    four = four << 8 | bits;
  }
  return four;
}

// Copies the group whose first atom is `k_atom` to `to`. All lanes of the warp; float32 scales are copied asynchronously, e8m0 ones are converted. A group may
// have atoms past the end of k, which have the last one's scales.
static __device__ __forceinline__ void copy_group_scales(const WgmmaArguments& a, const TileScales& scales, int k_atom,
                                                         unsigned to, unsigned barrier) {
  const unsigned own = to + (unsigned)(threadIdx.x % 32 * ROW_SCALES_BYTES);
  const int more = at_most((int)a.scales.x_row_step - 1 - k_atom, GROUP_ATOMS - 1);
  if constexpr (types().e8m0) {
    const bool words =
        ((unsigned long long)scales.x | (unsigned long long)scales.w | (unsigned long long)a.scales.x_row_step) %
            GROUP_ATOMS ==
        0;
    constexpr int at_once = LANE_ROWS < 5 ? LANE_ROWS : 5;  // with more the producer's registers spill
#pragma unroll 1
    for (int first = 0; first < LANE_ROWS; first += at_once) {
      unsigned rows[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        rows[i] = load_four_scales(lane_scale(a, scales, first + i, k_atom), words, more);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (is_lane_row(first + i))
          store_shared_floats(own + (unsigned)((first + i) * 32 * ROW_SCALES_BYTES), e8m0_to_float(rows[i] & 255u),
                              e8m0_to_float(rows[i] >> 8 & 255u), e8m0_to_float(rows[i] >> 16 & 255u),
                              e8m0_to_float(rows[i] >> 24));
      }
    }
    barrier_arrive(barrier);
  } else {
#pragma unroll 1
    for (int i = 0; i < LANE_ROWS; ++i) {
      if (!is_lane_row(i)) continue;
      const scale_bits* const from = lane_scale(a, scales, i, k_atom);
#pragma unroll
      for (int atom = 0; atom < GROUP_ATOMS; ++atom)
        copy_float(own + (unsigned)(i * 32 * ROW_SCALES_BYTES + atom * 4), (const float*)from + at_most(atom, more));
    }
    arrive_after_copies(barrier);
  }
}

// The warp that copies scales: those of all of the block's tiles.
static __device__ inline void copy_scales(const WgmmaArguments& a, const SharedLayout& smem, const BlockWork& work) {
  grid_dependency_wait();
  int stage = 0;
  unsigned phase = 1;
  int group = 0;
  for (int round = 0; tile_index(a, round) < a.tiles; ++round) {
    const TileScales scales = tile_scales(a, tile_at(a, tile_index(a, round), work.rank_m, work.rank_n));
#pragma unroll 1
    for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
      // For each stage: a warp that is two phases ahead would take one for the other.
      barrier_wait(smem.empty_barriers + 8u * (unsigned)stage, phase);
      if (begins_group(work, k_tile)) {
        copy_group_scales(a, scales, (int)((unsigned)k_tile / GROUP_STAGES) * GROUP_ATOMS, group_scales(smem, group),
                          smem.scale_barriers + 8u * (unsigned)group);
        if (++group == a.scale_groups) group = 0;
      }
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
  }
  wait_for_all_copies();
}

// Scales at one k atom. SWAP_AB: A has one for each 64 rows, B one for each column of the thread; else A has one for each row of the thread, B
// one for each block of the columns.
enum : int {
  A_SCALES = MMA_TILES * (SWAP_AB ? 1 : 2),
  B_SCALES = SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS,
};
struct BlockScales {
  float a[A_SCALES];
  float b[B_SCALES];
};

// A thread's rows within a group: bytes from the group's first.
struct BlockScalesAt {
  unsigned a[A_SCALES];
  unsigned b;
  int second_block;  // the first column of the second block
};

// `row`: the warp group's first within the tile.
static __device__ __forceinline__ BlockScalesAt block_scales_at(const Tile& tile, int row) {
  BlockScalesAt at;
  if constexpr (config().swap_ab) {
#pragma unroll
    for (int r = 0; r < MMA_TILES; ++r)
      at.a[r] = ROW_SCALES_BYTES * (unsigned)(X_ROWS + (tile.a % SCALE_BLOCK + row + r * 64) / SCALE_BLOCK);
    at.b = ROW_SCALES_BYTES * (unsigned)(threadIdx.x % 4 * 2);
  } else {
#pragma unroll
    for (int i = 0; i < MMA_TILES * 2; ++i)
      at.a[i] = ROW_SCALES_BYTES * (unsigned)(row + first_row_of_thread() + i / 2 * 64 + i % 2 * 8);
    at.b = ROW_SCALES_BYTES * X_ROWS;
  }
  at.second_block = SCALE_BLOCK - tile.b % SCALE_BLOCK;
  return at;
}

// `atom`: address of the first row's scale of the k atom.
static __device__ __forceinline__ BlockScales block_scales(const BlockScalesAt& at, unsigned atom) {
  BlockScales scales;
#pragma unroll
  for (int i = 0; i < A_SCALES; ++i) scales.a[i] = load_shared_float(atom + at.a[i]);
#pragma unroll
  for (int i = 0; i < B_SCALES; ++i)
    scales.b[i] = load_shared_float(atom + at.b + ROW_SCALES_BYTES * (unsigned)(SWAP_AB ? i / 2 * 8 + i % 2 : i));
  return scales;
}

// The scale of accumulator i of tile r.
static __device__ __forceinline__ float block_scale(const BlockScales& scales, const BlockScalesAt& at, int r, int i) {
  if constexpr (config().swap_ab) return scales.a[r] * scales.b[i / 4 * 2 + i % 2];
  const float of_a = scales.a[r * 2 + i % 4 / 2];
  // Columns that are in one block wherever the tile begins: they share the choice. The first of them are always in the first block.
  const int column = i / 4 * 8 / W_ROWS_STEP * W_ROWS_STEP;
  float scale = of_a * scales.b[0];
#pragma unroll
  for (int block = 1; block < WEIGHT_BLOCKS; ++block) {
    if (column > 0 && column >= at.second_block + (block - 1) * SCALE_BLOCK) scale = of_a * scales.b[block];
  }
  return scale;
}
