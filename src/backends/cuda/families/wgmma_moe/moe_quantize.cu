// Quantizes the hidden layer to fp8: each group of a row is divided by its largest magnitude over 448. A warp for each group.
using gemmtune::cuda::MoeQuantizeArguments;

#define THREADS 256
#define WIDTH 4  // columns of a lane

static __device__ inline unsigned fp8_pair(float first, float second) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
}

extern "C" __global__ void __launch_bounds__(THREADS) moe_quantize(const MoeQuantizeArguments a) {
  wait_for_the_kernel_in_front();
  const int lane = threadIdx.x % 32;
  const int groups = (a.columns + a.group - 1) / a.group;
  const long long item = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (item >= (long long)a.pairs * groups) return;
  const long long pair = item / groups;
  const int group = (int)(item % groups);
  const int begin = group * a.group;
  const int end = begin + a.group < a.columns ? begin + a.group : a.columns;
  const unsigned short* from = a.hidden + pair * a.columns;
  float most = 0.0f;
  for (int column = begin + lane * WIDTH; column < end; column += 32 * WIDTH) {
    const uint2 bits = *(const uint2*)(from + column);
    most = fmaxf(most, fmaxf(fmaxf(fabsf(__uint_as_float(bits.x << 16)), fabsf(__uint_as_float(bits.x & 0xffff0000u))),
                             fmaxf(fabsf(__uint_as_float(bits.y << 16)), fabsf(__uint_as_float(bits.y & 0xffff0000u)))));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  const float scale = fmaxf(most, 1e-30f) / 448.0f;
  const float factor = 1.0f / scale;
  for (int column = begin + lane * WIDTH; column < end; column += 32 * WIDTH) {
    const uint2 bits = *(const uint2*)(from + column);
    const unsigned low = fp8_pair(__uint_as_float(bits.x << 16) * factor, __uint_as_float(bits.x & 0xffff0000u) * factor);
    const unsigned high = fp8_pair(__uint_as_float(bits.y << 16) * factor, __uint_as_float(bits.y & 0xffff0000u) * factor);
    *(unsigned*)(a.to + pair * a.columns + column) = low | high << 16;
  }
  if (lane == 0) a.scales[(long long)group * a.pairs + pair] = scale;
}
