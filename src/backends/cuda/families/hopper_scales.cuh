// Scales of what a warp group accumulates: MMA_TILES x 64 rows of A by BLOCK_N rows of B, with A, B = x, w or, with SWAP_AB, w, x. Here those of
// rows (Scales::rows); each family loads those of blocks (Scales::blocks) its own way. Rows past the last one
// have the scale of the last one: their products are not stored. The family has MMA_TILES, BLOCK_N and SWAP_AB before it includes this file.
#pragma once

#include "backends/gpu/device/scales.cuh"

typedef float Accumulators[MMA_TILES]
                          [BLOCK_N / 2];  // of int8 operands the bits of int32 sums, until scale_rows() converts them

using gemmtune::gpu::ScalesArguments;

// The operands' scales and their numbers of rows, and where a warp group's rows of A and B begin, in which batch.
struct ScaledRows {
  const ScalesArguments& scales;
  int m, n;
  int a, b;
  int batch;
};

template <typename Index>
static __device__ __forceinline__ float load_scale(const float* from, Index at) {
  float scale;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scale) : "l"(from + at) : "memory");
  return scale;
}
template <typename Index>
static __device__ __forceinline__ float load_scale(const unsigned char* from, Index at) {
  unsigned bits;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(bits) : "l"(from + at) : "memory");
  return e8m0_to_float((unsigned char)bits);
}
static __device__ __forceinline__ int at_most(int value, int most) { return value < most ? value : most; }

// A thread's accumulators are of rows warp * 16 + lane / 4 and that plus 8 of each 64, and of columns lane % 4 * 2 and the next of each 8.
static __device__ __forceinline__ int first_row_of_thread() {
  return (int)(threadIdx.x % 128) / 32 * 16 + (int)threadIdx.x % 32 / 4;
}

enum : int { LANE_COLUMNS = (BLOCK_N + 31) / 32 };

// Lane l has the scales of columns l, l + 32, ...; scale_rows() exchanges them.
struct RowScales {
  float a[MMA_TILES][2];
  float b[LANE_COLUMNS];
};

static __device__ __forceinline__ float x_row_scale(const ScaledRows& rows, int m) {
  return load_scale(rows.scales.x, ((long long)rows.batch * rows.m + at_most(m, rows.m - 1)) * rows.scales.x_row_step);
}
static __device__ __forceinline__ float w_row_scale(const ScaledRows& rows, int n) {
  return load_scale(rows.scales.w, ((long long)rows.batch * rows.n + at_most(n, rows.n - 1)) * rows.scales.w_row_step);
}

static __device__ __forceinline__ RowScales row_scales(const ScaledRows& rows) {
  RowScales scales;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    const int at = rows.a + first_row_of_thread() + i / 2 * 64 + i % 2 * 8;
    scales.a[i / 2][i % 2] = SWAP_AB ? w_row_scale(rows, at) : x_row_scale(rows, at);
  }
#pragma unroll
  for (int i = 0; i < LANE_COLUMNS; ++i) {
    const int at = rows.b + i * 32 + (int)threadIdx.x % 32;
    scales.b[i] = SWAP_AB ? x_row_scale(rows, at) : w_row_scale(rows, at);
  }
  return scales;
}

// Multiplies d by the scales of its rows and columns: by x's first, whichever operand x is, so that each product is rounded in the same way.
static __device__ __forceinline__ void scale_rows(Accumulators& d, const RowScales& scales) {
#pragma unroll
  for (int j = 0; j < BLOCK_N / 8; ++j) {
    float columns[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      columns[i] = __shfl_sync(0xffffffffu, scales.b[j / 4], j % 4 * 8 + (int)threadIdx.x % 4 * 2 + i);
#pragma unroll
    for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = d[r][j * 4 + i];
        const float of_x = SWAP_AB ? columns[i % 2] : scales.a[r][i / 2];
        const float of_w = SWAP_AB ? scales.a[r][i / 2] : columns[i % 2];
        sum = (types().element == Element::int8 ? (float)__float_as_int(sum) : sum) * of_x * of_w;
        asm volatile("" : "+f"(sum)::"memory");  // one after the other: together they need more registers
      }
    }
  }
}
