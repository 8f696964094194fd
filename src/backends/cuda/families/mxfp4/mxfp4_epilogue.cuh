// How a tile's sums become rows of y: alone, or with those of the other blocks of a cluster.
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/grid_barrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_arguments.h"
#include "backends/cuda/families/mxfp4/mxfp4_decode.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

// What sums are multiplied by: the units of decoded elements, and the scale of the whole weight.
static __device__ __forceinline__ float sum_unit(const Mxfp4Arguments& a) {
  if constexpr (config().weight == WeightFormat::nvfp4) return NVFP4_UNIT * *a.format.w_global;
  if constexpr (is_int4()) return 1.0f;
  return config().x_fp4 ? E2M1_UNIT * E2M1_UNIT : E2M1_UNIT;
}

static __device__ __forceinline__ void sync_consumers() { sync_named<CONSUMER_THREADS>(consumers_barrier); }
static __device__ __forceinline__ void sync_warpgroup(int group) { sync_named<128>(warpgroup_barrier + group); }

// Block `block` of the cluster reduces the units from here on.
static __device__ __forceinline__ int first_unit(const Mxfp4Arguments& a, int block) {
  return (block * UNITS + a.split_k - 1) / a.split_k;
}

static __device__ __forceinline__ void store_partials(const Accumulators& d, const SharedLayout& smem) {
  const int lane = threadIdx.x % 32;
  const int row = (int)threadIdx.x / 128 * config().tiles * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
  if constexpr (config().rows_per_y == 2) {
    const unsigned to = smem.pipeline + 4u * (unsigned)(lane % 4 * PITCH + row);
#pragma unroll
    for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
      for (int i = 0; i < config().block_n / 2; i += 2)
        store_shared_float(to + 4u * (unsigned)(i / 4 * 4 * PITCH + r * 64 + i % 4 / 2 * 8), d[r][i] + d[r][i + 1]);
    }
  } else {
    const unsigned to = smem.pipeline + 4u * (unsigned)(lane % 4 * 2 * PITCH + row);
#pragma unroll
    for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
      for (int i = 0; i < config().block_n / 2; ++i)
        store_shared_float(to + 4u * (unsigned)((i / 4 * 8 + i % 2) * PITCH + r * 64 + i % 4 / 2 * 8), d[r][i]);
    }
  }
}

// Volatile, because the compiler would load those of all rows first. Rows past the last one are not stored.
static __device__ __forceinline__ float x_scale_at(const Mxfp4Arguments& a, int m) {
  const unsigned row = (unsigned)(m < a.m ? m : 0);
  float scale;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scale) : "l"(a.x_scales + row * (unsigned)a.x_scale_step));
  return scale;
}

// Stores four elements of a row of y.
static __device__ __forceinline__ void store_unit(const Mxfp4Arguments& a, const BlockWork& work, int unit,
                                                  float (&sums)[4]) {
  const int m = work.m / config().rows_per_y + unit / (BLOCK_M / 4);
  const int n = work.n + unit % (BLOCK_M / 4) * 4;
  if (m >= a.m || n >= a.n) return;
  float scale = sum_unit(a);
  if constexpr (config().row_scales) scale *= x_scale_at(a, m);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = fmaf(sums[i], scale, a.bias && n + i < a.n ? read_output(a.bias[n + i]) : 0.0f);
  output* const y = a.y + m * a.ldy + n;
  if (a.ldy % 4 == 0 && (unsigned long long)a.y % 8 == 0 && n + 4 <= a.n) {
    *(uint2*)y = make_uint2(round_pair(sums[0], sums[1]), round_pair(sums[2], sums[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (n + i < a.n) y[i] = round_output(sums[i]);
  }
}

static __device__ __forceinline__ unsigned unit_at(const SharedLayout& smem, int unit) {
  return smem.pipeline + 4u * (unsigned)(unit / (BLOCK_M / 4) * PITCH + unit % (BLOCK_M / 4) * 4);
}

// Stores the tile without sums of other blocks: each warp group transposes its rows of the weight, 32 or 16 rows of y at a time, in rows of 128 bytes that
// are swizzled like TMA's.
enum : int { STAGED_ROWS = config().block_n % 32 == 0 ? 32 : 16 };
static __device__ __forceinline__ void store_staged(const Accumulators& d, const Mxfp4Arguments& a,
                                                    const SharedLayout& smem, const BlockWork& work) {
  const int thread = threadIdx.x % 128;
  const int lane = threadIdx.x % 32;
  const int warp = thread / 32;
  const int group = threadIdx.x / 128;
  const unsigned buffer = smem.exchange + (unsigned)(group * 32 * 128);
  const bool aligned = a.ldy % 8 == 0 && (unsigned long long)a.y % 16 == 0;
#pragma unroll
  for (int r = 0; r < config().tiles; ++r) {
    const int first_n = work.n + (group * config().tiles + r) * 64;
    float bias[2] = {0.0f, 0.0f};
    if (a.bias) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = first_n + warp * 16 + lane / 4 + i * 8;
        if (n < a.n) bias[i] = read_output(a.bias[n]);
      }
    }
#pragma unroll
    for (int first_row = 0; first_row < config().block_n; first_row += STAGED_ROWS) {
#pragma unroll
      for (int j = 0; j < STAGED_ROWS / 8; j += 2) {
        unsigned matrices[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int sum = (first_row / 8 + j) * 4 + i * 2;
          float scales[2] = {sum_unit(a), sum_unit(a)};
          if constexpr (config().row_scales) {
            const int m = work.m + first_row + (j + i / 2) * 8 + lane % 4 * 2;
            scales[0] *= x_scale_at(a, m);
            scales[1] *= x_scale_at(a, m + 1);
          }
          matrices[i] =
              round_pair(fmaf(d[r][sum], scales[0], bias[i % 2]), fmaf(d[r][sum + 1], scales[1], bias[i % 2]));
        }
        const int row = (j + lane / 16) * 8 + lane % 8;
        const unsigned to = buffer + (unsigned)(row * 128 + ((warp * 2 + lane / 8 % 2) ^ (row % 8)) * 16);
        store_transposed(to, matrices[0], matrices[1], matrices[2], matrices[3]);
      }
      sync_warpgroup(group);
#pragma unroll
      for (int i = 0; i < STAGED_ROWS / 16; ++i) {
        const int row = i * 16 + thread / 8;
        const int m = work.m + first_row + row;
        const int n = first_n + thread % 8 * 8;
        const uint4 bits = load_shared_words(buffer + (unsigned)(row * 128 + (thread % 8 ^ row % 8) * 16));
        if (m < a.m && n < a.n) {
          output* const y = a.y + m * a.ldy + n;
          if (aligned && n + 8 <= a.n) {
            *(uint4*)y = bits;
          } else {
            const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
            for (int e = 0; e < 8; ++e)
              if (n + e < a.n) y[e] = (output)(words[e / 2] >> (e % 2 * 16));
          }
        }
      }
      sync_warpgroup(group);
    }
  }
}

static __device__ __forceinline__ void store_tile(const Mxfp4Arguments& a, const SharedLayout& smem,
                                                  const BlockWork& work) {
#pragma unroll 1
  for (int unit = threadIdx.x; unit < UNITS; unit += CONSUMER_THREADS) {
    float sums[4];
    load_shared_floats(unit_at(smem, unit), sums);
    store_unit(a, work, unit, sums);
  }
}

// Adds partial sums in the order of the blocks, whatever the order in which they arrived. `load(block, partials)`: those of a block.
template <typename Load>
static __device__ __forceinline__ void add_partials(float (&sums)[4], int blocks, const Load& load) {
  float partials[8][4];  // all loads are in flight at once
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    partials[block][0] = partials[block][1] = partials[block][2] = partials[block][3] = 0.0f;
    if (block < blocks) load(block, partials[block]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += partials[block][i];
  }
}

// Sends each unit to the block that reduces it.
static __device__ __forceinline__ void send_partials(const Mxfp4Arguments& a, const SharedLayout& smem, int rank) {
  const int most = (UNITS + a.split_k - 1) / a.split_k;
#pragma unroll 1
  for (int unit = threadIdx.x; unit < UNITS; unit += CONSUMER_THREADS) {
    const int owner = unit * a.split_k / UNITS;
    const unsigned to = smem.exchange + 16u * (unsigned)(rank * most + unit - first_unit(a, owner));
    float v[4];
    load_shared_floats(unit_at(smem, unit), v);
    store_async(remote_address(to, owner), v[0], v[1], v[2], v[3], remote_address(smem.partials_barrier, owner));
  }
}
static __device__ __forceinline__ void reduce_sent(const Mxfp4Arguments& a, const SharedLayout& smem,
                                                   const BlockWork& work, int rank) {
  const int most = (UNITS + a.split_k - 1) / a.split_k;
  const int first = first_unit(a, rank);
  const int end = first_unit(a, rank + 1);
#pragma unroll 1
  for (int unit = first + (int)threadIdx.x; unit < end; unit += CONSUMER_THREADS) {
    const unsigned from = smem.exchange + 16u * (unsigned)(unit - first);
    float sums[4];
    add_partials(sums, a.split_k,
                 [&](int block, float(&to)[4]) { load_shared_floats(from + 16u * (unsigned)(block * most), to); });
    store_unit(a, work, unit, sums);
  }
}

// Reads the other blocks' partial sums where they are.
static __device__ __forceinline__ void reduce_remote(const Mxfp4Arguments& a, const SharedLayout& smem,
                                                     const BlockWork& work, int rank) {
#pragma unroll 1
  for (int unit = rank * CONSUMER_THREADS + (int)threadIdx.x; unit < UNITS; unit += a.split_k * CONSUMER_THREADS) {
    float sums[4];
    add_partials(sums, a.split_k, [&](int block, float(&to)[4]) {
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                   : "r"(remote_address(unit_at(smem, unit), block))
                   : "memory");
    });
    store_unit(a, work, unit, sums);
  }
}

// STREAM: each thread's sums of a piece of a tile, four at a time, as the same thread of another block reads them.
static __device__ __forceinline__ float4* own_partials(const Mxfp4Arguments& a, int block) {
  return (float4*)(a.partials + (long long)block * (BLOCK_M * config().block_n)) + threadIdx.x;
}
static __device__ __forceinline__ unsigned* arrived_at(const Mxfp4Arguments& a, int block) { return a.arrived + block; }
// By one warp of each block, before others may wait for its sums.
static __device__ __forceinline__ void clear_arrived(const Mxfp4Arguments& a, const SharedLayout& smem) {
  if (threadIdx.x % 32 == 0) {
    store_relaxed(arrived_at(a, (int)blockIdx.x), 0u);
    __threadfence();
  }
  synchronize_grid<config().stream != 0 ? config().stream : 1>(a.barrier);
  if (threadIdx.x % 32 == 0) barrier_arrive(smem.partials_barrier);
}
static __device__ __forceinline__ void store_piece(const Accumulators& d, const Mxfp4Arguments& a,
                                                   const SharedLayout& smem) {
  float4* const to = own_partials(a, (int)blockIdx.x);
  constexpr int of_tile = config().block_n / 8;
#pragma unroll
  for (int i = 0; i < config().tiles * of_tile; ++i) {
    const float* const from = &d[i / of_tile][i % of_tile * 4];
    __stcg(to + i * CONSUMER_THREADS, make_float4(from[0], from[1], from[2], from[3]));
  }
  barrier_wait(smem.partials_barrier, 0);  // all blocks have cleared what they will wait for
  __threadfence();
  sync_consumers();
  if (threadIdx.x == 0) store_release(arrived_at(a, (int)blockIdx.x), 1u);
}
// Adds the sums of the block before, which has the beginning of the tile.
static __device__ __forceinline__ void add_piece(Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem) {
  constexpr int of_tile = config().block_n / 8;
  constexpr int units = config().tiles * of_tile;
  const int block = (int)blockIdx.x - 1;
  barrier_wait(smem.partials_barrier, 0);
  if (threadIdx.x % 32 == 0) {
    while (load_acquire(arrived_at(a, block)) == 0u) {
    }
  }
  __syncwarp();
  const float4* const from = own_partials(a, block);
#pragma unroll
  for (int i = 0; i < units; i += 8) {
    float4 sums[8];
#pragma unroll
    for (int j = i; j < i + 8 && j < units; ++j) sums[j - i] = __ldcg(from + j * CONSUMER_THREADS);
#pragma unroll
    for (int j = i; j < i + 8 && j < units; ++j) {
      float* const to = &d[j / of_tile][j % of_tile * 4];
      to[0] += sums[j - i].x, to[1] += sums[j - i].y, to[2] += sums[j - i].z, to[3] += sums[j - i].w;
    }
  }
}
