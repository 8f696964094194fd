// Quantizes the hidden layer to fp8: each group of a row is divided by its largest magnitude over 448. Half a warp for each group, a vector of 8 columns a lane.

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/families/wgmma_moe/moe_quantize_arguments.h"
#include "backends/gpu/moe/moe_dependent.cuh"

using gemmtune::cuda::MoeQuantizeArguments;

#define THREADS 256
#define LANES 16  // of a group
#define WIDTH 8   // columns of a lane

static __device__ inline float low_of(unsigned bits) { return __uint_as_float(bits << 16); }
static __device__ inline float high_of(unsigned bits) { return __uint_as_float(bits & 0xffff0000u); }
static __device__ inline float largest(unsigned bits) { return fmaxf(fabsf(low_of(bits)), fabsf(high_of(bits))); }

extern "C" __global__ void __launch_bounds__(THREADS) moe_quantize(const MoeQuantizeArguments a) {
  wait_for_the_kernel_in_front();
  const int lane = threadIdx.x % LANES;
  const int groups = (a.columns + a.group - 1) / a.group;
  const long long item = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
  const bool there = item < (long long)a.pairs * groups;
  const long long pair = there ? item / groups : 0;
  const int group = there ? (int)(item % groups) : 0;
  const int begin = group * a.group;
  const int end = !there ? begin : begin + a.group < a.columns ? begin + a.group : a.columns;
  const unsigned short* from = a.hidden + pair * a.columns;
  float most = 0.0f;
  uint4 bits = make_uint4(0u, 0u, 0u, 0u);
  for (int column = begin + lane * WIDTH; column < end; column += LANES * WIDTH) {
    bits = *(const uint4*)(from + column);
    most = fmaxf(most, fmaxf(fmaxf(largest(bits.x), largest(bits.y)), fmaxf(largest(bits.z), largest(bits.w))));
  }
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  const float scale = fmaxf(most, 1e-30f) / 448.0f;
  const float factor = 1.0f / scale;
  const bool once = a.group <= LANES * WIDTH;
  for (int column = begin + lane * WIDTH; column < end; column += LANES * WIDTH) {
    if (!once) bits = *(const uint4*)(from + column);
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = fp8_pair(low_of(words[i]) * factor, high_of(words[i]) * factor);
    *(uint2*)(a.to + pair * a.columns + column) = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
  }
  if (there && lane == 0) a.scales[(long long)group * a.pairs + pair] = scale;
}
