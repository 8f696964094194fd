// Scales of blocks (Scales::blocks): each thread loads its own from global memory. A has one for each 64 rows of the weight, B one for each of the thread's
// rows of x.
#pragma once

#include "backends/cuda/families/skinny/skinny_producer.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"
#include "backends/gpu/device/scales.cuh"

// Scales at one k atom.
struct BlockScales {
  float a[MMA_TILES];
  float b[BLOCK_N / 4];
};

// Where they are for k atom 0, in elements from the first one on: the mainloop has no time to multiply rows.
struct BlockScalesAt {
  const scale_bits* a;
  const scale_bits* b;
  int a_at[MMA_TILES];
  int b_at[BLOCK_N / 4];
  int last_k;
};

static __device__ __forceinline__ int x_scale_row(const ScaledRows& rows, int m) { return at_most(m, rows.m - 1); }
static __device__ __forceinline__ int w_scale_row(const ScaledRows& rows, int n) {
  return at_most(n, rows.n - 1) / SCALE_BLOCK;
}

static __device__ __forceinline__ BlockScalesAt block_scales_at(const ScaledRows& rows) {
  const int columns = (int)rows.scales.x_row_step;
  const int a = w_scale_row(rows, rows.a);
  const int b = x_scale_row(rows, rows.b);
  BlockScalesAt at;
  at.a = (const scale_bits*)rows.scales.w + (long long)a * columns;
  at.b = (const scale_bits*)rows.scales.x + (long long)b * columns;
  // Otherwise the compiler computes the addresses anew for each atom, between the instructions of the tensor core.
  asm volatile("" : "+l"(at.a), "+l"(at.b));
  at.last_k = columns - 1;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) at.a_at[r] = (w_scale_row(rows, rows.a + r * 64) - a) * columns;
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; ++i)
    at.b_at[i] = (x_scale_row(rows, rows.b + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2) - b) * columns;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) asm volatile("" : "+r"(at.a_at[r]));
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; ++i) asm volatile("" : "+r"(at.b_at[i]));
  return at;
}

static __device__ __forceinline__ BlockScales block_scales(const BlockScalesAt& at, int k_atom) {
  const int k = at_most(k_atom, at.last_k);  // the last stage may have an atom past the end of k
  BlockScales scales;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) scales.a[r] = load_scale(at.a, at.a_at[r] + k);
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; ++i) scales.b[i] = load_scale(at.b, at.b_at[i] + k);
  return scales;
}

// The scale of accumulator i of tile r.
static __device__ __forceinline__ float block_scale(const BlockScales& scales, int r, int i) {
  return scales.a[r] * scales.b[i / 4 * 2 + i % 2];
}
