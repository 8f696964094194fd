// 64-byte vectors.
#pragma once

#include <immintrin.h>

namespace gemmtune::cpu {
namespace {
typedef float Vec __attribute__((vector_size(64)));
typedef int IVec __attribute__((vector_size(64)));
constexpr int lanes = 16;
}  // namespace
}  // namespace gemmtune::cpu

#include "backends/cpu/microkernels/vector_generic.h"

namespace gemmtune::cpu {
namespace {

inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline float sum(Vec v) { return _mm512_reduce_add_ps(v); }

/// totals[i] = the sum of the i-th vector.
inline void sum_four(Vec a, Vec b, Vec c, Vec d, float* totals) {
  const __m512d ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
  const __m512d cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
  const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                                   _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
  _mm_storeu_ps(totals, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

inline IVec zip_low(IVec a, IVec b) {
  return __builtin_shuffle(a, b, IVec{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
}
inline IVec zip_high(IVec a, IVec b) {
  return __builtin_shuffle(a, b, IVec{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
}

inline Vec load_bf16(const void* from) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline Vec load_f16(const void* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
}
/// As many bytes as there are lanes; GCC converts such a vector lane by lane.
inline UVec load_bytes(const void* from) {
  return reinterpret_cast<UVec>(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from))));
}
inline HVec narrow_f16(Vec v) {
  return reinterpret_cast<HVec>(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace gemmtune::cpu
