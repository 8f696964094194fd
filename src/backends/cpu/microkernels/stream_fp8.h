// fp8 that streams by: a line becomes two vectors of bf16 pairs, elements (0, 2) and (1, 3) of each dword.
// Requires vector_avx512.h and VBMI, BF16.
#pragma once

#include "backends/cpu/microkernels/byte_tables.h"
#include "backends/cpu/microkernels/stream.h"

namespace gemmtune::cpu {
namespace {

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
    // Without scales of blocks, sums go on where the last elements of k left them.
    for (long step = 0; step < args.steps; step += at_once, ++scale) {
      const long steps = args.steps - step < at_once ? args.steps - step : at_once;
      __m512 sums[mr][panels];
#pragma GCC unroll 16
      for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p)
          sums[m][p] = !block_scaled && args.accumulate ? _mm512_loadu_ps(args.c + (m * panels + p) * 16)
                                                        : _mm512_setzero_ps();
      multiply<mr, panels>(decoder, x + step * mr * decoded_x_bytes, w + step * 512, args, steps, sums);
      const __m512 w_scale = _mm512_set1_ps(block_scaled ? args.w_scales[scale] : 1.0F);
#pragma GCC unroll 16
      for (int m = 0; m < mr; ++m) {
        const __m512 factor =
            block_scaled ? _mm512_mul_ps(w_scale, _mm512_set1_ps(args.x_scales[scale * mr + m])) : w_scale;
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) {
          float* c = args.c + (m * panels + p) * 16;
          if constexpr (!block_scaled) {
            _mm512_storeu_ps(c, sums[m][p]);
            continue;
          }
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
