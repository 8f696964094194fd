// i4 to bf16 or fp16, exactly: an element plus 8 in the lowest bits of the mantissa of 128 (of fp16 1024) is 136 (1032)
// plus the element.
#pragma once

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
