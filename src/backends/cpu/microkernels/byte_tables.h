// fp8 and MXFP4 to bf16 by look-ups of bytes and words, exactly, scales of MXFP4 included. Requires
// vector_avx512.h and VBMI.
#pragma once

#include "backends/cpu/microkernels/stream.h"

namespace gemmtune::cpu {
namespace {

/// High and low bytes of the bf16 of every fp8 magnitude.
struct BytesOfMagnitudes {
  alignas(64) unsigned char high[128];
  alignas(64) unsigned char low[128];
};

constexpr unsigned bf16_of_magnitude(unsigned code, unsigned bias) {
  unsigned mantissa = code & 7;
  unsigned exponent = code >> 3;
  if (exponent == 0) {
    if (mantissa == 0) return 0;
    // A subnormal is mantissa · 2^(1 − bias − 3): shifted until its leading one is the hidden one.
    exponent = 1;
    while (mantissa < 8) {
      mantissa *= 2;
      --exponent;
    }
    mantissa -= 8;
  }
  return (exponent + 127 - bias) << 7 | mantissa << 4;
}

constexpr BytesOfMagnitudes bytes_of_magnitudes(unsigned bias, bool top_is_nan) {
  BytesOfMagnitudes bytes{};
  for (unsigned code = 0; code < 128; ++code) {
    const unsigned value = top_is_nan && code == 127 ? 0x7fc0U : bf16_of_magnitude(code, bias);
    bytes.high[code] = static_cast<unsigned char>(value >> 8);
    bytes.low[code] = static_cast<unsigned char>(value & 0xff);
  }
  return bytes;
}

struct E4m3fnBytes {
  static constexpr bool sign_of_zero_is_nan = false;
  static constexpr BytesOfMagnitudes bytes = bytes_of_magnitudes(7, true);
};
struct E4m3fnuzBytes {
  static constexpr bool sign_of_zero_is_nan = true;
  static constexpr BytesOfMagnitudes bytes = bytes_of_magnitudes(8, false);
};

/// The tables in registers.
template <typename Type>
struct Fp8Decoder {
  __m512i high[2];
  __m512i low[2];

  inline __attribute__((always_inline)) Fp8Decoder() {
    high[0] = _mm512_load_si512(Type::bytes.high);
    high[1] = _mm512_load_si512(Type::bytes.high + 64);
    low[0] = _mm512_load_si512(Type::bytes.low);
    low[1] = _mm512_load_si512(Type::bytes.low + 64);
  }

  /// Of 64 codes: bf16 of the bytes at even places, and of those at odd ones.
  inline __attribute__((always_inline)) void decode(__m512i codes, __m512i& even, __m512i& odd) const {
    const __m512i low_bytes = _mm512_set1_epi16(0x00ff);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i above = _mm512_permutex2var_epi8(high[0], codes, high[1]);
    __m512i below = _mm512_permutex2var_epi8(low[0], codes, low[1]);
    above = _mm512_ternarylogic_epi32(above, codes, sign, 0xf8);  // above | (codes & sign)
    if constexpr (Type::sign_of_zero_is_nan) {
      const __mmask64 nan = _mm512_cmpeq_epi8_mask(codes, sign);
      above = _mm512_mask_mov_epi8(above, nan, _mm512_set1_epi8(0x7f));
      below = _mm512_mask_mov_epi8(below, nan, _mm512_set1_epi8(static_cast<char>(0xc0)));
    }
    // mask ? b : c of (mask, b, c) is 0xca.
    even = _mm512_ternarylogic_epi32(low_bytes, below, _mm512_slli_epi16(above, 8), 0xca);
    odd = _mm512_ternarylogic_epi32(low_bytes, _mm512_srli_epi16(below, 8), above, 0xca);
  }
};

/// e2m1 as bf16 · 2^125, whose exponents leave room to take any e8m0 scale's distance from 252 away. Both
/// zeros are +0: subtracting with saturation leaves them what they are.
struct F4Words {
  alignas(64) unsigned short values[32];
};

constexpr F4Words f4_words() {
  F4Words words{};
  for (unsigned index = 0; index < 32; ++index) {
    const unsigned magnitude = index & 7;
    const unsigned exponent = magnitude >> 1;
    // 0, 0.5, then (1 + m / 2) · 2^(exponent − 1).
    const unsigned value = magnitude == 0   ? 0
                           : magnitude == 1 ? 251U << 7
                                            : (251 + exponent) << 7 | (magnitude & 1) << 6;
    const unsigned sign = (index & 8) << 12;
    words.values[index] = static_cast<unsigned short>(value == 0 ? 0 : value | sign);
  }
  return words;
}

/// Scales within this are applied by subtraction: what lies below gives subnormals, what lies above more than
/// bf16 holds before the subtraction, 255 is NaN.
constexpr unsigned min_f4_exponent = 2;
constexpr unsigned max_f4_exponent = 252;

/// The table in a register; 16-bit lanes throughout.
struct F4Decoder {
  static constexpr F4Words words = f4_words();
  __m512i values;

  inline __attribute__((always_inline)) F4Decoder() { values = _mm512_load_si512(words.values); }

  /// What a scale takes away: of e << 7 in each lane. in_range() is false if a lane is out of range.
  static inline __attribute__((always_inline)) __m512i away(__m512i exponents) {
    return _mm512_sub_epi16(_mm512_set1_epi16(static_cast<short>(max_f4_exponent << 7)), exponents);
  }
  /// Of 16 columns' exponents: the same in both halves of a dword.
  static inline __attribute__((always_inline)) __m512i away_of_columns(__m128i exponents) {
    const __m512i wide = _mm512_cvtepu8_epi32(exponents);
    return away(_mm512_or_si512(_mm512_slli_epi32(wide, 7), _mm512_slli_epi32(wide, 23)));
  }
  static inline __attribute__((always_inline)) bool in_range(__m512i away) {
    constexpr short most = static_cast<short>((max_f4_exponent - min_f4_exponent) << 7);
    return _mm512_cmpgt_epu16_mask(away, _mm512_set1_epi16(most)) == 0;
  }
  /// The lowest four bits of each lane, scaled.
  inline __attribute__((always_inline)) __m512i decode(__m512i codes, __m512i away) const {
    return _mm512_subs_epu16(_mm512_permutexvar_epi16(codes, values), away);
  }
};

/// 2^(e − 127); 2^−127 is subnormal, 255 is NaN.
inline __m512 powers_of_two(__m128i exponents) {
  const __m512i wide = _mm512_cvtepu8_epi32(exponents);
  __m512i bits = _mm512_slli_epi32(wide, 23);
  bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(wide, wide), _mm512_set1_epi32(0x00400000));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(255));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7fc00000)));
}

/// 16 e8m0 scales of 16 rows, the rows' together for each scale.
struct Exponents {
  alignas(64) unsigned char columns[4][64];
  /// Of scale i of all rows.
  inline __attribute__((always_inline)) __m128i of(long i) const {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(columns[i % 4] + i / 4 * 16));
  }
};

/// Scales [first, first + 16) as far as they are there; missing ones and those of missing rows are 1. Bytes
/// to columns within four rows, then dwords between the four fours.
inline __attribute__((always_inline)) void load_exponents(const StreamScaleArgs& args, long first,
                                                          Exponents& out) {
  const __m512i by_column = _mm512_setr_epi32(
      0x30201000, 0x31211101, 0x32221202, 0x33231303, 0x34241404, 0x35251505, 0x36261606, 0x37271707,
      0x38281808, 0x39291909, 0x3a2a1a0a, 0x3b2b1b0b, 0x3c2c1c0c, 0x3d2d1d0d, 0x3e2e1e0e, 0x3f2f1f0f);
  const __m128i ones = _mm_set1_epi8(127);
  const long left = args.count - first;
  const __mmask16 there = static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << left) - 1);
  __m512i fours[4];
#pragma GCC unroll 4
  for (int four = 0; four < 4; ++four) {
    __m128i rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const long row = four * 4 + i;
      rows[i] = row < args.rows ? _mm_mask_loadu_epi8(ones, there, args.exponents + row * args.stride + first)
                                : ones;
    }
    __m512i joined = _mm512_castsi128_si512(rows[0]);
    joined = _mm512_inserti32x4(joined, rows[1], 1);
    joined = _mm512_inserti32x4(joined, rows[2], 2);
    joined = _mm512_inserti32x4(joined, rows[3], 3);
    fours[four] = _mm512_permutexvar_epi8(by_column, joined);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(fours[0], fours[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(fours[0], fours[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(fours[2], fours[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(fours[2], fours[3]);
  // Lane l of vector i holds scale 4 · l + i of all rows.
  _mm512_store_si512(out.columns[0], _mm512_unpacklo_epi64(low01, low23));
  _mm512_store_si512(out.columns[1], _mm512_unpackhi_epi64(low01, low23));
  _mm512_store_si512(out.columns[2], _mm512_unpacklo_epi64(high01, high23));
  _mm512_store_si512(out.columns[3], _mm512_unpackhi_epi64(high01, high23));
}

inline void stream_scales(const StreamScaleArgs& args) {
  for (long first = 0; first < args.count; first += 16) {
    Exponents exponents;
    load_exponents(args, first, exponents);
    for (long i = 0; i < 16 && first + i < args.count; ++i)
      _mm512_storeu_ps(args.out + (first + i) * 16, powers_of_two(exponents.of(i)));
  }
}

/// Four bits of each dword as float32, times a factor: for scales that are out of range.
inline __m512i slow_f4(__m512i codes, __m512 factor) {
  const __m512 values = _mm512_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6);
  return _mm512_castps_si512(_mm512_mul_ps(_mm512_permutexvar_ps(codes, values), factor));
}

/// The upper halves of both as pairs, those of `low` first.
inline __m512i pairs_of_upper_halves(__m512i low, __m512i high) {
  return _mm512_or_si512(_mm512_srli_epi32(low, 16), _mm512_and_si512(high, _mm512_set1_epi32(-65536)));
}

}  // namespace
}  // namespace gemmtune::cpu
