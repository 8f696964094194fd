// 32-byte vectors with FMA and F16C.
#pragma once

#include <immintrin.h>

namespace gemmtune::cpu {
namespace {
typedef float Vec __attribute__((vector_size(32)));
typedef int IVec __attribute__((vector_size(32)));
constexpr int lanes = 8;
}  // namespace
}  // namespace gemmtune::cpu

#include "backends/cpu/microkernels/vector_generic.h"

namespace gemmtune::cpu {
namespace {

inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

inline float sum(Vec v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// totals[i] = the sum of the i-th vector.
inline void sum_four(Vec a, Vec b, Vec c, Vec d, float* totals) {
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(totals, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

inline IVec zip_low(IVec a, IVec b) { return __builtin_shuffle(a, b, IVec{0, 8, 1, 9, 2, 10, 3, 11}); }
inline IVec zip_high(IVec a, IVec b) { return __builtin_shuffle(a, b, IVec{4, 12, 5, 13, 6, 14, 7, 15}); }

inline Vec load_bf16(const void* from) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline Vec load_f16(const void* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}
/// As many bytes as there are lanes; GCC converts such a vector lane by lane.
inline UVec load_bytes(const void* from) {
  return reinterpret_cast<UVec>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
}
inline HVec narrow_f16(Vec v) {
  return reinterpret_cast<HVec>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace gemmtune::cpu
