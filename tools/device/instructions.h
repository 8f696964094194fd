// Stand-ins for the instructions that the host generates for wgmma, mxfp4 and wgmma_moe: the check of syntax needs no more.
#pragma once

#define WGMMA(...) ((void)0)
#define WGMMA_FIRST(...) ((void)0)
#define FENCE_ACCUMULATORS(...) ((void)0)

template <int WIDTH>
struct Instruction {
  static __device__ void first(float*, unsigned long long, unsigned long long) {}
  static __device__ void multiply(float*, unsigned long long, unsigned long long, int) {}
  static __device__ void multiply(float*, const unsigned (&)[4], unsigned long long) {}
  static __device__ void fence(float*) {}
};
