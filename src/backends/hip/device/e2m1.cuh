// Eight e2m1 elements of a word as numbers, without instructions for them: the bytes of the numbers come from tables of eight bytes, chosen by the
// elements' magnitudes. 0x0c selects a zero.
#pragma once

typedef float float_pair __attribute__((vector_size(8)));
typedef _Float16 half_pair __attribute__((vector_size(4)));

// The upper two bytes of the numbers of elements 0, 2, 4, 6 and of 1, 3, 5, 7.
struct E2m1Floats {
  unsigned even_high, odd_high, even_low, odd_low;
};
static __device__ __forceinline__ E2m1Floats e2m1_floats(unsigned word) {
  const unsigned even = word & 0x07070707u;
  const unsigned odd = word >> 4 & 0x07070707u;
  return {__builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, even) | (word & 0x08080808u) << 4,
          __builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, odd) | (word & 0x80808080u),
          __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, even), __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, odd)};
}
// Elements 2 i and 2 i + 1.
static __device__ __forceinline__ float_pair e2m1_pair(const E2m1Floats& from, unsigned i) {
  const unsigned bytes = (4 + i) << 24 | i << 16 | 0x0c0cu;
  return float_pair{__uint_as_float(__builtin_amdgcn_perm(from.even_high, from.even_low, bytes)),
                    __uint_as_float(__builtin_amdgcn_perm(from.odd_high, from.odd_low, bytes))};
}

static __device__ inline void decode_e2m1(half_pair (&to)[4], unsigned word) {
  const unsigned even = word & 0x07070707u;
  const unsigned odd = word >> 4 & 0x07070707u;
  const unsigned evens = __builtin_amdgcn_perm(0x46444240u, 0x3e3c3800u, even) | (word & 0x08080808u) << 4;
  const unsigned odds = __builtin_amdgcn_perm(0x46444240u, 0x3e3c3800u, odd) | (word & 0x80808080u);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    to[i] =
        __builtin_bit_cast(half_pair, __builtin_amdgcn_perm(odds, evens, (4 + i) << 24 | 0x0c0000u | i << 8 | 0x0cu));
}
static __device__ inline void decode_e2m1(float (&to)[8], unsigned word) {
  const E2m1Floats floats = e2m1_floats(word);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const float_pair pair = e2m1_pair(floats, i);
    to[2 * i] = pair[0];
    to[2 * i + 1] = pair[1];
  }
}
