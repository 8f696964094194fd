// AVX-512 BF16 and VNNI: weights of 4 bits as pairs of bf16, and times int8 by vpdpbusd.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/w4_kernels.h"
#include "backends/cpu/microkernels/w4_avx512.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

struct Bf16Words {
  alignas(64) unsigned short values[32];
};
/// By code, twice: a look-up also reads the lowest bit of the next element. With zero points by offset bytes.
template <typename Values>
constexpr Bf16Words bf16_words() {
  Bf16Words table{};
  for (int i = 0; i < 32; ++i)
    table.values[i] =
        bf16_of(Values::zero_points ? static_cast<float>(i - w4_offset) : Values::value(i % 16));
  return table;
}

/// To bf16: elements j and j + 4 of a lane are the pair j.
template <typename Values>
struct W4Bf16 {
  using V = __m512i;
  using Sum = __m512;
  static constexpr bool zero_points = Values::zero_points;
  static constexpr int vectors = 4;
  static constexpr long x_line_bytes = 4 * 64;
  static constexpr float unit = 1;
  static constexpr Bf16Words words = bf16_words<Values>();
  __m512i table = _mm512_load_si512(words.values);

  inline __attribute__((always_inline)) void decode(IVec codes, IVec points, V (&out)[vectors]) const {
    const auto bits = reinterpret_cast<__m512i>(codes);
    if constexpr (zero_points) {
      __m512i even;
      __m512i odd;
      offset_bytes<Values>(bits, reinterpret_cast<__m512i>(points), even, odd);
      out[0] = _mm512_permutexvar_epi16(even, table);
      out[1] = _mm512_permutexvar_epi16(odd, table);
      out[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(even, 8), table);
      out[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(odd, 8), table);
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i)
        out[i] = _mm512_permutexvar_epi16(_mm512_srli_epi16(bits, 4 * i), table);
    }
  }
  static Sum first(const char*) { return _mm512_setzero_ps(); }
  static Sum multiply(Sum sum, const char* x, V w) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(load_as<__m512i>(x)),
                            reinterpret_cast<__m512bh>(w));
  }
  static Vec widen(Sum sum) { return sum; }
};

template <typename Values>
struct W4Bytes : W4OffsetBytes<Values> {
  static IVec multiply(IVec sum, const char* x, __m512i w) {
    return reinterpret_cast<IVec>(
        _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), w, load_as<__m512i>(x)));
  }
};

}  // namespace

constexpr W4Set avx512bf16_w4_kernels = {
    .floats = w4_float_kernels<W4Tiles, W4Bf16>(pack_w4_x<unsigned short, true>),
    .bytes = w4_byte_kernels<W4Tiles, W4Bytes>()};

}  // namespace gemmtune::cpu
