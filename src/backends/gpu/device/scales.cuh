// Scales of quantized operands. SCALES: 0: none, 1: one a matrix, 2: one a row of x and of w, 3: one for 1 x 128 of x and for 128 x 128 of w, 4: e8m0 for 1 x 32. WEIGHT_FP4: w has those whatever x has.
// E8M0: those of blocks are powers of two, 2^(byte - 127), a byte each.
#pragma once

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/families/scales_arguments.h"

#define SCALE_BLOCK 128
#define MX_BLOCK 32

#if E8M0
typedef unsigned char scale_bits;
static __device__ inline float read_scale(unsigned bits) { return e8m0_to_float((unsigned char)bits); }
#else
typedef float scale_bits;
static __device__ inline float read_scale(float value) { return value; }
#endif

// Those of one batch, of matrices with m and n rows: scales of rows lie one behind the other, one scale serves all batches.
static __device__ inline gemmtune::gpu::ScalesArguments scales_of_batch(gemmtune::gpu::ScalesArguments scales,
                                                                        long long batch, long long m, long long n) {
  if (SCALES != 2) return scales;
  scales.x += batch * m * scales.x_row_step;
  scales.w += batch * n * scales.w_row_step;
  return scales;
}
static __device__ inline float x_scale_at(const gemmtune::gpu::ScalesArguments& scales, long long m, long long k) {
#if SCALES == 4
  return e8m0_to_float(((const unsigned char*)scales.x)[m * scales.x_row_step + k / MX_BLOCK]);
#endif
  return SCALES == 0
             ? 1.0f
             : read_scale(((const scale_bits*)scales.x)[m * scales.x_row_step + (SCALES == 3 ? k / SCALE_BLOCK : 0)]);
}
static __device__ inline float w_scale_at(const gemmtune::gpu::ScalesArguments& scales, long long n, long long k) {
#if WEIGHT_FP4
  return e8m0_to_float(((const unsigned char*)scales.w)[n * scales.w_row_step + k / MX_BLOCK]);
#endif
  return SCALES == 0
             ? 1.0f
             : read_scale(((const scale_bits*)scales.w)[(SCALES == 3 ? n / SCALE_BLOCK : n) * scales.w_row_step +
                                                        (SCALES == 3 ? k / SCALE_BLOCK : 0)]);
}
