// int8 and MXFP4 that stream by. vpdpbusd multiplies unsigned by signed bytes: weights are offset so that
// they are not negative, and sums begin at what the offset adds too much (StreamArgs::start). Requires
// vector_avx512.h, vector_bytes.h and VBMI, VNNI.
#pragma once

#include "backends/cpu/microkernels/byte_tables.h"
#include "backends/cpu/microkernels/stream.h"

namespace gemmtune::cpu {
namespace {

/// e2m1 is counted in halves: −12 … 12.
constexpr int f4_offset = 12;

inline __attribute__((always_inline)) __m512i broadcast_integer(const void* from) {
  int value;
  __builtin_memcpy(&value, from, sizeof(value));
  return _mm512_set1_epi32(value);
}

struct StreamI8 {
  template <int mr, int panels>
  static void kernel(const StreamArgs& args) {
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(i8_offset));
    __m512i sums[mr][panels];
#pragma GCC unroll 16
    for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
        sums[m][p] = args.accumulate ? _mm512_loadu_si512(args.c + (m * panels + p) * 16)
                                     : _mm512_set1_epi32(args.start[m]);
    const char* x = static_cast<const char*>(args.x);
    const char* w = static_cast<const char*>(args.w);
    for (long step = 0; step < args.steps; ++step, x += mr * integer_x_bytes) {
#pragma GCC unroll 2
      for (int line = 0; line < 8; ++line, w += 64) {
        // The codes of all panels before the rows: else values of x are kept from panel to panel, in
        // registers that are not there.
        __m512i codes[panels];
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) {
          __builtin_prefetch(w + p * args.w_stride + args.prefetch);
          codes[p] = _mm512_xor_si512(_mm512_loadu_si512(w + p * args.w_stride), offset);
        }
#pragma GCC unroll 16
        for (int m = 0; m < mr; ++m) {
          const __m512i four = broadcast_integer(x + m * integer_x_bytes + line * 4);
#pragma GCC unroll 4
          for (int p = 0; p < panels; ++p) sums[m][p] = _mm512_dpbusd_epi32(sums[m][p], codes[p], four);
        }
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) _mm512_storeu_si512(args.c + (m * panels + p) * 16, sums[m][p]);
  }
};

struct StreamF4 {
  template <int mr, int panels>
  static void kernel(const StreamArgs& args) {
    // The look-up takes six bits of an index: four copies, so that the bits above a code do not matter.
    const __m512i values =
        _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    __m512 sums[mr][panels];
#pragma GCC unroll 16
    for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p)
        sums[m][p] = args.accumulate ? _mm512_loadu_ps(args.c + (m * panels + p) * 16) : _mm512_setzero_ps();
    const char* x = static_cast<const char*>(args.x);
    const char* w = static_cast<const char*>(args.w);
    const int* start = args.start;
    const float* x_scales = args.x_scales;
    const float* w_scales = args.w_scales;
    for (long step = 0; step < args.steps; ++step, x += mr * decoded_x_bytes)
      for (int half = 0; half < scales_of_step;
           ++half, w += 256, start += mr, x_scales += mr, w_scales += 16) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; ++p) {
          // Else values of x are kept from panel to panel, in registers that are not there.
          if constexpr (panels > 1 && mr > 1) __asm__ volatile("" : : : "memory");
          __m512i even[4];
          __m512i odd[4];
#pragma GCC unroll 4
          for (int line = 0; line < 4; ++line) {
            const char* from = w + p * args.w_stride + line * 64;
            __builtin_prefetch(from + args.prefetch);
            const __m512i codes = _mm512_loadu_si512(from);
            even[line] = _mm512_permutexvar_epi8(codes, values);
            odd[line] = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), values);
          }
          const __m512 w_scale = _mm512_loadu_ps(w_scales + p * args.w_scale_stride);
#pragma GCC unroll 16
          for (int m = 0; m < mr; ++m) {
            const char* row = x + m * decoded_x_bytes + half * 16;
            __m512i sum = _mm512_set1_epi32(start[m]);
#pragma GCC unroll 4
            for (int line = 0; line < 4; ++line) {
              sum = _mm512_dpbusd_epi32(sum, even[line], broadcast_integer(row + line * 4));
              sum = _mm512_dpbusd_epi32(sum, odd[line], broadcast_integer(row + 32 + line * 4));
            }
            // Both scales first: a sum times one of them may be too large. Where both together are, a sum of 0 stays 0.
            const __m512 scale = _mm512_min_ps(_mm512_set1_ps(__FLT_MAX__),
                                               _mm512_mul_ps(w_scale, _mm512_set1_ps(x_scales[m])));
            sums[m][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, sums[m][p]);
          }
        }
      }
#pragma GCC unroll 16
    for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) _mm512_storeu_ps(args.c + (m * panels + p) * 16, sums[m][p]);
  }
};

/// 32 stored bytes of a row of x; zeros where there are none.
inline __m256i row_step(const StreamPackArgs& args, long m, long step) {
  const long left = m < args.rows ? args.bytes - step * step_bytes : 0;
  const __mmask32 there = left >= 32 ? 0xffffffffU : left <= 0 ? 0 : (1U << left) - 1;
  return _mm256_maskz_loadu_epi8(there,
                                 static_cast<const char*>(args.x) + m * args.stride + step * step_bytes);
}

inline void pack_i8(const StreamPackArgs& args) {
  for (long m = 0; m < args.mr; ++m) args.start[m] = 0;
  pack_x_bytes({.x = args.x,
                .ldx = args.stride,
                .rows = args.rows,
                .mr = args.mr,
                .k = args.bytes,
                .chunks = args.steps,
                .out = args.out,
                .start = args.start});
}

inline void pack_f4(const StreamPackArgs& args) {
  const __m256i values =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  const __m256i code = _mm256_set1_epi8(15);
  char* out = static_cast<char*>(args.out);
  for (long step = 0; step < args.steps; ++step)
    for (long m = 0; m < args.mr; ++m, out += decoded_x_bytes) {
      const __m256i bytes = row_step(args, m, step);
      const __m256i even = _mm256_shuffle_epi8(values, _mm256_and_si256(bytes, code));
      const __m256i odd = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), code));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), even);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32), odd);
      const __m256i sums = _mm256_add_epi32(sum_of_bytes(even), sum_of_bytes(odd));
      int* start = args.start + step * scales_of_step * args.mr + m;
      start[0] = -f4_offset * sum_of_dwords(_mm256_castsi256_si128(sums));
      start[args.mr] = -f4_offset * sum_of_dwords(_mm256_extracti128_si256(sums, 1));
    }
}

}  // namespace
}  // namespace gemmtune::cpu
