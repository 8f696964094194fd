// Numbers as floats, and the elements of x, w and y, whose types types.cuh names.
#pragma once

#include "backends/gpu/device/types.cuh"

#if defined(__HIP__) || defined(__HIPCC_RTC__)
typedef _Float16 half_bits;
static __device__ inline float half_to_float(unsigned short bits) { return (float)__builtin_bit_cast(half_bits, bits); }
static __device__ inline unsigned short float_to_half(float value) {
  return __builtin_bit_cast(unsigned short, (half_bits)value);
}
#else
static __device__ inline float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
static __device__ inline unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

static __device__ inline float bfloat_to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
// Ties to even; a NaN stays one.
static __device__ inline unsigned short float_to_bfloat(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((bits >> 16) | 0x40u);
  return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
// S.1111.111 is NaN; there is no infinity.
static __device__ inline float e4m3_to_float(unsigned char bits) {
  unsigned sign = (unsigned)(bits & 0x80u) << 24;
  unsigned exponent = (bits >> 3) & 15u;
  unsigned mantissa = bits & 7u;
  if (exponent == 15u && mantissa == 7u) return __uint_as_float(sign | 0x7fc00000u);
  if (exponent == 0u) return __uint_as_float(sign | __float_as_uint((float)mantissa * 0.001953125f));
  return __uint_as_float(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

// Exponents are one less than those of e4m3fn; 1.0000.000 is NaN, and there is no other.
static __device__ inline float e4m3fnuz_to_float(unsigned char bits) {
  unsigned sign = (unsigned)(bits & 0x80u) << 24;
  unsigned exponent = (bits >> 3) & 15u;
  unsigned mantissa = bits & 7u;
  if (bits == 0x80u) return __uint_as_float(0x7fc00000u);
  if (exponent == 0u) return __uint_as_float(sign | __float_as_uint((float)mantissa * 0.0009765625f));
  return __uint_as_float(sign | ((exponent + 119u) << 23) | (mantissa << 20));
}

// Element `at` of fp4 elements: the even one is in the low half of a byte.
static __device__ inline float read_fp4(const unsigned char* from, long long at) {
  const unsigned bits = (unsigned)from[at / 2] >> (at % 2 * 4) & 15u;
  const unsigned magnitude = bits & 7u;
  const float value = magnitude < 2u ? 0.5f * (float)magnitude
                                     : __uint_as_float(((magnitude >> 1) + 126u) << 23 | (magnitude & 1u) << 22);
  return bits & 8u ? -value : value;
}
// Element `at` of int4 elements, in two's complement.
static __device__ inline float read_int4(const unsigned char* from, long long at) {
  const int bits = from[at / 2] >> (at % 2 * 4) & 15;
  return (float)(bits < 8 ? bits : bits - 16);
}
// 2^(bits - 127); 255 is NaN.
static __device__ inline float e8m0_to_float(unsigned char bits) {
  return __uint_as_float(bits == 255u ? 0x7fc00000u : bits == 0u ? 0x00400000u : (unsigned)bits << 23);
}

// How an element is stored.
template <Element TYPE>
struct StoredElement {
  typedef unsigned char type;
};
template <>
struct StoredElement<Element::f32> {
  typedef float type;
};
template <>
struct StoredElement<Element::f16> {
  typedef unsigned short type;
};
template <>
struct StoredElement<Element::bf16> {
  typedef unsigned short type;
};
template <>
struct StoredElement<Element::int8> {
  typedef signed char type;
};

// Not of elements of 4 bits: read_half().
template <Element TYPE>
static __device__ inline float read_stored(typename StoredElement<TYPE>::type value) {
  if constexpr (TYPE == Element::f16)
    return half_to_float(value);
  else if constexpr (TYPE == Element::bf16)
    return bfloat_to_float(value);
  else if constexpr (TYPE == Element::e4m3)
    return e4m3_to_float(value);
  else if constexpr (TYPE == Element::e4m3fnuz)
    return e4m3fnuz_to_float(value);
  else
    return (float)value;
}

// Element `at` of elements of 4 bits.
template <Element TYPE>
static __device__ inline float read_half(const void* from, long long at) {
  if constexpr (TYPE == Element::int4)
    return read_int4((const unsigned char*)from, at);
  else
    return read_fp4((const unsigned char*)from, at);
}
static __device__ constexpr bool is_half(Element type) { return type == Element::e2m1 || type == Element::int4; }

typedef StoredElement<types().element>::type element;
typedef StoredElement<types().output>::type output;

static __device__ inline float read_element(element value) { return read_stored<types().element>(value); }
static __device__ inline float read_x(const element* x, long long at) {
  if constexpr (is_half(types().element))
    return read_half<types().element>(x, at);
  else
    return read_element(x[at]);
}
static __device__ inline float read_w(const element* w, long long at) {
  if constexpr (is_half(types().weight))
    return read_half<types().weight>(w, at);
  else
    return read_element(w[at]);
}

static __device__ inline float read_output(output value) { return read_stored<types().output>(value); }
static __device__ inline output round_output(float value) {
  if constexpr (types().output == Element::f16)
    return (output)float_to_half(value);
  else if constexpr (types().output == Element::bf16)
    return (output)float_to_bfloat(value);
  else
    return (output)value;
}
