// AVX2: look-ups of bytes decode weights of 4 bits; products in float32, and times int8 by vpmaddubsw.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx2.h"
#include "backends/cpu/microkernels/w4_kernels.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

/// 16 bytes by code, for both halves of a vector.
struct CodeBytes {
  alignas(32) signed char values[32];
};
/// Values in units; with zero points value + 8, from which zero point + 8 is subtracted.
template <typename Values>
constexpr CodeBytes code_bytes(float unit, int added) {
  CodeBytes table{};
  for (int i = 0; i < 32; ++i)
    table.values[i] = static_cast<signed char>(static_cast<int>(Values::value(i % 16) / unit) + added);
  return table;
}

/// The even and the odd elements of each lane as bytes.
template <typename Values>
inline __attribute__((always_inline)) void look_up(__m256i table, IVec codes, IVec zero_points, __m256i& even,
                                                   __m256i& odd) {
  const __m256i low = _mm256_set1_epi8(0x0f);
  const auto bits = reinterpret_cast<__m256i>(codes);
  even = _mm256_shuffle_epi8(table, _mm256_and_si256(bits, low));
  odd = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi32(bits, 4), low));
  if constexpr (Values::zero_points) {
    even = _mm256_sub_epi8(even, reinterpret_cast<__m256i>(zero_points));
    odd = _mm256_sub_epi8(odd, reinterpret_cast<__m256i>(zero_points));
  }
}

template <typename Values>
struct W4Floats {
  using V = Vec;
  using Sum = Vec;
  static constexpr bool zero_points = Values::zero_points;
  static constexpr int vectors = 8;
  static constexpr long x_line_bytes = 8 * 32;
  static constexpr float unit = Values::value(1) < 1 ? Values::value(1) : 1;
  static constexpr CodeBytes bytes = code_bytes<Values>(unit, zero_points ? 8 : 0);
  __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes.values));

  inline __attribute__((always_inline)) void decode(IVec codes, IVec points, V (&out)[vectors]) const {
    __m256i even;
    __m256i odd;
    look_up<Values>(table, codes, points, even, odd);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = float_of_byte(even, i);
      out[2 * i + 1] = float_of_byte(odd, i);
    }
  }
  static Vec float_of_byte(__m256i bytes, int i) {
    const __m256i top = _mm256_slli_epi32(bytes, 24 - 8 * i);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24));
  }
  static Sum first(const char*) { return Vec{}; }
  static Sum multiply(Sum sum, const char* x, V w) { return fma(load_as<Vec>(x), w, sum); }
  static Vec widen(Sum sum) { return sum; }
};

/// Both products of 31 · 128 twice stay within int16.
template <typename Values>
struct W4Bytes {
  using V = __m256i;
  using Sum = IVec;
  static constexpr bool zero_points = Values::zero_points;
  static constexpr int vectors = 2;
  static constexpr long x_line_bytes = 3 * 32;
  static constexpr CodeBytes bytes = code_bytes<Values>(1, w4_offset + (zero_points ? 8 : 0));
  __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes.values));

  inline __attribute__((always_inline)) void decode(IVec codes, IVec points, V (&out)[vectors]) const {
    look_up<Values>(table, codes, points, out[0], out[1]);
  }
  static Sum first(const char* x) { return load_as<IVec>(x + 2 * 32); }
  static Sum multiply(Sum sum, const char* x, V w) {
    const __m256i pairs = _mm256_maddubs_epi16(w, load_as<__m256i>(x));
    return sum + reinterpret_cast<IVec>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static Vec widen(Sum sum) { return __builtin_convertvector(sum, Vec); }
};

}  // namespace

constexpr W4Set avx2_w4_kernels = {.floats = w4_float_kernels<W4FewTiles, W4Floats>(pack_w4_x<float, false>),
                                   .bytes = w4_byte_kernels<W4FewTiles, W4Bytes>()};

}  // namespace gemmtune::cpu
