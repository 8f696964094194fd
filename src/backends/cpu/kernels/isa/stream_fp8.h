// fp8 that streams by: a line becomes two vectors of bf16 pairs, elements (0, 2) and (1, 3) of each dword.
// Requires vector_avx512.h and VBMI, BF16.
#pragma once

#include "backends/cpu/kernels/isa/stream.h"

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

inline __attribute__((always_inline)) __m512bh broadcast_dword(const char* from) {
  int value;
  __builtin_memcpy(&value, from, sizeof(value));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(value));
}

template <typename Type, bool block_scaled>
struct StreamFp8 {
  /// Steps [0, steps) of all panels into sums.
  template <int mr, int panels>
  static inline __attribute__((always_inline)) void multiply(const Fp8Decoder<Type>& decoder, const char* x,
                                                             const char* w, const StreamArgs& args,
                                                             long steps, __m512 (&sums)[mr][panels]) {
    for (long step = 0; step < steps; ++step, x += mr * decoded_x_bytes) {
#pragma GCC unroll 2
      for (int line = 0; line < 8; ++line, w += 64) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) {
          // Else values of x are kept from panel to panel, in registers that are not there.
          if constexpr (panels > 1 && mr > 1) __asm__ volatile("" : : : "memory");
          __builtin_prefetch(w + p * args.w_stride + args.prefetch);
          __m512i even;
          __m512i odd;
          decoder.decode(_mm512_loadu_si512(w + p * args.w_stride), even, odd);
#pragma GCC unroll 16
          for (int m = 0; m < mr; ++m)
            sums[m][p] = _mm512_dpbf16_ps(sums[m][p], reinterpret_cast<__m512bh>(even),
                                          broadcast_dword(x + m * decoded_x_bytes + line * 4));
#pragma GCC unroll 16
          for (int m = 0; m < mr; ++m)
            sums[m][p] = _mm512_dpbf16_ps(sums[m][p], reinterpret_cast<__m512bh>(odd),
                                          broadcast_dword(x + m * decoded_x_bytes + 32 + line * 4));
        }
      }
    }
  }

  template <int mr, int panels>
  static void kernel(const StreamArgs& args) {
    const Fp8Decoder<Type> decoder;
    const char* x = static_cast<const char*>(args.x);
    const char* w = static_cast<const char*>(args.w);
    const long at_once = block_scaled ? steps_of_scale : args.steps;
    bool add = args.accumulate;
    long scale = 0;
    for (long step = 0; step < args.steps; step += at_once, ++scale) {
      const long steps = args.steps - step < at_once ? args.steps - step : at_once;
      __m512 sums[mr][panels];
#pragma GCC unroll 16
      for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) sums[m][p] = _mm512_setzero_ps();
      multiply<mr, panels>(decoder, x + step * mr * decoded_x_bytes, w + step * 512, args, steps, sums);
      const __m512 w_scale = _mm512_set1_ps(block_scaled ? args.w_scales[scale] : 1.0F);
#pragma GCC unroll 16
      for (int m = 0; m < mr; ++m) {
        const __m512 factor =
            block_scaled ? _mm512_mul_ps(w_scale, _mm512_set1_ps(args.x_scales[scale * mr + m])) : w_scale;
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) {
          float* c = args.c + (m * panels + p) * 16;
          const __m512 before = add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
          _mm512_storeu_ps(c, _mm512_fmadd_ps(sums[m][p], factor, before));
        }
      }
      add = true;
    }
  }
};

template <typename Type>
void pack_fp8(const StreamPackArgs& args) {
  const Fp8Decoder<Type> decoder;
  char* out = static_cast<char*>(args.out);
  for (long step = 0; step < args.steps; ++step)
    for (long m = 0; m < args.mr; ++m, out += decoded_x_bytes) {
      const long left = m < args.rows ? args.bytes - step * step_bytes : 0;
      const __mmask32 there = left >= 32 ? 0xffffffffU : left <= 0 ? 0 : (1U << left) - 1;
      const char* from = static_cast<const char*>(args.x) + m * args.stride + step * step_bytes;
      __m512i even;
      __m512i odd;
      decoder.decode(_mm512_castsi256_si512(_mm256_maskz_loadu_epi8(there, from)), even, odd);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_castsi512_si256(even));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32), _mm512_castsi512_si256(odd));
    }
}

}  // namespace
}  // namespace gemmtune::cpu
