// Decoding of 4-bit elements with 64-byte vectors. Requires vector_avx512.h and w4_kernels.h.
#pragma once

namespace gemmtune::cpu {
namespace {

/// The even and the odd elements of each lane as bytes: element − zero point + w4_offset.
template <typename Values>
inline __attribute__((always_inline)) void offset_bytes(__m512i codes, __m512i zero_points, __m512i& even,
                                                        __m512i& odd) {
  const __m512i low = _mm512_set1_epi8(0x0f);
  const __m512i sign = _mm512_set1_epi8(0x08);
  // Element + 8: its sign bit flipped; (a ^ b) & c of (a, b, c) is 0x28.
  even = _mm512_ternarylogic_epi32(codes, sign, low, 0x28);
  odd = _mm512_ternarylogic_epi32(_mm512_srli_epi32(codes, 4), sign, low, 0x28);
  const __m512i added = Values::zero_points ? _mm512_sub_epi8(_mm512_set1_epi8(w4_offset), zero_points)
                                            : _mm512_set1_epi8(w4_offset - 8);
  even = _mm512_add_epi8(even, added);
  odd = _mm512_add_epi8(odd, added);
}

/// Numbers −16 … 15 in the order of offset bytes.
struct OffsetFloats {
  alignas(64) float values[32];
};
constexpr OffsetFloats offset_floats() {
  OffsetFloats table{};
  for (int i = 0; i < 32; ++i) table.values[i] = static_cast<float>(i - w4_offset);
  return table;
}

/// A format's values in the order of its codes.
template <typename Values>
struct CodeFloats {
  alignas(64) float values[16];
};
template <typename Values>
constexpr CodeFloats<Values> code_floats() {
  CodeFloats<Values> table{};
  for (int code = 0; code < 16; ++code) table.values[code] = Values::value(code);
  return table;
}

/// To float32: a look-up reads the lowest bits of a lane.
template <typename Values>
struct W4Floats {
  using V = __m512;
  using Sum = Vec;
  static constexpr bool zero_points = Values::zero_points;
  static constexpr int vectors = 8;
  static constexpr long x_line_bytes = 8 * 64;
  static constexpr float unit = 1;
  static constexpr CodeFloats<Values> by_code = code_floats<Values>();
  static constexpr OffsetFloats by_offset = offset_floats();
  __m512 low = _mm512_load_ps(zero_points ? by_offset.values : by_code.values);
  __m512 high = _mm512_load_ps(zero_points ? by_offset.values + 16 : by_code.values);

  inline __attribute__((always_inline)) void decode(IVec codes, IVec points, V (&out)[vectors]) const {
    const auto bits = reinterpret_cast<__m512i>(codes);
    if constexpr (zero_points) {
      __m512i even;
      __m512i odd;
      offset_bytes<Values>(bits, reinterpret_cast<__m512i>(points), even, odd);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        out[2 * i] = _mm512_permutex2var_ps(low, _mm512_srli_epi32(even, 8 * i), high);
        out[2 * i + 1] = _mm512_permutex2var_ps(low, _mm512_srli_epi32(odd, 8 * i), high);
      }
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < vectors; ++i) out[i] = _mm512_permutexvar_ps(_mm512_srli_epi32(bits, 4 * i), low);
    }
  }
  static Sum first(const char*) { return Vec{}; }
  static Sum multiply(Sum sum, const char* x, V w) { return fma(load_as<Vec>(x), w, sum); }
  static Vec widen(Sum sum) { return sum; }
};

/// To offset bytes, whose products are added in int32; an instruction set adds its multiply.
template <typename Values>
struct W4OffsetBytes {
  using V = __m512i;
  using Sum = IVec;
  static constexpr bool zero_points = Values::zero_points;
  static constexpr int vectors = 2;
  static constexpr long x_line_bytes = 3 * 64;

  inline __attribute__((always_inline)) void decode(IVec codes, IVec points, V (&out)[vectors]) const {
    offset_bytes<Values>(reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512i>(points), out[0], out[1]);
  }
  static Sum first(const char* x) { return load_as<IVec>(x + 2 * 64); }
  static Vec widen(Sum sum) { return __builtin_convertvector(sum, Vec); }
};

}  // namespace
}  // namespace gemmtune::cpu
