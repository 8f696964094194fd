// Vectors of any CPU: GCC's 16-byte vectors, which every target lowers to what it has.
#pragma once

namespace gemmtune::cpu {
namespace {
typedef float Vec __attribute__((vector_size(16)));
typedef int IVec __attribute__((vector_size(16)));
constexpr int lanes = 4;
}  // namespace
}  // namespace gemmtune::cpu

#include "backends/cpu/microkernels/vector_generic.h"

namespace gemmtune::cpu {
namespace {

inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
inline float sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline void sum_four(Vec a, Vec b, Vec c, Vec d, float* totals) {
  totals[0] = sum(a);
  totals[1] = sum(b);
  totals[2] = sum(c);
  totals[3] = sum(d);
}
inline IVec zip_low(IVec a, IVec b) { return __builtin_shuffle(a, b, IVec{0, 4, 1, 5}); }
inline IVec zip_high(IVec a, IVec b) { return __builtin_shuffle(a, b, IVec{2, 6, 3, 7}); }

inline Vec load_bf16(const void* from) {
  const auto bits = __builtin_convertvector(load_as<HVec>(from), UVec);
  return reinterpret_cast<Vec>(bits << 16);
}

inline UVec load_bytes(const void* from) {
  typedef unsigned char BVec __attribute__((vector_size(lanes)));
  return __builtin_convertvector(load_as<BVec>(from), UVec);
}

/// As numbers/bfloat16.h, four at a time: magnitudes scale by 2¹¹², infinity and NaN get the full exponent.
inline Vec load_f16(const void* from) {
  const auto bits = __builtin_convertvector(load_as<HVec>(from), UVec);
  const UVec sign = (bits & 0x8000U) << 16;
  const UVec magnitude = bits & 0x7fffU;
  const UVec special = reinterpret_cast<UVec>(magnitude >= 0x7c00U);
  const Vec scaled = reinterpret_cast<Vec>(magnitude << 13) * 0x1.0p112f;
  const UVec finite = reinterpret_cast<UVec>(scaled);
  const UVec infinite = (magnitude << 13) | 0x7f800000U;
  return reinterpret_cast<Vec>(sign | (finite & ~special) | (infinite & special));
}

inline unsigned short narrow_f16_one(unsigned bits) {
  const unsigned sign = (bits >> 16) & 0x8000U;
  unsigned magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<unsigned short>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<unsigned short>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    float shifted;
    __builtin_memcpy(&shifted, &magnitude, sizeof(float));
    shifted += 0.5F;  // the result's last bit lies at 2⁻²⁴ then, and the adder rounds
    unsigned moved;
    __builtin_memcpy(&moved, &shifted, sizeof(float));
    return static_cast<unsigned short>(sign | (moved - 0x3f000000U));
  }
  magnitude += 0xc8000fffU + ((magnitude >> 13) & 1U);
  return static_cast<unsigned short>(sign | (magnitude >> 13));
}

inline HVec narrow_f16(Vec value) {
  const UVec bits = reinterpret_cast<UVec>(value);
  return HVec{narrow_f16_one(bits[0]), narrow_f16_one(bits[1]), narrow_f16_one(bits[2]),
              narrow_f16_one(bits[3])};
}

}  // namespace
}  // namespace gemmtune::cpu
