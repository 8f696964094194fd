// What the kernels of the sort by expert share: pairs of token and expert, sums over groups of threads, and the tiles.
#pragma once

#include "backends/gpu/moe/moe_route_arguments.h"

using gemmtune::gpu::MoeRouteArguments;
using gemmtune::gpu::MoeTile;

#define GROUP 32       // threads of a warp; a wave of 64 has two groups
#define SHARE_STEP 16  // pairs: no instruction has fewer tokens

// `value` of the thread `step` before this one; undefined where that is of another group.
static __device__ inline int value_before(int value, int step) {
#if defined(__HIP__) || defined(__HIPCC_RTC__)
  // The instruction takes the thread's number modulo the lanes of a wave.
  return __builtin_amdgcn_ds_bpermute(((int)threadIdx.x - step) * 4, value);
#else
  return __shfl_up_sync(0xffffffffu, value, step);
#endif
}

// `value` of lane `lane` of this thread's group.
static __device__ inline int value_of_lane(int value, int lane) {
#if defined(__HIP__) || defined(__HIPCC_RTC__)
  return __builtin_amdgcn_ds_bpermute(((int)threadIdx.x / GROUP * GROUP + lane) * 4, value);
#else
  return __shfl_sync(0xffffffffu, value, lane);
#endif
}

// Sum of `value` over this lane and those before it.
static __device__ inline int inclusive_sum(int value) {
  const int lane = threadIdx.x % GROUP;
#pragma unroll
  for (int step = 1; step < GROUP; step *= 2) {
    const int other = value_before(value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// Sum of `value` over the threads of the block before this one; `total` gets that over all. `groups`: a number for each group of threads.
static __device__ inline int exclusive_sum(int value, int* groups, int* total) {
  const int lane = threadIdx.x % GROUP;
  const int group = threadIdx.x / GROUP;
  const int inclusive = inclusive_sum(value);
  __syncthreads();
  if (lane == GROUP - 1) groups[group] = inclusive;
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int i = 0; i < (int)blockDim.x / GROUP; ++i) {
    if (i < group) before += groups[i];
    all += groups[i];
  }
  *total = all;
  return before + inclusive - value;
}

// Where a pair's id and weight are given; -1: nowhere, it is of a shared expert.
static __device__ inline int given_at(const MoeRouteArguments& a, int pair) {
  if (a.shared == 0) return pair;
  const int token = pair / a.topk;
  const int slot = pair - token * a.topk;
  return slot < a.topk - a.shared ? pair - token * a.shared : -1;
}

// The expert of a pair; -1 of an empty slot, whose id is -1, and -2 where an id is none of a routed expert.
static __device__ inline int expert_of(const MoeRouteArguments& a, int pair) {
  const int at = given_at(a, pair);
  if (at < 0) return a.experts - a.topk + pair % a.topk;
  const int id = a.ids[at];
  return id >= -1 && id < a.experts - a.shared ? id : -2;
}

static __device__ inline int tiles_of_expert(const MoeRouteArguments& a, int count) {
  return (count + a.block_m - 1) / a.block_m;
}

// Tiles of an expert whose `count` pairs begin at `first`. They have equal shares, so that blocks that walk over tiles with a fixed stride have equal work.
// By `threads` threads, of which this one is `thread`.
static __device__ inline void store_tiles(const MoeRouteArguments& a, int expert, int first, int count, int first_tile,
                                          int thread, int threads) {
  const int tiles = tiles_of_expert(a, count);
  const int whole = tiles > 0 ? (count + tiles * SHARE_STEP - 1) / (tiles * SHARE_STEP) * SHARE_STEP : 0;
  const int share = whole < a.block_m ? whole : a.block_m;
  for (int i = thread; i < tiles; i += threads) {
    const int left = count - i * share;
    a.tiles[first_tile + i] = {expert, first + i * share, left < share ? left : share, i};
  }
  if (thread == 0) a.tiles_of[expert] = tiles;
}

// Counters of the items that blocks of the two stages take, behind the number of tiles. By one block.
static __device__ inline void reset_counters(const MoeRouteArguments& a, int thread) {
  if (thread < 2) a.tile_count[1 + thread] = 0;
}
