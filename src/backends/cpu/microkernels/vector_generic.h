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

}  // namespace
}  // namespace gemmtune::cpu
