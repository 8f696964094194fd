// Makes bf16 of fp4 (with its scales; of MXFP4 over 4: the largest ones times 6 are more than bf16 holds), fp8, int8 or fp16 activations, exactly: an fp16 element
// becomes two. A thread has 16 bytes of a row.

#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_activations_arguments.h"
#include "backends/gpu/device/numbers.cuh"

using gemmtune::cuda::Mxfp4ActivationsArguments;

enum : int {
  PER_THREAD = types().element == Element::e2m1                                       ? 32
               : types().element == Element::e4m3 || types().element == Element::int8 ? 16
                                                                                      : 8,  // elements in 16 bytes
  WIDE_ROWS = types().element == Element::f16 ? 2 : 1,  // rows of bf16 for a row of x
};

// Exact: the upper half of a float32 whose lower half is zero.
static __device__ inline unsigned pair_of(float first, float second) {
  return __float_as_uint(first) >> 16 | (__float_as_uint(second) & 0xffff0000u);
}

extern "C" __global__ void __launch_bounds__(256) mxfp4_activations(const Mxfp4ActivationsArguments a) {
  // The next kernel may start: it waits for this one where it reads x. Before that this kernel waits for all in front of it, which may read what it
  // writes.
  launch_dependents();
  grid_dependency_wait();
  const int units = a.k / PER_THREAD;
  const long long unit = blockIdx.x * 256LL + threadIdx.x;
  if (unit >= (long long)a.m * units) return;
  const long long row = unit / units;
  const int column = (int)(unit % units) * PER_THREAD;
  const unsigned char* const from = a.x + row * a.row_bytes + unit % units * 16;
  unsigned words[4];
  if (a.aligned) {
    const uint4 bits = *(const uint4*)from;
    words[0] = bits.x, words[1] = bits.y, words[2] = bits.z, words[3] = bits.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = (unsigned)from[4 * i] | (unsigned)from[4 * i + 1] << 8 | (unsigned)from[4 * i + 2] << 16 |
                 (unsigned)from[4 * i + 3] << 24;
  }
  unsigned wide[WIDE_ROWS][PER_THREAD / 2];
  // Of fp4: of 32 elements, or of 16.
  float scales[2] = {0.25f, 0.25f};
  if constexpr (types().scales == Scales::mx)
    scales[0] = scales[1] = 0.25f * e8m0_to_float(a.scales[row * (a.k / 32) + column / 32]);
  if constexpr (types().scales == Scales::nv) {
#pragma unroll
    for (int i = 0; i < 2; ++i) scales[i] = e4m3_to_float(a.scales[row * (a.k / 16) + column / 16 + i]);
  }
#pragma unroll
  for (int i = 0; i < PER_THREAD / 2; ++i) {
    if constexpr (types().element == Element::e2m1) {
      const unsigned char pair = (unsigned char)(words[i / 4] >> (i % 4 * 8));
      wide[0][i] = pair_of(read_fp4(&pair, 0) * scales[i / 8], read_fp4(&pair, 1) * scales[i / 8]);
    } else if constexpr (PER_THREAD == 16) {
      const unsigned pair = words[i / 2] >> (i % 2 * 16);
      wide[0][i] =
          pair_of(read_element((element)(unsigned char)pair), read_element((element)(unsigned char)(pair >> 8)));
    } else {
      const float first = half_to_float((unsigned short)words[i]);
      const float second = half_to_float((unsigned short)(words[i] >> 16));
      const float first_upper = __uint_as_float(__float_as_uint(first) & 0xffff0000u);
      const float second_upper = __uint_as_float(__float_as_uint(second) & 0xffff0000u);
      wide[0][i] = pair_of(first_upper, second_upper);
      // The difference of infinities is NaN: there is nothing left of one.
      wide[WIDE_ROWS - 1][i] = pair_of(first == first_upper ? 0.0f : first - first_upper,
                                       second == second_upper ? 0.0f : second - second_upper);
    }
  }
#pragma unroll
  for (int part = 0; part < WIDE_ROWS; ++part) {
    uint4* const to = (uint4*)(a.to + (row * WIDE_ROWS + part) * a.k + column);
#pragma unroll
    for (int i = 0; i < PER_THREAD / 8; ++i)
      to[i] = make_uint4(wide[part][4 * i], wide[part][4 * i + 1], wide[part][4 * i + 2], wide[part][4 * i + 3]);
  }
}
