// AVX-512 BW: weights of 4 bits in float32, and times int8 by vpmaddubsw.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/w4_kernels.h"
#include "backends/cpu/microkernels/w4_avx512.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

/// Both products of 31 · 128 twice stay within int16.
template <typename Values>
struct W4Bytes : W4OffsetBytes<Values> {
  static IVec multiply(IVec sum, const char* x, __m512i w) {
    const __m512i pairs = _mm512_maddubs_epi16(w, load_as<__m512i>(x));
    return sum + reinterpret_cast<IVec>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
};

}  // namespace

constexpr W4Set avx512_w4_kernels = {.floats = w4_float_kernels<W4Tiles, W4Floats>(pack_w4_x<float, false>),
                                     .bytes = w4_byte_kernels<W4Tiles, W4Bytes>()};

}  // namespace gemmtune::cpu
