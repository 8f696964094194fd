// x of a mixture as bf16, exactly, or fp16 as it is, for kernels with a weight of 4 bits; with PERMUTED its columns are permuted within 128, as wgmma_moe needs it: column 32 t + 8 w + j + 4 i
// goes to 32 w + 8 j + 2 t + i (t, w, j < 4, i < 2), or with PERMUTED 2 column 32 w + 8 t + j + 4 i. With pair_of tokens are sorted by expert, too. A thread has one w of a unit: 8 columns of each t.
//
// The host defines X_TYPE and X_SCALES (moe_elements.cuh; scales are e8m0 of 32 columns, or none), TOKEN_UNIT (of what is stored: elements times the largest e8m0 scales are
// more than bf16 holds), PERMUTED.

#include "backends/cuda/families/wgmma_moe/moe_permute_arguments.h"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_dependent.cuh"
#include "backends/gpu/moe/moe_elements.cuh"

using gemmtune::cuda::MoePermuteArguments;

#define THREADS 256

#if X_TYPE == 1 || X_TYPE == 2
static __device__ inline uint4 load_columns(const MoePermuteArguments& a, long long token, int column) {
  return *(const uint4*)(a.x + token * a.x_row_bytes + column * 2);
}
#else
#define PER_BYTE (X_TYPE == 5 ? 2 : 1)
// Eight elements, and a power of two, have few enough bits for bf16: what is cut off is zero.
static __device__ inline uint4 load_columns(const MoePermuteArguments& a, long long token, int column) {
  const unsigned char* const from = a.x + token * a.x_row_bytes + column / PER_BYTE;
  unsigned words[2] = {*(const unsigned*)from, 0};
  if (PER_BYTE == 1) words[1] = *(const unsigned*)(from + 4);
  const float scale = scale_at<X_SCALES>(a.x_scales, token * (a.columns / 32) + column / 32) * (1.0f / TOKEN_UNIT);
  unsigned pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned bits[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int element = 2 * i + half;
      const unsigned raw = PER_BYTE == 2 ? words[0] >> 4 * element & 15u : words[element / 4] >> element % 4 * 8 & 255u;
      bits[half] = __float_as_uint(value_of<X_TYPE>(raw) * scale);
    }
    pairs[i] = __byte_perm(bits[0], bits[1], 0x7632);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) moe_permute(const MoePermuteArguments a) {
  wait_for_the_kernel_in_front();
  const long long item = (long long)blockIdx.x * THREADS + threadIdx.x;
  const int each = a.units * 4;
  const long long position = item / each;
  if (position >= a.rows) return;
  long long token = position;
  if (a.pair_of) {
    // Positions behind those of the experts have no pair.
    const unsigned of = (unsigned)a.pair_of[position] / (unsigned)a.topk;
    token = of < (unsigned)a.tokens ? of : 0u;
  }
  const int unit = (int)(item % each) / 4;
  const int w = (int)(item % each) % 4;
  uint4 from[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const int column = unit * 128 + (PERMUTED == 2 ? w * 32 + t * 8 : t * 32 + w * 8);
    from[t] = make_uint4(0, 0, 0, 0);
    if (column < a.columns) from[t] = load_columns(a, token, column);
  }
  unsigned char* const row = a.to + (position * a.units + unit) * 256;
#if PERMUTED
  uint4* const to = (uint4*)(row + w * 64);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    unsigned pairs[4];  // columns j and j + 4 of each t
#pragma unroll
    for (int t = 0; t < 4; ++t)
      pairs[t] =
          __byte_perm(j < 2 ? from[t].x : from[t].y, j < 2 ? from[t].z : from[t].w, j % 2 == 0 ? 0x5410 : 0x7632);
    to[j] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
#else
#pragma unroll
  for (int t = 0; t < 4; ++t) *(uint4*)(row + t * 64 + w * 16) = from[t];
#endif
}
