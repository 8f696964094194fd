// Decoding and integers of the portable level.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/kernels/isa/vector_scalar.h"
#include "backends/cpu/kernels/isa/vector_kernels.h"
#include "backends/cpu/kernels/isa/vector_pack.h"
#include "backends/cpu/kernels/isa/vector_decode.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

/// Interface of vector_sources.h over int16 pairs; the sums are int32 lanes in registers that are called
/// float.
struct IntegerPairs {
  using V = IVec;
  static constexpr int steps = 1, k_per_line = 2, line_bytes = 64, x_bytes = 2;
  static void load_line(const char* line, int vector, V out[steps]) {
    out[0] = load_as<IVec>(line + vector * static_cast<int>(sizeof(IVec)));
  }
  static V broadcast_x(const char* x) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return IVec{} + pair;
  }
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
