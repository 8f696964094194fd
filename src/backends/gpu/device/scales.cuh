// Scales of quantized operands (Scales, types_arguments.h).
#pragma once

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/families/scales_arguments.h"

#define SCALE_BLOCK 128
#define MX_BLOCK 32

template <bool BYTES>
struct ScaleBits {
  typedef float type;
  typedef float value;
};
template <>
struct ScaleBits<true> {
  typedef unsigned char type;
  typedef unsigned value;
};
typedef ScaleBits<types().e8m0>::type scale_bits;
static __device__ inline float read_scale(ScaleBits<types().e8m0>::value bits) {
  if constexpr (types().e8m0)
    return e8m0_to_float((unsigned char)bits);
  else
    return bits;
}

// Those of one batch, of matrices with m and n rows: scales of rows lie one behind the other, one scale serves all
// batches.
static __device__ inline gemmtune::gpu::ScalesArguments scales_of_batch(gemmtune::gpu::ScalesArguments scales,
                                                                        long long batch, long long m, long long n) {
  if (types().scales != Scales::rows) return scales;
  scales.x += batch * m * scales.x_row_step;
  scales.w += batch * n * scales.w_row_step;
  return scales;
}
static __device__ inline float x_scale_at(const gemmtune::gpu::ScalesArguments& scales, long long m, long long k) {
  if constexpr (types().scales == Scales::none) return 1.0f;
  if constexpr (types().scales == Scales::mx)
    return e8m0_to_float(((const unsigned char*)scales.x)[m * scales.x_row_step + k / MX_BLOCK]);
  constexpr bool blocks = types().scales == Scales::blocks;
  return read_scale(((const scale_bits*)scales.x)[m * scales.x_row_step + (blocks ? k / SCALE_BLOCK : 0)]);
}
static __device__ inline float w_scale_at(const gemmtune::gpu::ScalesArguments& scales, long long n, long long k) {
  if constexpr (types().weight_fp4)
    return e8m0_to_float(((const unsigned char*)scales.w)[n * scales.w_row_step + k / MX_BLOCK]);
  if constexpr (types().scales == Scales::none) return 1.0f;
  constexpr bool blocks = types().scales == Scales::blocks;
  return read_scale(((const scale_bits*)scales
                         .w)[(blocks ? n / SCALE_BLOCK : n) * scales.w_row_step + (blocks ? k / SCALE_BLOCK : 0)]);
}
