// Conversions of two numbers at once.
#pragma once

#include "backends/gpu/device/types.cuh"

// Two adjacent elements of y, of two bytes, the first in the lower half.
static __device__ inline unsigned round_pair(float first, float second) {
  unsigned pair;
  if constexpr (types().output == Element::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// Two adjacent elements of fp8 e4m3, the first in the lower half; beyond their range the largest one.
static __device__ __forceinline__ unsigned fp8_pair(float first, float second) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
}
