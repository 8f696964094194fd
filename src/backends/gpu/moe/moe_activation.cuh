// The function between the two GEMMs of a mixture of experts. The host defines ACTIVATION (0: none, 1: silu, 2: gelu, 3: swiglu) and GATED.
static __device__ inline float sigmoid(float value) { return 1.0f / (1.0f + __expf(-value)); }

// `up` matters with GATED alone.
static __device__ inline float activate(float gate, float up) {
#if ACTIVATION == 3
  gate = fminf(gate, 7.0f);
  up = fminf(fmaxf(up, -7.0f), 7.0f);
  return gate * sigmoid(1.702f * gate) * (up + 1.0f);
#else
#if ACTIVATION == 1
  const float value = gate * sigmoid(gate);
#elif ACTIVATION == 2
  const float value = 0.5f * gate * (1.0f + erff(gate * 0.70710678f));
#else
  const float value = gate;
#endif
  return GATED ? value * up : value;
#endif
}
