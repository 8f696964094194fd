// AVX-512 BW: vpmaddwd multiplies pairs of int16 and adds both products.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_decode.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

struct IntegerPairs : PairLines {
  static Vec multiply(V x, V w, Vec sum) {
    const __m512i both = _mm512_madd_epi16(reinterpret_cast<__m512i>(w), reinterpret_cast<__m512i>(x));
    return reinterpret_cast<Vec>(_mm512_add_epi32(reinterpret_cast<__m512i>(sum), both));
  }
};

constexpr PanelEntry panels[] = {
    {1, 1, panel_kernel<IntegerPairs, 1, 1>},   {1, 2, panel_kernel<IntegerPairs, 1, 2>},
    {1, 3, panel_kernel<IntegerPairs, 1, 3>},   {4, 1, panel_kernel<IntegerPairs, 4, 1>},
    {4, 2, panel_kernel<IntegerPairs, 4, 2>},   {4, 3, panel_kernel<IntegerPairs, 4, 3>},
    {8, 1, panel_kernel<IntegerPairs, 8, 1>},   {8, 2, panel_kernel<IntegerPairs, 8, 2>},
    {14, 1, panel_kernel<IntegerPairs, 14, 1>}, {14, 2, panel_kernel<IntegerPairs, 14, 2>}};

}  // namespace

constexpr DecodeKernels avx512_decode_kernels =
    decode_tables({panels, 10}, pack_x<ReadPairs>, pack_panel<ReadPairs>);

}  // namespace gemmtune::cpu
