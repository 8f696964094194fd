// Epilogue of the skinny kernel: the accumulators are scaled and stored to y, or, with split-K, sent to the blocks of the cluster that reduce
// them. Nothing hides the epilogue's latency, so addresses and biases are computed before the mainloop and kept in registers
// (ClusterEpilogue, DirectEpilogue, StagedEpilogue).
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/skinny/skinny_arguments.h"
#include "backends/cuda/families/skinny/skinny_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

enum : int {
  PARTIALS_PITCH = BLOCK_N + 4,               // floats; rows are aligned to 16 bytes, accesses free of bank conflicts
  STAGING_PITCH = config().block_m * 2 + 16,  // bytes between rows of y in shared memory
  DIRECT_STORE = BLOCK_N == 8 || types().output == Element::f32,
};

// Makes the compiler compute `value` here and not after the mainloop: it does not recompute the result of a shuffle.
template <typename T>
static __device__ inline void materialize(T& value) {
  value = __shfl_sync(0xffffffffu, value, threadIdx.x % 32);
}

static __device__ inline float bias_at(const SkinnyArguments& a, int n) {
  return a.bias && n < a.n ? read_output(a.bias[n]) : 0.0f;
}

static __device__ inline long long global_address(const void* pointer) {
  return (long long)__cvta_generic_to_global(pointer);
}
static __device__ inline void store_output(long long to, float value) {
  if constexpr (types().output == Element::f32)
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
  else
    asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"((unsigned short)round_output(value)) : "memory");
}

// ---- split-K within a cluster

// Where a thread sends its accumulators, and the elements of y that it reduces: pairs of weight rows, for one row of x after the other.
struct ClusterEpilogue {
  unsigned to[config().block_m / 64];       // in the block that reduces these rows
  unsigned barrier[config().block_m / 64];  // its partials barrier
  unsigned from;                            // the first pair
  unsigned stride;                          // to the same pair of the next split
  int group, groups;                        // of rows: first and end
  int rows, columns;                        // of y, from the first on
  long long y;
  float bias[2];
  int pair_aligned;  // whether y takes two at once
};

// Lanes exchange half of their accumulators with their neighbour, so that each holds four columns of one row: even lanes of the first 8
// rows of a warp's 16, odd lanes of the others.
static __device__ inline ClusterEpilogue cluster_epilogue(const SkinnyArguments& a, const SharedLayout& smem, int row,
                                                          int rank) {
  ClusterEpilogue epilogue;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < config().block_m / 64; ++r) {
    const int group = r * 8 + (int)(threadIdx.x / 32) * 2 + lane % 2;
    const int owner = group * a.split_k / ROW_GROUPS;
    const int slot = group - first_row_group(a, owner);
    const unsigned there =
        smem.exchange +
        4u * (unsigned)(((rank * a.max_row_groups + slot) * 8 + lane / 4) * PARTIALS_PITCH + lane % 4 / 2 * 4);
    epilogue.to[r] = remote_address(there, owner);
    epilogue.barrier[r] = remote_address(smem.partials_barrier, owner);
    materialize(epilogue.to[r]);
    materialize(epilogue.barrier[r]);
  }
  const int pair = (int)threadIdx.x % 4;
  epilogue.group = (int)threadIdx.x / (4 * BLOCK_N);
  epilogue.groups = first_row_group(a, rank + 1) - first_row_group(a, rank);
  const int m = (int)threadIdx.x / 4 % BLOCK_N;
  const int n = row + (first_row_group(a, rank) + epilogue.group) * 8 + pair * 2;
  epilogue.rows = a.m - m;
  epilogue.columns = a.n - n;
  epilogue.from = smem.exchange + 4u * (unsigned)((epilogue.group * 8 + pair * 2) * PARTIALS_PITCH + m);
  epilogue.stride = 4u * (unsigned)(a.max_row_groups * 8 * PARTIALS_PITCH);
  epilogue.y = global_address(y_of_block(a) + m * a.ldy + n);
  epilogue.bias[0] = bias_at(a, n);
  epilogue.bias[1] = bias_at(a, n + 1);
  epilogue.pair_aligned = a.ldy % 2 == 0 && ((unsigned long long)y_of_block(a)) % (2 * sizeof(output)) == 0;
  materialize(epilogue.groups);
  materialize(epilogue.rows);
  materialize(epilogue.columns);
  materialize(epilogue.from);
  materialize(epilogue.stride);
  materialize(epilogue.y);
  materialize(epilogue.bias[0]);
  materialize(epilogue.bias[1]);
  materialize(epilogue.pair_aligned);
  return epilogue;
}

// Sends each row of the product to the block that reduces it, four adjacent columns at a time.
static __device__ inline void send_partials(const Accumulators& d, const ClusterEpilogue& epilogue) {
  const bool odd = threadIdx.x % 2 != 0;
#pragma unroll
  for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
      const float* own = &d[r][4 * j];
      const float first = __shfl_xor_sync(0xffffffffu, odd ? own[0] : own[2], 1);
      const float second = __shfl_xor_sync(0xffffffffu, odd ? own[1] : own[3], 1);
      store_async(epilogue.to[r] + 32u * j, odd ? first : own[0], odd ? second : own[1], odd ? own[2] : first,
                  odd ? own[3] : second, epilogue.barrier[r]);
    }
  }
}

static __device__ inline void store_output_pair(long long to, int columns, float first, float second,
                                                int pair_aligned) {
  if (types().output != Element::f32 && pair_aligned && columns > 1) {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(round_pair(first, second)) : "memory");
    return;
  }
  if (columns > 0) store_output(to, first);
  if (columns > 1) store_output(to + (int)sizeof(output), second);
}

// Reduces in the order of the splits, whatever the order in which they arrived.
static __device__ inline void reduce_and_store(const SkinnyArguments& a, const ClusterEpilogue& epilogue, float scale) {
  constexpr int step = CONSUMER_THREADS / (4 * BLOCK_N) > 0 ? CONSUMER_THREADS / (4 * BLOCK_N) : 1;  // groups
  constexpr int rows = BLOCK_N > CONSUMER_THREADS / 4 ? CONSUMER_THREADS / 4 : BLOCK_N;              // of x at once
  int columns = epilogue.columns;
  unsigned from = epilogue.from;
  long long y = epilogue.y;
  float bias[2] = {epilogue.bias[0], epilogue.bias[1]};
#pragma unroll 1
  for (int group = epilogue.group; group < epilogue.groups; group += step) {
#pragma unroll
    for (int m = 0; m < BLOCK_N; m += rows) {
      float partials[8][2];  // all loads are in flight at once
      unsigned address = from + 4u * m;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        partials[block][0] = partials[block][1] = 0.0f;
        if (block < a.split_k) {
          partials[block][0] = load_shared_float(address);
          partials[block][1] = load_shared_float(address + 4u * PARTIALS_PITCH);
        }
        address += epilogue.stride;
      }
      float first = 0.0f;
      float second = 0.0f;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        first += partials[block][0];
        second += partials[block][1];
      }
      if (m < epilogue.rows)
        store_output_pair(y + m * a.ldy * (int)sizeof(output), columns, first * scale + bias[0],
                          second * scale + bias[1], epilogue.pair_aligned);
    }
    columns -= step * 8;
    from += 4u * (step * 8 * PARTIALS_PITCH);
    y += step * 8 * (int)sizeof(output);
    if (a.bias) {
      bias[0] = bias_at(a, a.n - columns);
      bias[1] = bias_at(a, a.n - columns + 1);
    }
  }
}

// ---- one block computes all of k

// Few rows of y, or 4-byte elements: threads store their accumulators directly.
struct DirectEpilogue {
  long long y;
  int rows, columns;  // of y, from there on
  float bias[config().block_m / 64][2];
};
static __device__ inline DirectEpilogue direct_epilogue(const SkinnyArguments& a, int row) {
  DirectEpilogue epilogue;
  const int lane = threadIdx.x % 32;
  const int n = row + (int)(threadIdx.x / 32) * 16 + lane / 4;
  const int m = lane % 4 * 2;
  epilogue.rows = a.m - m;
  epilogue.columns = a.n - n;
  epilogue.y = global_address(y_of_block(a) + m * a.ldy + n);
  materialize(epilogue.rows);
  materialize(epilogue.columns);
  materialize(epilogue.y);
#pragma unroll
  for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      epilogue.bias[r][half] = bias_at(a, n + r * 64 + half * 8);
      materialize(epilogue.bias[r][half]);
    }
  }
  return epilogue;
}
static __device__ inline void store_tile(const Accumulators& d, const SkinnyArguments& a,
                                         const DirectEpilogue& epilogue, float scale) {
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; ++i) {
    const int m = i / 2 * 8 + i % 2;
    if (m >= epilogue.rows) continue;
    const long long y = epilogue.y + m * a.ldy * (int)sizeof(output);
#pragma unroll
    for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = r * 64 + half * 8;
        if (n < epilogue.columns)
          store_output(y + n * (int)sizeof(output),
                       d[r][i / 2 * 4 + half * 2 + i % 2] * scale + epilogue.bias[r][half]);
      }
    }
  }
}

// A tile of y is transposed in shared memory, so that stores cover whole rows of it.
struct StagedEpilogue {
  unsigned to;    // in shared memory, of the thread's matrices
  unsigned from;  // 16 bytes of a row of y
  long long y;
  int rows, columns;  // of y, from there on
  int vectorized;     // stores of 16 bytes are aligned
  float bias[config().block_m / 64][2];
};
static __device__ inline StagedEpilogue staged_epilogue(const SkinnyArguments& a, const SharedLayout& smem, int row) {
  StagedEpilogue epilogue;
  const int lane = threadIdx.x % 32;
  const int first = (int)(threadIdx.x / 32) * 16;
  epilogue.to = smem.exchange + (unsigned)((lane / 16 * 8 + lane % 8) * STAGING_PITCH + (first + lane / 8 % 2 * 8) * 2);
  const int chunk = (int)threadIdx.x % (config().block_m / 8);
  const int m = (int)threadIdx.x / (config().block_m / 8);
  const int n = row + chunk * 8;
  epilogue.rows = a.m - m;
  epilogue.columns = a.n - n;
  epilogue.from = smem.exchange + (unsigned)(m * STAGING_PITCH + chunk * 16);
  epilogue.y = global_address(y_of_block(a) + m * a.ldy + n);
  epilogue.vectorized = a.ldy % 8 == 0 && ((unsigned long long)y_of_block(a)) % 16 == 0 && epilogue.columns >= 8;
  materialize(epilogue.to);
  materialize(epilogue.from);
  materialize(epilogue.rows);
  materialize(epilogue.columns);
  materialize(epilogue.vectorized);
  materialize(epilogue.y);
#pragma unroll
  for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      epilogue.bias[r][half] = bias_at(a, row + r * 64 + first + half * 8 + lane / 4);
      materialize(epilogue.bias[r][half]);
    }
  }
  return epilogue;
}
static __device__ inline void store_tile(const Accumulators& d, const SkinnyArguments& a,
                                         const StagedEpilogue& epilogue, float scale) {
#pragma unroll
  for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; j += 2) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* own = &d[r][4 * (j + i / 2) + 2 * (i % 2)];
        pairs[i] = round_pair(own[0] * scale + epilogue.bias[r][i % 2], own[1] * scale + epilogue.bias[r][i % 2]);
      }
      store_transposed(epilogue.to + (unsigned)(r * 128 + j * 8 * STAGING_PITCH), pairs[0], pairs[1], pairs[2],
                       pairs[3]);
    }
  }
  sync_named<CONSUMER_THREADS>(consumers_barrier);
  constexpr int step = CONSUMER_THREADS / (config().block_m / 8);
#pragma unroll
  for (int m = 0; m < BLOCK_N; m += step) {
    if (m >= epilogue.rows) break;
    const uint4 words = load_shared_words(epilogue.from + (unsigned)(m * STAGING_PITCH));
    const unsigned v[4] = {words.x, words.y, words.z, words.w};
    const long long y = epilogue.y + m * a.ldy * (int)sizeof(output);
    if (epilogue.vectorized) {
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(y), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                   : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (i < epilogue.columns)
          asm volatile("st.global.b16 [%0], %1;" ::"l"(y + i * 2), "h"((unsigned short)(v[i / 2] >> (i % 2 * 16)))
                       : "memory");
    }
  }
}

// The one that the kernel has.
static __device__ inline auto block_epilogue(const SkinnyArguments& a, const SharedLayout& smem, int row) {
  if constexpr (DIRECT_STORE) {
    return direct_epilogue(a, row);
  } else {
    return staged_epilogue(a, smem, row);
  }
}
