// Scales of quantized operands (Scales, types_arguments.h).
#pragma once

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/families/scales_arguments.h"

#define SCALE_BLOCK 128
#define MX_BLOCK 32
#define NV_BLOCK 16

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
// Scales of nv lack those of the matrices: x_global(), w_global().
static __device__ inline float x_scale_at(const gemmtune::gpu::ScalesArguments& scales, long long m, long long k) {
  if constexpr (types().scales == Scales::none) return 1.0f;
  if constexpr (types().scales == Scales::mx)
    return e8m0_to_float(((const unsigned char*)scales.x)[m * scales.x_row_step + k / MX_BLOCK]);
  if constexpr (types().scales == Scales::nv)
    return e4m3_to_float(((const unsigned char*)scales.x)[m * scales.x_row_step + k / NV_BLOCK]);
  constexpr bool blocks = types().scales == Scales::blocks;
  return read_scale(((const scale_bits*)scales.x)[m * scales.x_row_step + (blocks ? k / SCALE_BLOCK : 0)]);
}
static __device__ inline long long group_of(long long k) {
  constexpr int group = types().w_group;
  return group == 0 ? 0 : k / (group == 0 ? 1 : group);
}
static __device__ inline float w_scale_at(const gemmtune::gpu::ScalesArguments& scales, long long n, long long k) {
  if constexpr (types().w_scales == Scales::none) return 1.0f;
  if constexpr (types().w_scales == Scales::mx)
    return e8m0_to_float(((const unsigned char*)scales.w)[n * scales.w_row_step + k / MX_BLOCK]);
  if constexpr (types().w_scales == Scales::nv)
    return e4m3_to_float(((const unsigned char*)scales.w)[n * scales.w_row_step + k / NV_BLOCK]);
  if constexpr (types().w_scales == Scales::groups)
    return read_output(((const output*)scales.w)[n * scales.w_row_step + group_of(k)]);
  constexpr bool blocks = types().w_scales == Scales::blocks;
  return read_scale(((const scale_bits*)scales
                         .w)[(blocks ? n / SCALE_BLOCK : n) * scales.w_row_step + (blocks ? k / SCALE_BLOCK : 0)]);
}
static __device__ inline float x_global(const gemmtune::gpu::FormatArguments& format) {
  if constexpr (types().scales == Scales::nv) return *format.x_global;
  return 1.0f;
}
static __device__ inline float w_global(const gemmtune::gpu::FormatArguments& format) {
  if constexpr (types().w_scales == Scales::nv) return *format.w_global;
  return 1.0f;
}
// What is subtracted from elements of row n of w. `row_step`: of the scales.
static __device__ inline float zero_point_at(const gemmtune::gpu::FormatArguments& format, long long row_step,
                                             long long n, long long k) {
  if constexpr (types().zero_points) return (float)format.zero_points[n * row_step + group_of(k)];
  return 0.0f;
}
