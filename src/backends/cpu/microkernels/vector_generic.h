// What the vector headers share, on top of their Vec (float), IVec (int32) and `lanes`. Included by them
// only; all of it has internal linkage on purpose (see micro.h).
namespace gemmtune::cpu {
namespace {

typedef unsigned UVec __attribute__((vector_size(sizeof(Vec))));
typedef unsigned short HVec __attribute__((vector_size(sizeof(Vec) / 2)));

template <typename V>
inline V load_as(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}

template <typename V>
inline void store_as(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof(V));
}

/// As bits: a float added to zeros is an addition (−0), and one in registers does not come with the load.
inline Vec broadcast(const char* from) {
  int bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return reinterpret_cast<Vec>(IVec{} + bits);
}

/// Round to nearest even, NaN stays a quiet NaN.
inline HVec narrow_bf16(Vec value) {
  const UVec bits = reinterpret_cast<UVec>(value);
  const UVec rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const UVec quiet = (bits >> 16) | 0x40U;
  const UVec is_nan = reinterpret_cast<UVec>(value != value);
  return __builtin_convertvector((rounded & ~is_nan) | (quiet & is_nan), HVec);
}

#if defined(__AVX512BW__)
/// The upper halves are what narrow_bf16() gives.
inline __m512i round_to_bf16(Vec value) {
  const __m512i bits = reinterpret_cast<__m512i>(value);
  const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  return _mm512_mask_or_epi32(_mm512_mask_add_epi32(up, is_odd, up, _mm512_set1_epi32(1)), is_nan, bits,
                              _mm512_set1_epi32(0x400000));
}
/// A line at once, in half of the instructions.
inline void store_bf16(char* to, Vec first, Vec second) {
  alignas(64) static constexpr unsigned short upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                           23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                           45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  _mm512_storeu_si512(
      to, _mm512_permutex2var_epi16(round_to_bf16(first), _mm512_load_si512(upper), round_to_bf16(second)));
}
#else
inline void store_bf16(char* to, Vec first, Vec second) {
  store_as(to, narrow_bf16(first));
  store_as(to + lanes * 2, narrow_bf16(second));
}
#endif

}  // namespace
}  // namespace gemmtune::cpu
