// The function between the two GEMMs of a mixture of experts. The host defines ACTIVATION (0: none, 1: silu, 2: gelu, 3: swiglu) and GATED.
#pragma once

#if defined(__CUDACC_RTC__)
// Six instructions. An exact division is a dozen and a branch, and __expf keeps results below 2^-126, which 1 absorbs.
static __device__ inline float sigmoid(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value * -1.442695041f));
  return __fdividef(1.0f, 1.0f + power);
}
#else
static __device__ inline float sigmoid(float value) { return 1.0f / (1.0f + __expf(-value)); }
#endif

// `up` matters with GATED alone.
static __device__ inline float activate(float gate, float up) {
  if constexpr (ACTIVATION == 3) {
    // Not fminf, which makes a number of NaN.
    gate = gate > 7.0f ? 7.0f : gate;
    up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return gate * sigmoid(1.702f * gate) * (up + 1.0f);
  }
  float value = gate;
  if constexpr (ACTIVATION == 1) value = gate * sigmoid(gate);
  if constexpr (ACTIVATION == 2) value = 0.5f * gate * (1.0f + erff(gate * 0.70710678f));
  return GATED ? value * up : value;
}
