// Elements and scales of the operands of a mixture, by type codes. Types: 1: fp16, 2: bf16, 3: fp8 e4m3fn, 4: int8, 5: fp4 e2m1,
// 6: fp8 e4m3fnuz, 7: int4; of scales 0: none, 1: float32, 2: e8m0, 3: e4m3, 4: bf16, 5: fp16.
#pragma once

#include "backends/gpu/device/numbers.cuh"

template <int type>
static __device__ inline unsigned bits_at(const unsigned char* data, long long index) {
  if constexpr (type == 1 || type == 2) return ((const unsigned short*)data)[index];
  if constexpr (type == 5 || type == 7) return (unsigned)data[index / 2] >> (index % 2 * 4) & 15u;
  return data[index];
}
template <int type>
static __device__ inline float value_of(unsigned bits) {
  if constexpr (type == 1) return half_to_float((unsigned short)bits);
  if constexpr (type == 2) return bfloat_to_float((unsigned short)bits);
  if constexpr (type == 3) return e4m3_to_float((unsigned char)bits);
  if constexpr (type == 4) return (float)(signed char)bits;
  if constexpr (type == 5) {
    const unsigned char pair = (unsigned char)bits;
    return read_fp4(&pair, 0);
  }
  if constexpr (type == 6) return e4m3fnuz_to_float((unsigned char)bits);
  if constexpr (type == 7) return (float)((int)(bits << 28) >> 28);
  return 0.0f;
}
template <int type>
static __device__ inline float value_at(const unsigned char* data, long long index) {
  return value_of<type>(bits_at<type>(data, index));
}
template <int type>
static __device__ inline float scale_at(const void* values, long long index) {
  if constexpr (type == 0) return 1.0f;
  if constexpr (type == 3) return e4m3_to_float(((const unsigned char*)values)[index]);
  if constexpr (type == 4) return bfloat_to_float(((const unsigned short*)values)[index]);
  if constexpr (type == 5) return half_to_float(((const unsigned short*)values)[index]);
  return type == 1 ? ((const float*)values)[index] : e8m0_to_float(((const unsigned char*)values)[index]);
}
