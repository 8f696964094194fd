// Decoding and integers of the portable level.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_scalar.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_decode.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

struct IntegerPairs : PairLines {
  static Vec multiply(V x, V w, Vec sum) {
    // Both products of a pair and their sum: what one multiply-add instruction does elsewhere.
    const IVec even = (w << 16 >> 16) * (x << 16 >> 16);
    return reinterpret_cast<Vec>(reinterpret_cast<IVec>(sum) + even + (w >> 16) * (x >> 16));
  }
};

constexpr PanelEntry panels[] = {{1, 1, panel_kernel<IntegerPairs, 1, 1>},
                                 {2, 1, panel_kernel<IntegerPairs, 2, 1>}};

}  // namespace

constexpr DecodeKernels scalar_decode_kernels =
    decode_tables({panels, 2}, pack_x<ReadPairs>, pack_panel<ReadPairs>);

}  // namespace gemmtune::cpu
