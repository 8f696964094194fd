// What a consumer of wgmma_moe does with an MXFP4 weight: its rows, their scales, and decoding between shared memory and registers.
#pragma once

#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_producer.cuh"

// Elements of k are permuted within 128 so that a thread decodes 16 bytes of its rows, a block of one scale, without the other threads: of k = 32 t + 8 w + j +
// 4 i (i < 2, j, t, w < 4) the place is 32 w + 8 j + 2 t + i. x comes so, and the hidden layer is written so: a warp of stage 1 has features of one (w, j), lane
// group g = 2 t + i; without a gate the second half of the instruction's rows is of j + 1. Of stage 2 neighbouring lane groups have rows 4 apart, for the banks of shared memory; store_staged() puts them in order.
//
// The row of the tile, in shared memory, of lane group `lane` and instruction R of the block; the second half of the instruction's rows is SECOND_ROW further.
enum : int {
  SECOND_ROW = PERMUTED ? 1 : 8,
  FRAGMENTS = FRAGMENTS_PER_BATCH(MMA_TILES),  // of 16 of k that are multiplied together
  // For fragments: with four warp groups a multiprocessor one.
  BUFFERS = CONSUMER_WARPGROUPS == 4 || BLOCKS == 2 ? 1 : 2,
};
static __device__ __forceinline__ int permuted_row(int instruction, int warp, int lane) {
  if constexpr (INTERLEAVED)
    return lane / 2 * (BLOCK_ROWS / 4) + instruction * 16 + warp + lane % 2 * 4;
  else if constexpr (PERMUTED)
    return lane / 2 * (BLOCK_ROWS / 4) + instruction * 16 + warp / 2 * 8 + warp % 2 * 2 + lane % 2 * 4;
  else
    return instruction * 64 + warp * 16 + lane / 2 + lane % 2 * 4;
}
// The feature of w1 that the thread has in its instruction r (of a gated one in both halves of the instruction's rows), of the tile whose first column of `to` is
// `column`.
static __device__ __forceinline__ int feature_of(int column, int r, int half) {
  const int warp = (int)(threadIdx.x % 128) / 32;
  const int lane = (int)threadIdx.x % 32 / 4;
  const int instruction = (int)threadIdx.x / 128 * MMA_TILES + r;
  if constexpr (INTERLEAVED)
    return column / 128 * 128 + lane / 2 * 32 + (column % 128 / 32 + instruction) * 8 + warp + lane % 2 * 4;
  else
    return column / 128 * 128 + lane / 2 * 32 + column % 128 / 4 + instruction * 16 + warp / 2 * 8 + warp % 2 * 2 +
           lane % 2 * 4 + half;
}
typedef unsigned ScaleWords[MMA_TILES][2];

// Where the scales of the thread's rows begin. Four lanes share their rows: lane l of them loads those of 128 of k, the l-th of a chunk of 512.
struct ScaleRows {
  const unsigned char* from[MMA_TILES][2];
};

// Of the tile at row `tile_row` of w, whose first column of `to` is `column`. Rows past the last one have its scales: their products are not stored, or zero.
static __device__ __forceinline__ ScaleRows scale_rows(const WgmmaMoeArguments& a, int expert, int tile_row,
                                                       int column) {
  const unsigned char* const scales = (const unsigned char*)a.w_scales + expert * a.w_scale_matrix;
  ScaleRows rows;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
    if constexpr (INTERLEAVED) {
      int row = feature_of(column, r, 0);
      if (row >= a.features) row = a.features - 1;
      rows.from[r][0] = scales + (long long)row * a.w_scale_columns;
      rows.from[r][1] = rows.from[r][0] + (long long)a.features * a.w_scale_columns;
    } else if constexpr (PERMUTED) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = feature_of(column, r, half);
        if (row >= a.features) row = a.features - 1;
        rows.from[r][half] = scales + (long long)row * a.w_scale_columns;
      }
    } else {
      const int warp = (int)(threadIdx.x % 128) / 32;
      const int lane = (int)threadIdx.x % 32 / 4;
      const int instruction = (int)threadIdx.x / 128 * MMA_TILES + r;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = tile_row + permuted_row(instruction, warp, lane) + half * 8;
        if (row >= a.features) row = a.features - 1;
        rows.from[r][half] = scales + (long long)row * a.w_scale_columns;
      }
    }
  }
  return rows;
}

// The lane's words of the chunk that begins at scale `column`.
static __device__ __forceinline__ void load_scales(ScaleWords& words, const WgmmaMoeArguments& a, const ScaleRows& rows,
                                                   int column) {
  column += (int)threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    const unsigned char* const from = rows.from[i / 2][i % 2] + column;
    unsigned word = 0;
    if (a.w_scale_alignment == 4) {
      if (column < a.w_scale_columns) asm volatile("ld.global.nc.L2::128B.b32 %0, [%1];" : "=r"(word) : "l"(from));
    } else {
#pragma unroll
      for (int byte = 0; byte < 4; byte += 2) {
        unsigned half = 0;
        if (a.w_scale_alignment == 2) {
          if (column + byte < a.w_scale_columns)
            asm volatile("{\n.reg .b16 half;\nld.global.nc.L2::128B.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
                         : "=r"(half)
                         : "l"(from + byte));
        } else {
          unsigned low = 0;
          unsigned high = 0;
          if (column + byte < a.w_scale_columns)
            asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(low) : "l"(from + byte));
          if (column + byte + 1 < a.w_scale_columns)
            asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(high) : "l"(from + byte + 1));
          half = low | high << 8;
        }
        word |= half << (8 * byte);
      }
    }
    words[i / 2][i % 2] = word;
  }
}

struct Factors {
  unsigned by[2];
  unsigned more[2];  // where a scale of the warp group is above 2
};

// Of 128 of k, unit `unit` of four of the chunk.
static __device__ __forceinline__ Factors factors_of(const unsigned (&chunk)[2], int unit, bool large) {
  const int lane = (int)threadIdx.x % 32;
  Factors factors;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unsigned e =
        __byte_perm(__shfl_sync(0xffffffffu, chunk[i], (lane & 28) + unit, 32), 0u, 0x4440u + (unsigned)(lane % 4));
    factors.more[i] = large ? large_factor(e) : 0u;
    if (large) e = without_large(e);
    factors.by[i] = scale_factor(e);
  }
  return factors;
}

// The thread's 16 bytes of each of its rows.
typedef uint4 RawWeight[MMA_TILES][2];

// Where they are in a stage, of the first instruction's first row.
static __device__ __forceinline__ unsigned own_weight() {
  const int lane = (int)threadIdx.x % 32;
  const int row = permuted_row((int)threadIdx.x / 128 * MMA_TILES, (int)(threadIdx.x % 128) / 32, lane / 4);
  return (unsigned)(row * ATOM_BYTES +
                    ((lane % 4) ^ (row % 8)) * 16);  // TMA's swizzle: 16 bytes at c of row r are at c ^ (r % 8)
}

// 128 of k, half `half` of a stage at `base`. The instructions' rows differ by multiples of 8, the halves by c ^ 4, the second rows, where they follow even ones, by c ^ 1.
static __device__ __forceinline__ void load_half(RawWeight& raw, unsigned base, unsigned own, int half) {
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    const unsigned swizzle = (unsigned)(half * 64 + (SECOND_ROW == 1 ? i % 2 * 16 : 0));
    const unsigned from =
        base + (own ^ swizzle) + (unsigned)((i / 2 * (STAGE == 1 ? 16 : 64) + i % 2 * SECOND_ROW) * ATOM_BYTES);
    raw[i / 2][i % 2] = load_shared_words(from);
  }
}

// 16 of k, step `step` of eight.
static __device__ __forceinline__ void decode(unsigned (&to)[4], const uint4 (&raw)[2], int step,
                                              const Factors& factors, bool large) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4& row = raw[i % 2];
    const unsigned word = step / 2 == 0 ? row.x : step / 2 == 1 ? row.y : step / 2 == 2 ? row.z : row.w;
    unsigned pairs[4];
    spread_word(pairs, word);
    unsigned pair = pairs[step % 2 * 2 + i / 2];
    if (large) pair = multiply(pair, factors.more[i % 2]);
    to[i] = multiply(pair, factors.by[i % 2]);
  }
}

// COUNT times 16 of k from `step` of the 16 of a stage on, whose tokens are at `b`.
template <int WIDTH, int COUNT>
static __device__ __forceinline__ void start_products(float* d, const unsigned (*fragments)[4], unsigned b, int step) {
  start_batch<COUNT>(b, step, B_ATOM_BYTES, [&](int i, unsigned long long descriptor) {
    Instruction<WIDTH>::multiply(d, fragments[i], descriptor);
  });
}

// True if a scale of the warp group's chunk may be above 2: its warps take one branch together.
static __device__ __forceinline__ bool has_large_scales(const ScaleWords& chunk) {
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) all |= chunk[i / 2][i % 2];
  return any_of_warpgroup((all & 0x80808080u) != 0u, scales_barrier + (int)threadIdx.x / 128);
}
