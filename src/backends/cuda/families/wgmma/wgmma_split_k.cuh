// Epilogue of split-K within a cluster: the blocks send each other partial sums; each block reduces and stores a share of the tile.
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_epilogue.cuh"
#include "backends/cuda/families/wgmma/wgmma_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

enum : int {
  // A thread's four sums of 64 rows x 8 columns of D are a unit. A block reduces a range of units: the same thread of each other block sends its sums of
  // them from registers to memory that nothing else uses. No block waits until another one has read its last stage.
  UNITS = MMA_TILES * (BLOCK_N / 8),
  MAX_UNITS = (UNITS + SPLIT_K - 1) / SPLIT_K,  // that a block reduces
  UNIT_BYTES = CONSUMER_THREADS * 16,
};

static __device__ constexpr int first_unit(int split) { return (split * UNITS + SPLIT_K - 1) / SPLIT_K; }

// Where split `from` stores its partial sums in the shared memory of split `to`.
static __device__ constexpr unsigned partials_offset(int from, int to) {
  return (unsigned)((from < to ? from : from - 1) * MAX_UNITS * UNIT_BYTES);
}

// Bytes that this block receives.
static __device__ inline unsigned received_bytes(int split) {
  return (unsigned)((SPLIT_K - 1) * (first_unit(split + 1) - first_unit(split)) * UNIT_BYTES);
}

static __device__ constexpr int owner_of(int unit) { return unit * SPLIT_K / UNITS; }
static __device__ constexpr unsigned unit_offset(int unit) {
  return (unsigned)((unit - first_unit(owner_of(unit))) * UNIT_BYTES);
}

static __device__ __forceinline__ void send_partials(const Accumulators& d, const WgmmaArguments& a,
                                                     const SharedLayout& smem, const BlockWork& work) {
  unsigned to[SPLIT_K], barrier[SPLIT_K];
#pragma unroll
  for (int owner = 0; owner < SPLIT_K; ++owner) {
    const int block =
        (owner << (log2_cluster_m(a) + log2_cluster_n(a))) + work.rank_m + (work.rank_n << log2_cluster_m(a));
    to[owner] = remote_address(smem.staging + partials_offset(work.split, owner) + threadIdx.x * 16, block);
    barrier[owner] = remote_address(smem.partials_barrier, block);
  }
#pragma unroll
  for (int unit = 0; unit < UNITS; ++unit) {
    if (owner_of(unit) == work.split) continue;
    const float* own = &d[unit / (BLOCK_N / 8)][unit % (BLOCK_N / 8) * 4];
    store_async(to[owner_of(unit)] + unit_offset(unit), own[0], own[1], own[2], own[3], barrier[owner_of(unit)]);
  }
}

// Where a thread stores: its first element of y, and how many rows and columns of y there are from it on. It stores pairs of columns.
struct ThreadOutputs {
  output* y;
  int n;
  int rows, columns;
};

// Lanes of two adjacent rows of D: with SWAP_AB, where these are columns of y, they exchange a sum, so that each has both of one row of y.
static __device__ __forceinline__ bool is_odd_row() { return SWAP_AB && threadIdx.x / 4 % 2 != 0; }

// `row`: the warp group's first within the tile.
static __device__ __forceinline__ ThreadOutputs thread_outputs(const WgmmaArguments& a, const Tile& tile, int row) {
  const int of_a = tile.a + row + first_row_of_thread();
  const int of_b = tile.b + (int)threadIdx.x % 4 * 2;
  const int m = SWAP_AB ? of_b + is_odd_row() : of_a;
  const int n = SWAP_AB ? of_a - is_odd_row() : of_b;
  ThreadOutputs to = {y_at(a, tile.batch) + m * a.ldy + n, n, a.m - m, a.n - n};
  // Otherwise the compiler computes them behind the wait for the partial sums of others.
  asm volatile("" : "+l"(to.y), "+r"(to.n), "+r"(to.rows), "+r"(to.columns));
  return to;
}

// Stores two sums `m` rows and `n` columns from the thread's first element on. PAIRS: y takes two elements at once.
template <bool PAIRS>
static __device__ __forceinline__ void store_pair(const WgmmaArguments& a, const ThreadOutputs& to, int m, int n,
                                                  float first, float second, float scale) {
  if (m >= to.rows || n >= to.columns) return;
  output* const y = to.y + m * a.ldy + n;
  first = epilogue_value(first, scale, bias_at(a, to.n + n));
  second = epilogue_value(second, scale, bias_at(a, to.n + n + 1));
  if (PAIRS) {
    if constexpr (types().output == Element::f32) {
      asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(y), "f"(first), "f"(second) : "memory");
    } else {
      asm volatile("st.global.b32 [%0], %1;" ::"l"(y), "r"(round_pair(first, second)) : "memory");
    }
  } else {
    y[0] = round_output(first);
    if (n + 1 < to.columns) y[1] = round_output(second);
  }
}

// Stores a unit of the tile of 64 rows `r`, whose first column of D is `column`.
template <bool PAIRS>
static __device__ __forceinline__ void store_unit(const WgmmaArguments& a, const ThreadOutputs& to, int r, int column,
                                                  const float (&sums)[4], float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float first = sums[half * 2];
    const float second = sums[half * 2 + 1];
    const int row = r * 64 + half * 8;
    if constexpr (SWAP_AB) {
      const float other = __shfl_xor_sync(0xffffffffu, is_odd_row() ? first : second, 4);
      store_pair<PAIRS>(a, to, column, row, is_odd_row() ? other : first, is_odd_row() ? second : other, scale);
    } else {
      store_pair<PAIRS>(a, to, row, column, first, second, scale);
    }
  }
}

// Reduces this block's units in the order of the splits and stores them.
template <bool PAIRS>
static __device__ __forceinline__ void reduce_units(const Accumulators& d, const WgmmaArguments& a,
                                                    const SharedLayout& smem, const ThreadOutputs& to, int split,
                                                    float scale) {
  const unsigned from = smem.staging + threadIdx.x * 16;
#pragma unroll
  for (int unit = 0; unit < UNITS; ++unit) {
    const int owner = owner_of(unit);
    if (owner != split) continue;
    const int r = unit / (BLOCK_N / 8);
    const int column = unit % (BLOCK_N / 8) * 8;
    float partials[SPLIT_K][4];  // all loads are in flight at once
#pragma unroll
    for (int other = 0; other < SPLIT_K; ++other) {
      if (other != owner) load_shared_floats(from + partials_offset(other, owner) + unit_offset(unit), partials[other]);
    }
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partials[owner][i] = d[r][column / 2 + i];
      sums[i] = partials[0][i];
#pragma unroll
      for (int other = 1; other < SPLIT_K; ++other) sums[i] += partials[other][i];
    }
    store_unit<PAIRS>(a, to, r, column, sums, scale);
  }
}

static __device__ __forceinline__ void reduce_and_store(const Accumulators& d, const WgmmaArguments& a,
                                                        const SharedLayout& smem, const ThreadOutputs& to, int split,
                                                        float scale) {
  if (a.n % 2 == 0 && a.ldy % 2 == 0 && (unsigned long long)to.y % (2 * sizeof(output)) == 0) {
    reduce_units<true>(d, a, smem, to, split, scale);
  } else {
    reduce_units<false>(d, a, smem, to, split, scale);
  }
}
