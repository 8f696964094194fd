// e2m1 with a scale of e4m3 for 16 elements to bf16 or fp16, exactly: products have at most six significant bits. Elements
// come times 2^-126 (e2m1.cuh), of fp16 times 2^-14.
#pragma once

#include "backends/cuda/device/e2m1.cuh"

// The factor 2^119 * scale makes it the element times its scale over NVFP4_UNIT: the largest scale times 2^119 is the
// largest that bf16 holds. Sums of products are multiplied by that unit.
// Of fp16 the factor is 2^7 * scale, and the smallest element times the smallest scale over NVFP4_UNIT is 2^-17.
#define NVFP4_UNIT 128.0f

// Of a scale that is positive, normal and a number: its bits in the places of bf16's, and the difference of the exponents.
static __device__ __forceinline__ unsigned normal_e4m3_factor(unsigned code) {
  return code * 0x00100010u + 0x77807780u;
}
// As it, of the two of a byte_pair().
static __device__ __forceinline__ unsigned normal_e4m3_factor_pair(unsigned codes) {
  return codes * 0x10u + 0x77807780u;
}
// has_rare_e4m3() of the OR of these: whether one of four scales is another one, below 8 or above 0x7e. Carries come of rare ones alone, and hide none.
static __device__ __forceinline__ unsigned rare_e4m3(unsigned codes) {
  return (codes + 0x01010101u) | (codes - 0x08080808u);
}
static __device__ __forceinline__ bool has_rare_e4m3(unsigned rare) { return (rare & 0x80808080u) != 0u; }
// Of any two scales, in the lower two bytes.
static __device__ __forceinline__ void e4m3_factors(unsigned (&factors)[2], unsigned codes) {
  unsigned halves;
  asm("{\n.reg .b16 codes;\ncvt.u16.u32 codes, %1;\ncvt.rn.f16x2.e4m3x2 %0, codes;\n}" : "=r"(halves) : "r"(codes));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float scale;
    asm("cvt.f32.f16 %0, %1;" : "=f"(scale) : "h"((unsigned short)(halves >> (i * 16))));
    factors[i] = __byte_perm(__float_as_uint(scale * 0x1p119f), 0u, 0x3232u);
  }
}

// As e4m3_factors(), of fp16.
static __device__ __forceinline__ void e4m3_half_factors(unsigned (&factors)[2], unsigned codes) {
  unsigned halves;
  asm("{\n.reg .b16 codes;\ncvt.u16.u32 codes, %1;\ncvt.rn.f16x2.e4m3x2 %0, codes;\n}" : "=r"(halves) : "r"(codes));
  const unsigned scaled = multiply_halves(halves, 0x58005800u);
  factors[0] = __byte_perm(scaled, 0u, 0x1010u);
  factors[1] = __byte_perm(scaled, 0u, 0x3232u);
}
