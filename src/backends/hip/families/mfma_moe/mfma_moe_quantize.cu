// Quantizes the hidden layer: each group of a row is divided by its largest magnitude over the largest number of the type. A wave for each group.
//
// types().element is int8 or e4m3fnuz.

#include "backends/gpu/device/numbers.cuh"
#include "backends/hip/families/mfma_moe/mfma_moe_quantize_arguments.h"

using gemmtune::hip::MfmaMoeQuantizeArguments;

#define THREADS 256
#define LANES 64
#define WIDTH 4  // columns of a lane
#define LARGEST (types().element == Element::int8 ? 127.0f : 240.0f)
#define SMALLEST 0x0d80u  // bf16 of 2^-100

struct alignas(8) HiddenFour {
  unsigned short value[WIDTH];
};

// Four numbers of a magnitude of at most LARGEST, a byte each, the first one in the low one.
static __device__ inline unsigned quantized_four(const float (&values)[WIDTH]) {
  if constexpr (types().element == Element::int8) {
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) bits |= ((unsigned)(int)rintf(values[i]) & 255u) << 8 * i;
    return bits;
  } else {
    const int low = __builtin_amdgcn_cvt_pk_fp8_f32(values[0], values[1], 0, false);
    return (unsigned)__builtin_amdgcn_cvt_pk_fp8_f32(values[2], values[3], low, true);
  }
}

static __device__ inline unsigned wave_maximum(unsigned value) {
#pragma unroll
  for (int step = 1; step < LANES; step *= 2) {
    const unsigned other = (unsigned)__builtin_amdgcn_ds_bpermute(((int)threadIdx.x ^ step) * 4, (int)value);
    value = other > value ? other : value;
  }
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) mfma_moe_quantize(const MfmaMoeQuantizeArguments a) {
  const int lane = threadIdx.x % LANES;
  const int groups = (a.columns + a.group - 1) / a.group;
  for (long long item = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES; item < a.pairs * groups;
       item += (long long)gridDim.x * (THREADS / LANES)) {
    const long long pair = item / groups;
    const int group = (int)(item % groups);
    const int begin = group * a.group;
    const int end = begin + a.group < a.columns ? begin + a.group : a.columns;
    const unsigned short* const from = a.hidden + pair * a.columns;
    unsigned bits = SMALLEST;  // a NaN has the largest ones: it makes the scale NaN
    for (int column = begin + lane * WIDTH; column < end; column += LANES * WIDTH) {
      const HiddenFour four = *(const HiddenFour*)(from + column);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) bits = (four.value[i] & 0x7fffu) > bits ? four.value[i] & 0x7fffu : bits;
    }
    const float largest = bfloat_to_float((unsigned short)wave_maximum(bits));
    const float factor = LARGEST / largest;
    for (int column = begin + lane * WIDTH; column < end; column += LANES * WIDTH) {
      const HiddenFour four = *(const HiddenFour*)(from + column);
      float values[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; ++i)
        values[i] = fminf(fmaxf(bfloat_to_float(four.value[i]) * factor, -LARGEST), LARGEST);
      *(unsigned*)(a.to + pair * a.columns + column) = quantized_four(values);
    }
    if (lane == 0) a.scales[group * a.pairs + pair] = largest / LARGEST;
  }
}
