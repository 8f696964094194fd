// i4 to bf16 or fp16, exactly: an element plus 8 in the lowest bits of the mantissa of 128 (of fp16 1024) is 136 (1032)
// plus the element.
#pragma once

#include "backends/cuda/device/e2m1.cuh"

// The lowest four bits of each half. One bit's flip adds 8 to two's complement.
template <bool FP16 = false>
static __device__ __forceinline__ unsigned raise_int4(unsigned bits) {
  // (bits & mask) ^ magic by one instruction, one constant in a register: the compiler makes two with a constant each.
  unsigned raised;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
      : "=r"(raised)
      : "r"(bits), "r"(0x000f000fu), "r"(FP16 ? 0x64086408u : 0x43084308u));
  return raised;
}
// What is subtracted from raised elements: 136 (1032) plus the zero point, in both halves.
template <bool FP16 = false>
static __device__ __forceinline__ unsigned int4_offset(int zero_point) {
  return (FP16 ? 0x64086408u : 0x43084308u) + (unsigned)zero_point * 0x00010001u;
}
template <bool FP16 = false>
static __device__ __forceinline__ unsigned subtract_int4(unsigned raised, unsigned offset) {
  unsigned difference;
  if constexpr (FP16)
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(raised), "r"(offset));
  else
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(raised), "r"(offset));
  return difference;
}

// Of a word of a plain weight: to[j] are its elements j and j + 4, raised. Of one of the layout fragment64: the four
// registers of 16 of k (rows r, r + 8, r, r + 8; k from 0, 0, 8, 8 on).
template <bool FP16 = false>
static __device__ __forceinline__ void raise_word(unsigned (&to)[4], unsigned word) {
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = raise_int4<FP16>(word >> (4 * j));
}
// Byte i of `bytes`: an element in each half, raised.
static __device__ __forceinline__ unsigned raise_byte(unsigned bytes, int i) {
  return raise_int4(__byte_perm(bytes, bytes >> 4, (unsigned)(i * 0x0011 + (4 + i) * 0x1100)));
}

// The same to bf16 with fewer shifts: of a half whose other bits are zero, bits 0 to 3 are that many units of 2^-133 and bits 4 to 7 of 2^-129, subnormal or just normal
// numbers. One product and sum makes of them the element less its zero point, over INT4_UNIT, exactly.
#define INT4_UNIT 64.0f
template <int FIRST>
static __device__ __forceinline__ unsigned mask_int4(unsigned bits) {
  static_assert(FIRST == 0 || FIRST == 4, "bits of a mantissa, or of it and the exponent's lowest one");
  unsigned masked;
  // (bits ^ flips) & mask: one constant in a register for both masks.
  asm("lop3.b32 %0, %1, %2, %3, 0x48;" : "=r"(masked) : "r"(bits), "r"(0x000f000fu << FIRST), "r"(0x00880088u));
  return masked;
}
// As raise_word().
static __device__ __forceinline__ void mask_word(unsigned (&to)[4], unsigned word) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to[i * 2] = mask_int4<0>(word >> (8 * i));
    to[i * 2 + 1] = mask_int4<4>(word >> (8 * i));
  }
}
// What is added to them: the zero point plus 8, negative, over INT4_UNIT.
static __device__ __forceinline__ unsigned masked_offset(int zero_point) {
  unsigned offset;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(offset)
      : "r"(int4_offset(zero_point)), "r"(0xbc80bc80u), "r"(0x40004000u));  // (136 + zero_point) / -64 + 128 / 64
  return offset;
}
// Of to[i] of mask_word().
static __device__ __forceinline__ unsigned scale_masked(unsigned masked, int i, unsigned offset) {
  unsigned element;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(element)
      : "r"(masked), "r"(i % 2 == 0 ? 0x7f007f00u : 0x7d007d00u), "r"(offset));  // 2^127, 2^123
  return element;
}

// Elements times their group's scale, rounded once, over INT4_UNIT: to[i] of mask_word() times a factor, plus 8 times the scale, negative, which is exact. A factor of 2 and
// more is beyond bf16 (has_rare_int4_scale()): then, and with zero points, an element is made first.
static __device__ __forceinline__ unsigned int4_scale_pair(const unsigned* words,
                                                           int group) {  // of bf16, in both halves
  return __byte_perm(words[group / 2], 0u, group % 2 == 0 ? 0x1010u : 0x3232u);
}
static __device__ __forceinline__ unsigned scaled_int4_factor(unsigned scales, int i) {
  return multiply(scales, i % 2 == 0 ? 0x7f007f00u : 0x7d007d00u);  // 2^127, 2^123
}
static __device__ __forceinline__ unsigned scaled_int4_offset(unsigned scales) {
  return multiply(scales, 0xbe00be00u);  // -8 / INT4_UNIT
}
static __device__ __forceinline__ bool has_rare_int4_scale(unsigned scales) { return (scales & 0x40004000u) != 0u; }
