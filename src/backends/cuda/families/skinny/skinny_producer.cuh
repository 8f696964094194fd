// The layout of shared memory and the producer thread of the skinny kernel.
#pragma once

#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/skinny/skinny_arguments.h"
#include "backends/gpu/device/numbers.cuh"

using gemmtune::cuda::SkinnyArguments;

static __device__ constexpr gemmtune::cuda::SkinnyConfig config() { return CONFIG; }

enum : int {
  SWAP_AB = 1,
  BLOCK_N = config().block_n,
  MMA_TILES = config().block_m / 64,  // of 64 rows, one instruction each
  ROW_GROUPS = config().block_m / 8,  // groups of 8 weight rows, which the split-K reduction distributes
  W_ATOM_BYTES = config().block_m * ATOM_BYTES,
  X_ATOM_BYTES = BLOCK_N * ATOM_BYTES,
  STAGE_BYTES = config().k_atoms * (W_ATOM_BYTES + X_ATOM_BYTES),
  CONSUMER_THREADS = 128,
};

enum NamedBarrier { consumers_barrier = 1 };

static __device__ inline int first_row_group(const SkinnyArguments& a, int block) {
  return (int)(a.first_row_groups >> (5 * block)) & 31;
}

// Addresses in shared memory.
struct SharedLayout {
  unsigned pipeline;  // num_stages x STAGE_BYTES; a stage holds K_ATOMS atoms of the weight, then K_ATOMS atoms of x
  unsigned
      exchange;  // partial sums, float [split_k][max_row_groups][8 rows][PARTIALS_PITCH]; without split-K a tile of y
  unsigned full_barriers;  // one for each stage
  unsigned empty_barriers;
  unsigned partials_barrier;  // completes when the partial sums of all blocks have arrived
};

// A batch is a row of the grid.
static __device__ inline int batch_of_block() { return types().batched ? (int)blockIdx.y : 0; }
static __device__ inline output* y_of_block(const SkinnyArguments& a) {
  return types().batched ? a.y + batch_of_block() * a.y_batch_step : a.y;
}

// L2 eviction policies: the weight is read once, x by every block.
struct Policies {
  unsigned long long w, x;
};
static __device__ inline Policies make_policies() {
  Policies policies;
  policies.w = evict_first();
  policies.x = evict_last();
  return policies;
}

// Offset in a stage of 64 rows, the r-th of the tile, of k atom i. The k atoms of a packed tile (64 rows) are contiguous, in a stage as in memory.
static __device__ constexpr int weight_offset(int r, int i) {
  return config().packed ? (r * config().k_atoms + i) * (64 * ATOM_BYTES) : i * W_ATOM_BYTES + r * (64 * ATOM_BYTES);
}
// Rows past the last tile of a packed weight are replaced by rows of the last tile; their products are not stored.
static __device__ inline const unsigned char* packed_atoms(const SkinnyArguments& a, int row, int k_tile, int r) {
  int tile = row / 64 + r;
  if (config().block_m > 64 && tile >= a.packed.tiles) tile = a.packed.tiles - 1;
  return a.packed.data + ((long long)tile * a.packed.k_atoms + k_tile * config().k_atoms) * (64 * ATOM_BYTES);
}

// Loads k atom i of the weight, and of x, of one stage.
static __device__ inline void load_weight(const SkinnyArguments& a, const SharedLayout& smem, const Policies& policies,
                                          int row, int k_tile, int stage, int i) {
  const unsigned to = smem.pipeline + (unsigned)stage * STAGE_BYTES;
  const unsigned barrier = smem.full_barriers + 8u * (unsigned)stage;
  if constexpr (config().packed) {
    if (i > 0) return;
#pragma unroll
    for (int r = 0; r < config().block_m / 64; ++r)
      bulk_load(to + weight_offset(r, 0), packed_atoms(a, row, k_tile, r), config().k_atoms * 64 * ATOM_BYTES, barrier,
                0, policies.w);
  } else {
    tma_load(to + weight_offset(0, i), &a.w, (k_tile * config().k_atoms + i) * ATOM_ELEMENTS, row, barrier, policies.w,
             batch_of_block());
  }
}
static __device__ inline void load_x(const SkinnyArguments& a, const SharedLayout& smem, const Policies& policies,
                                     int k_tile, int stage, int i) {
  tma_load(smem.pipeline + (unsigned)stage * STAGE_BYTES + config().k_atoms * W_ATOM_BYTES + (unsigned)i * X_ATOM_BYTES,
           &a.x, (k_tile * config().k_atoms + i) * ATOM_ELEMENTS, 0, smem.full_barriers + 8u * (unsigned)stage,
           policies.x, batch_of_block());
}

// Of a stage: rows of x that the matrix does not have are not loaded, what their memory holds goes into columns of the product that are not stored.
static __device__ inline unsigned expected_bytes(const SkinnyArguments& a) {
  return (unsigned)(config().k_atoms * (W_ATOM_BYTES + (a.m < BLOCK_N ? a.m : BLOCK_N) * ATOM_BYTES));
}

static __device__ inline void load_stage(const SkinnyArguments& a, const SharedLayout& smem, const Policies& policies,
                                         int row, int k_tile, int stage) {
  barrier_arrive_expect_tx(smem.full_barriers + 8u * (unsigned)stage, expected_bytes(a));
#pragma unroll
  for (int i = 0; i < config().k_atoms; ++i) {
    load_weight(a, smem, policies, row, k_tile, stage, i);
    load_x(a, smem, policies, k_tile, stage, i);
  }
}

// Prefetches the weight of one k tile into L2.
static __device__ inline void prefetch_weight(const SkinnyArguments& a, const Policies& policies, int row, int k_tile) {
  if constexpr (config().packed) {
#pragma unroll
    for (int r = 0; r < config().block_m / 64; ++r)
      bulk_prefetch(packed_atoms(a, row, k_tile, r), config().k_atoms * 64 * ATOM_BYTES, policies.w);
  } else {
#pragma unroll
    for (int i = 0; i < config().k_atoms; ++i)
      tma_prefetch(&a.w, (k_tile * config().k_atoms + i) * ATOM_ELEMENTS, row, policies.w, batch_of_block());
  }
}
static __device__ inline void prefetch_weight_ahead(const SkinnyArguments& a, const Policies& policies, int row,
                                                    int begin, int end) {
  if ((int)(blockIdx.x + (types().batched ? blockIdx.y * gridDim.x : 0)) >= a.prefetch_blocks) return;
  if (end > begin + a.prefetch_k_tiles) end = begin + a.prefetch_k_tiles;
#pragma unroll 1
  for (int k_tile = begin; k_tile < end; ++k_tile) prefetch_weight(a, policies, row, k_tile);
}

// Fills the pipeline's stages for the first time, without waiting for empty barriers: x right after each part of the weight, so that the
// first product does not wait for all of the first weights. A dependent launch loads the weight of all stages while the previous kernel
// still runs; x follows after the grid dependency.
static __device__ inline void fill_pipeline(const SkinnyArguments& a, const SharedLayout& smem, int row, int begin,
                                            int end) {
  const Policies policies = make_policies();
  const int filled = end - begin < a.num_stages ? end - begin : a.num_stages;
  if (!a.dependent_launch) {
    prefetch_weight_ahead(a, policies, row, begin, end);
    grid_dependency_wait();
#pragma unroll 1
    for (int stage = 0; stage < filled; ++stage) load_stage(a, smem, policies, row, begin + stage, stage);
    return;
  }
#pragma unroll 1
  for (int stage = 0; stage < filled; ++stage) {
    barrier_arrive_expect_tx(smem.full_barriers + 8u * (unsigned)stage, expected_bytes(a));
#pragma unroll
    for (int i = 0; i < config().k_atoms; ++i) load_weight(a, smem, policies, row, begin + stage, stage, i);
  }
  prefetch_weight_ahead(a, policies, row, begin + filled, end);
  grid_dependency_wait();
#pragma unroll 1
  for (int stage = 0; stage < filled; ++stage) {
#pragma unroll
    for (int i = 0; i < config().k_atoms; ++i) load_x(a, smem, policies, begin + stage, stage, i);
  }
}

// The remaining k tiles: refills each stage after its empty barrier has completed.
static __device__ inline void refill_pipeline(const SkinnyArguments& a, const SharedLayout& smem, int row, int begin,
                                              int end) {
  const Policies policies = make_policies();
  PipelineState state = {0, 0};
#pragma unroll 1
  for (int k_tile = begin + a.num_stages; k_tile < end; ++k_tile) {
    barrier_wait(smem.empty_barriers + 8u * (unsigned)state.stage, state.phase);
    load_stage(a, smem, policies, row, k_tile, state.stage);
    next_stage(state, a.num_stages);
  }
}
