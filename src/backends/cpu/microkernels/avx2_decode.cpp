// AVX2: vpmaddwd multiplies pairs of int16 and adds both products.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx2.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_decode.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

struct IntegerPairs : PairLines {
  static Vec multiply(V x, V w, Vec sum) {
    const __m256i both = _mm256_madd_epi16(reinterpret_cast<__m256i>(w), reinterpret_cast<__m256i>(x));
    return reinterpret_cast<Vec>(_mm256_add_epi32(reinterpret_cast<__m256i>(sum), both));
  }
};

constexpr PanelEntry panels[] = {{1, 1, panel_kernel<IntegerPairs, 1, 1>},
                                 {1, 2, panel_kernel<IntegerPairs, 1, 2>},
                                 {2, 1, panel_kernel<IntegerPairs, 2, 1>},
                                 {2, 2, panel_kernel<IntegerPairs, 2, 2>},
                                 {4, 1, panel_kernel<IntegerPairs, 4, 1>}};

}  // namespace

constexpr DecodeKernels avx2_decode_kernels =
    decode_tables({panels, 5}, pack_x<ReadPairs>, pack_panel<ReadPairs>);

}  // namespace gemmtune::cpu
