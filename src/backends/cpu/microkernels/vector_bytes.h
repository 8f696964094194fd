// int8 by vpdpbusd, which multiplies unsigned by signed bytes: weights are offset by 128 so that they are not
// negative, and sums begin at what the offset adds too much. Requires vector_avx512.h, vector_pack.h and
// VNNI.
#pragma once

#include "backends/cpu/microkernels/micro.h"

namespace gemmtune::cpu {
namespace {

constexpr int i8_offset = 128;

/// Interface of vector_sources.h over four int8 of k; sums are int32 lanes in registers that are called
/// float.
struct ByteSource {
  using V = __m512i;
  static constexpr int steps = 1, k_per_line = 4, line_bytes = 64, x_bytes = 1;
  static void load_line(const char* line, int, V out[steps]) {
    out[0] = _mm512_xor_si512(load_as<__m512i>(line), _mm512_set1_epi8(static_cast<char>(i8_offset)));
  }
  static V broadcast_x(const char* x) {
    int four;
    __builtin_memcpy(&four, x, sizeof(four));
    return _mm512_set1_epi32(four);
  }
  static Vec multiply(V x, V w, Vec sum) {
    return reinterpret_cast<Vec>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), w, x));
  }
  static Vec start(int sum) { return reinterpret_cast<Vec>(_mm512_set1_epi32(sum)); }
};

/// The sum of signed bytes in each dword lane.
inline __m256i sum_of_bytes(__m256i bytes) {
  return _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
}

inline int sum_of_dwords(__m128i four) {
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/// A mask of the bytes that are left, at most `most`; of none where nothing is left.
inline unsigned long first_bytes(long left, long most) {
  return left >= most ? ~0UL : left <= 0 ? 0UL : (1UL << left) - 1;
}

/// Row by row, so that a row's sum stays in a register.
inline void pack_x_bytes(const PackXArgs& args) {
  for (long m = 0; m < args.mr; ++m) {
    const char* x = static_cast<const char*>(args.x) + m * args.ldx;
    char* out = static_cast<char*>(args.out) + m * 32;
    __m256i sums = _mm256_setzero_si256();
    for (long chunk = 0; chunk < args.chunks; ++chunk, out += args.mr * 32) {
      const long left = m < args.rows ? args.k - chunk * 32 : 0;
      const __m256i bytes =
          left >= 32 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + chunk * 32))
                     : _mm256_maskz_loadu_epi8(static_cast<__mmask32>(first_bytes(left, 32)), x + chunk * 32);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
      sums = _mm256_dpbusd_epi32(sums, _mm256_set1_epi8(1), bytes);
    }
    const int sum =
        sum_of_dwords(_mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    // Unsigned, as the products are: what wraps there wraps here.
    args.start[m] = static_cast<int>(static_cast<unsigned>(args.start[m]) -
                                     static_cast<unsigned>(i8_offset) * static_cast<unsigned>(sum));
  }
}

/// Two chunks at a time: 16 dwords of 16 rows swap rows and columns.
inline void pack_panel_bytes(const PackPanelArgs& args) {
  char* out = static_cast<char*>(args.out);
  const char* rows = static_cast<const char*>(args.rows);
  for (long chunk = 0; chunk < args.chunks; chunk += 2) {
    const __mmask64 there = first_bytes(args.k - chunk * 32, 64);
    IVec block[lanes];
#pragma GCC unroll 16
    for (int row = 0; row < lanes; ++row)
      block[row] = reinterpret_cast<IVec>(
          _mm512_maskz_loadu_epi8(row < args.count ? there : 0, rows + row * args.stride + chunk * 32));
    transpose(block);
    const bool both = chunk + 1 < args.chunks;
#pragma GCC unroll 16
    for (int line = 0; line < lanes; ++line)
      if (line < lanes / 2 || both) store_as(out + line * 64, block[line]);
    out += 16 * 64;
  }
}

}  // namespace
}  // namespace gemmtune::cpu
