// Elements as numbers, for every architecture and without a toolkit's headers. ELEMENT (x, w) and OUTPUT (y,
// bias) are 0: fp32, 1: fp16, 2: bf16, 3: fp8 e4m3fn, 4: int8, 5: fp4 e2m1, two to a byte, 6: fp8 e4m3fnuz. WEIGHT_FP4: w has fp4 whatever x has.
#pragma once

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
// 2^(bits - 127); 255 is NaN.
static __device__ inline float e8m0_to_float(unsigned char bits) {
  return __uint_as_float(bits == 255u ? 0x7fc00000u : bits == 0u ? 0x00400000u : (unsigned)bits << 23);
}

#if ELEMENT == 0
typedef float element;
static __device__ inline float read_element(element value) { return value; }
#elif ELEMENT == 1
typedef unsigned short element;
static __device__ inline float read_element(element value) { return half_to_float(value); }
#elif ELEMENT == 2
typedef unsigned short element;
static __device__ inline float read_element(element value) { return bfloat_to_float(value); }
#elif ELEMENT == 3
typedef unsigned char element;
static __device__ inline float read_element(element value) { return e4m3_to_float(value); }
#elif ELEMENT == 5
typedef unsigned char element;
#elif ELEMENT == 4
typedef signed char element;
static __device__ inline float read_element(element value) { return (float)value; }
#else
typedef unsigned char element;
static __device__ inline float read_element(element value) { return e4m3fnuz_to_float(value); }
#endif

#if ELEMENT == 5
static __device__ inline float read_x(const element* x, long long at) { return read_fp4(x, at); }
#else
static __device__ inline float read_x(const element* x, long long at) { return read_element(x[at]); }
#endif
#if WEIGHT_FP4
static __device__ inline float read_w(const element* w, long long at) { return read_fp4((const unsigned char*)w, at); }
#else
static __device__ inline float read_w(const element* w, long long at) { return read_element(w[at]); }
#endif

#if OUTPUT == 0
typedef float output;
static __device__ inline float read_output(output value) { return value; }
static __device__ inline output round_output(float value) { return value; }
#elif OUTPUT == 1
typedef unsigned short output;
static __device__ inline float read_output(output value) { return half_to_float(value); }
static __device__ inline output round_output(float value) { return float_to_half(value); }
#else
typedef unsigned short output;
static __device__ inline float read_output(output value) { return bfloat_to_float(value); }
static __device__ inline output round_output(float value) { return float_to_bfloat(value); }
#endif
