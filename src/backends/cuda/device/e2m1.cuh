// e2m1 to bf16, exactly: three bits of a magnitude in place of the lowest two of the exponent and the highest of the
// mantissa are the element times 2^-126.
#pragma once

#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/wgmma.cuh"

#define MAGNITUDES 0x01c001c0u
#define SIGNS 0x80008000u

// The factor 2^(e - 3) makes it the element times its scale 2^(e - 127) over E2M1_UNIT: 6 * 2^(254 - 127) is more than
// bf16 holds, a quarter of it is not. Sums of products are multiplied by that unit. Above e = 130 the factor is 2^127,
// and what is missing is large_factor().
#define E2M1_UNIT 4.0f
static __device__ __forceinline__ unsigned scale_factor(unsigned e) { return e * 0x00800080u + 0x3e003e00u; }
static __device__ __forceinline__ unsigned without_large(unsigned e) { return e < 130u ? e : 130u; }
static __device__ __forceinline__ unsigned large_factor(unsigned e) {
  return e == 255u ? 0x7fc07fc0u : ((e > 130u ? e : 130u) - 3u) * 0x00800080u;
}
static __device__ __forceinline__ unsigned multiply(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Of two rows: byte i of a word of each, in the halves of the result, the first row's in the lower one. The bytes are below 0x80: their signs are the halves' upper
// bytes.
static __device__ __forceinline__ unsigned byte_pair(unsigned first, unsigned second, unsigned i) {
  unsigned pair;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(pair) : "r"(first), "r"(second), "r"(0xc480u + i * 0x1111u));
  return pair;
}
// As scale_factor(), of two scales up to 2.
static __device__ __forceinline__ unsigned scale_factor_pair(unsigned pair) { return pair * 0x80u + 0x3e003e00u; }
// A half of a word in both halves: the instruction that reads it chooses the half, which it does not where this is a __byte_perm().
static __device__ __forceinline__ unsigned repeat_half(unsigned word, int half) {
  unsigned both;
  if (half == 0)
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}" : "=r"(both) : "r"(word));
  else
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}" : "=r"(both) : "r"(word));
  return both;
}
static __device__ __forceinline__ unsigned multiply_add(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Of a word of a plain weight: to[j] are its elements j and j + 4, times 2^-126. A multiplication by two powers of two
// makes two copies of four bits: the sign of one and the magnitude of the other are in their places. It is of another
// unit than shifts and masks.
static __device__ __forceinline__ void spread_word(unsigned (&to)[4], unsigned word) {
  const unsigned right = word >> 6;
  to[0] = ((word & 0x000f000fu) * 0x1040u) & (SIGNS | MAGNITUDES);
  to[1] = ((word & 0x00f000f0u) * 0x0104u) & (SIGNS | MAGNITUDES);
  to[2] = ((right & 0x003c003cu) * 0x0410u) & (SIGNS | MAGNITUDES);
  to[3] = (word & SIGNS) | (right & MAGNITUDES);
}

static __device__ __forceinline__ unsigned multiply_halves(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// As spread_word(), to fp16: times 2^-14.
static __device__ __forceinline__ void spread_word_to_halves(unsigned (&to)[4], unsigned word) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned magnitudes = j < 3 ? word << (9 - 4 * j) : word >> 3;
    to[j] = ((word << (12 - 4 * j)) & SIGNS) | (magnitudes & 0x0e000e00u);
  }
}

// Byte i of `bytes`: an element in each half, times 2^-126.
static __device__ __forceinline__ unsigned spread_byte(unsigned bytes, int i) {
  const unsigned high =
      __byte_perm(bytes << 4, bytes, (unsigned)(i * 0x0011 + (4 + i) * 0x1100));  // in the upper four bits of each half
  return (high & SIGNS) | ((high >> 6) & MAGNITUDES);
}

// Of eight elements of x from 8 * i of the thread's 16 on, the pairs as spread_word() makes them.
static __device__ __forceinline__ void pair_x(unsigned (&to)[8], int i, const uint4& bits) {
  to[i * 4 + 0] = __byte_perm(bits.x, bits.z, 0x5410);
  to[i * 4 + 1] = __byte_perm(bits.x, bits.z, 0x7632);
  to[i * 4 + 2] = __byte_perm(bits.y, bits.w, 0x5410);
  to[i * 4 + 3] = __byte_perm(bits.y, bits.w, 0x7632);
}

// Of a word of the layout fragment64: the four registers of 16 of k (rows r, r + 8, r, r + 8; k from 0, 0, 8, 8 on),
// times 2^-126.
static __device__ __forceinline__ void spread_fragment(unsigned (&to)[4], unsigned word) {
  to[0] = word & (SIGNS | MAGNITUDES);
  to[1] = (word << 3) & (SIGNS | MAGNITUDES);
  to[2] = ((word << 6) & MAGNITUDES) | ((word << 1) & SIGNS);
  to[3] = ((word >> 3) & MAGNITUDES) | ((word << 2) & SIGNS);
}

// Decoded fragments are wgmma's first operand. Each batch of its instructions costs the tensor core about 40 cycles
// beside those of its columns, so fragments of several 16 of k are multiplied together, as many as a warp group with
// `tiles` of 64 rows has registers for in two buffers.
#define FRAGMENTS_PER_BATCH(tiles) ((tiles) == 1 ? 4 : 2)

// Starts COUNT products of 16 of k from `step` of a stage on: multiply(i, descriptor) is product i, whose second
// operand is K-major from descriptor_word `b` on, in atoms of `atom_bytes` for 64 of k.
template <int COUNT, typename Multiply>
static __device__ __forceinline__ void start_batch(unsigned b, int step, int atom_bytes, const Multiply& multiply) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    unsigned long long descriptor;
    asm("mov.b64 %0, {%1, %2};"
        : "=l"(descriptor)
        : "r"(b + (unsigned)((step + i) / 4 * (atom_bytes / 16) + (step + i) % 4 * 2)), "r"(DESCRIPTOR_UPPER_WORD));
    multiply(i, descriptor);
  }
  wgmma_commit();
}

static __device__ __forceinline__ unsigned load_scale_half_word(const unsigned char* from) {
  unsigned half;
  asm volatile("{\n.reg .b16 half;\nld.global.nc.L2::128B.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
               : "=r"(half)
               : "l"(from));
  return half;
}

static __device__ __forceinline__ unsigned load_scale_byte(const unsigned char* from) {
  unsigned byte;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(byte) : "l"(from));
  return byte;
}

// Four scales from `column` on of a row of `columns` scales in global memory, a byte each; zeros behind its end.
// `from`: of the first of the four. `alignment`: of the row and of its length, 4, 2 or 1.
static __device__ __forceinline__ unsigned load_scale_word(const unsigned char* from, int column, int columns,
                                                           int alignment) {
  unsigned word = 0;
  if (alignment == 4) {
    if (column < columns) asm volatile("ld.global.nc.L2::128B.b32 %0, [%1];" : "=r"(word) : "l"(from));
  } else if (alignment == 2) {
    if (column < columns) word = load_scale_half_word(from);
    if (column + 2 < columns) word |= load_scale_half_word(from + 2) << 16;
  } else {
#pragma unroll
    for (int byte = 0; byte < 4; ++byte)
      if (column + byte < columns) word |= load_scale_byte(from + byte) << (8 * byte);
  }
  return word;
}
// As it; behind the row's end are those of `behind`. A whole word is what was loaded: an instruction on it would wait for it.
static __device__ __forceinline__ unsigned load_scale_word_or(unsigned behind, const unsigned char* from, int column,
                                                              int columns, int alignment) {
  unsigned word = behind;
  if (alignment == 4) {
    if (column < columns) asm volatile("ld.global.nc.L2::128B.b32 %0, [%1];" : "=r"(word) : "l"(from));
  } else if (alignment == 2) {
    if (column < columns) word = (word & 0xffff0000u) | load_scale_half_word(from);
    if (column + 2 < columns) word = (word & 0xffffu) | (load_scale_half_word(from + 2) << 16);
  } else {
#pragma unroll
    for (int byte = 0; byte < 4; ++byte)
      if (column + byte < columns)
        word = (word & ~(0xffu << (8 * byte))) | (load_scale_byte(from + byte) << (8 * byte));
  }
  return word;
}
