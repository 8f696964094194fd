// Tiles of the mxfp4 kernel, its shared memory, and the warp that loads stages of the weight and of x. What the host defines
// is in mxfp4.cu.
#pragma once

#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_arguments.h"

using gemmtune::cuda::Mxfp4Arguments;
using gemmtune::cuda::WeightFormat;

static __device__ constexpr gemmtune::cuda::Mxfp4Config config() { return CONFIG; }

enum : int {
  BLOCK_M = 64 * config().warpgroups * config().tiles,
  CONSUMER_THREADS = 128 * config().warpgroups,
  PRODUCER_THREADS = config().wide ? 128 : 32,   // the first warp loads
  FRAGMENT_BYTES = 2048,                         // of 64 rows x 64 of k
  W_BYTES = BLOCK_M * config().k_atoms * 32,     // of a stage
  X_ATOM_BYTES = config().block_n * ATOM_BYTES,  // of 64 of k
  STAGE_BYTES = W_BYTES + config().k_atoms * X_ATOM_BYTES,
  PITCH = BLOCK_M + 4,  // floats between rows of partial sums
};

// warpgroup_barrier is the first warp group's, those of the others follow.
enum NamedBarrier { consumers_barrier = 1, warpgroup_barrier = 2 };

typedef float Accumulators[config().tiles][config().block_n / 2];

enum : int {
  Y_ROWS = config().block_n / config().rows_per_y,  // of a tile
  UNITS = Y_ROWS * (BLOCK_M / 4),  // of four rows of the weight and one row of y, in which partial sums are exchanged
};

// Addresses in shared memory. Partial sums, float [Y_ROWS][PITCH], take the pipeline's place.
struct SharedLayout {
  unsigned pipeline;
  unsigned
      exchange;  // with SEND, the partial sums that the blocks of the cluster send to this one: [split_k][its units]
  unsigned partials_barrier;  // completes when they have arrived
  unsigned full_barriers;
  unsigned empty_barriers;
};

// The block's tile of y and its share of k, in k tiles.
struct BlockWork {
  int n, m;  // m: of x
  int begin, end;
  int tile;
  int tail_left;  // STREAM: end of what is left of the block's share of the tail; -1: it is not there yet
};

// Neighbouring tiles have the same rows of the weight, so that few are read from memory again.
static __device__ __forceinline__ void place_tile(const Mxfp4Arguments& a, BlockWork& work) {
  const int first = work.tile / (a.x_tiles_in_turn * a.w_blocks) * a.x_tiles_in_turn;
  const int left = work.tile - first * a.w_blocks;
  const int count = a.x_tiles - first < a.x_tiles_in_turn ? a.x_tiles - first : a.x_tiles_in_turn;
  work.n = left / count * BLOCK_M;
  work.m = (first + left % count) * config().block_n;
}

// STREAM: where the share of block `block` of the tail begins, in k tiles of all of its tiles.
static __device__ __forceinline__ int tail_begin(const Mxfp4Arguments& a, int block) {
  return block * a.tail_k_tiles + (block < a.extra_tail ? block : a.extra_tail);
}
// Takes pieces of the block's share of the tail, the last one first: other blocks wait for the sums of a piece that begins a tile.
static __device__ __forceinline__ bool next_piece(const Mxfp4Arguments& a, BlockWork& work) {
  const int begin = tail_begin(a, (int)blockIdx.x);
  const int end = work.tail_left < 0 ? tail_begin(a, (int)blockIdx.x + 1) : work.tail_left;
  if (end <= begin) return false;
  const int tile = (end - 1) / a.k_tiles;
  const int first = tile * a.k_tiles;
  work.tail_left = begin > first ? begin : first;
  work.begin = work.tail_left - first;
  work.end = end - first;
  work.tile = a.whole_tiles + tile;
  place_tile(a, work);
  return true;
}

// The grid has fewer blocks than tiles (PERSISTENT): a block computes several.
static __device__ __forceinline__ bool next_tile(const Mxfp4Arguments& a, BlockWork& work) {
  if (!config().persistent) return false;
  if (config().stream != 0 && work.tile + config().stream >= a.whole_tiles) return next_piece(a, work);
  work.tile += (int)gridDim.x;
  if (work.tile >= a.tiles) return false;
  place_tile(a, work);
  return true;
}

static __device__ __forceinline__ void load_weight(const Mxfp4Arguments& a, const SharedLayout& smem,
                                                   const BlockWork& work, int k_tile, int stage,
                                                   unsigned long long policy) {
  const unsigned to = smem.pipeline + (unsigned)stage * STAGE_BYTES;
  const unsigned barrier = smem.full_barriers + 8u * (unsigned)stage;
  if constexpr (config().packed) {
    // What lies past the last atom of k keeps an earlier stage's bits: x is zero there, and every element is finite.
    const int left = a.k_atoms - k_tile * config().k_atoms;
    const unsigned bytes = (unsigned)(left < config().k_atoms ? left : config().k_atoms) * FRAGMENT_BYTES;
    barrier_arrive_expect_tx(barrier, BLOCK_M / 64 * bytes + config().k_atoms * X_ATOM_BYTES);
#pragma unroll
    for (int r = 0; r < BLOCK_M / 64; ++r) {
      int tile = work.n / 64 + r;
      if (BLOCK_M > 64 && tile >= a.w_tiles) tile = a.w_tiles - 1;  // its products are not stored
      bulk_load(to + (unsigned)(r * config().k_atoms * FRAGMENT_BYTES),
                a.fragments + ((long long)tile * a.k_atoms + k_tile * config().k_atoms) * FRAGMENT_BYTES, bytes,
                barrier, 0, policy);
    }
  } else {
    barrier_arrive_expect_tx(barrier, STAGE_BYTES);
    tma_load(to, &a.w, k_tile * 128, work.n, barrier, policy);
  }
}

static __device__ __forceinline__ void load_x(const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work,
                                              int k_tile, int stage, unsigned long long policy) {
#pragma unroll
  for (int i = 0; i < config().k_atoms; ++i)
    tma_load(smem.pipeline + (unsigned)stage * STAGE_BYTES + W_BYTES + (unsigned)i * X_ATOM_BYTES, &a.x,
             (k_tile * config().k_atoms + i) * 64, work.m, smem.full_barriers + 8u * (unsigned)stage, policy);
}

// Prefetches the weight of the first stages into L2, before it may be read.
static __device__ __forceinline__ void prefetch_weight(const Mxfp4Arguments& a, const BlockWork& work,
                                                       unsigned long long policy) {
  if (config().stream == 0 && work.tile >= a.prefetch_blocks) return;
  const int end = work.end < work.begin + a.prefetch_k_tiles ? work.end : work.begin + a.prefetch_k_tiles;
  if constexpr (config().packed) {
    const int atoms =
        (end * config().k_atoms < a.k_atoms ? end * config().k_atoms : a.k_atoms) - work.begin * config().k_atoms;
    if (atoms <= 0) return;
#pragma unroll
    for (int r = 0; r < BLOCK_M / 64; ++r) {
      const int tile = work.n / 64 + r;
      if (tile < a.w_tiles)
        bulk_prefetch(a.fragments + ((long long)tile * a.k_atoms + work.begin * config().k_atoms) * FRAGMENT_BYTES,
                      (unsigned)atoms * FRAGMENT_BYTES, policy);
    }
  } else {
#pragma unroll 1
    for (int k_tile = work.begin; k_tile < end; ++k_tile) tma_prefetch(&a.w, k_tile * 128, work.n, policy);
  }
}

static __device__ __forceinline__ void produce(const Mxfp4Arguments& a, const SharedLayout& smem, BlockWork work) {
  const unsigned long long first = evict_first();
  const unsigned long long last = evict_last();
  const unsigned long long w_policy = a.x_tiles == 1 ? first : last;
  const int filled = work.end - work.begin < a.num_stages ? work.end - work.begin : a.num_stages;
  if (!a.dependent_launch) {
    prefetch_weight(a, work, w_policy);
    grid_dependency_wait();
  }
#pragma unroll 1
  for (int stage = 0; stage < filled; ++stage) {
    load_weight(a, smem, work, work.begin + stage, stage, w_policy);
    if (!a.dependent_launch) load_x(a, smem, work, work.begin + stage, stage, last);
  }
  if (a.dependent_launch) {
    grid_dependency_wait();
#pragma unroll 1
    for (int stage = 0; stage < filled; ++stage) load_x(a, smem, work, work.begin + stage, stage, last);
  }
  int stage = filled == a.num_stages ? 0 : filled;
  unsigned phase =
      filled == a.num_stages ? 0u : 1u;  // of the empty barriers: stages that were not filled yet are empty
  int k_tile = work.begin + filled;
#pragma unroll 1
  for (;;) {
#pragma unroll 1
    for (; k_tile < work.end; ++k_tile) {
      barrier_wait(smem.empty_barriers + 8u * (unsigned)stage, phase);
      load_weight(a, smem, work, k_tile, stage, w_policy);
      load_x(a, smem, work, k_tile, stage, last);
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
    if (!next_tile(a, work)) return;
    k_tile = work.begin;
  }
}
