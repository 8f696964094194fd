// The streaming kernels of AMX, and those of 4-bit weights, over emulated tiles.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_bytes.h"
#include "backends/cpu/microkernels/stream_fp8.h"
#include "backends/cpu/microkernels/stream_integer.h"
#include "backends/cpu/microkernels/tile_stream.h"
#include "backends/cpu/microkernels/w4_kernels.h"
#include "backends/cpu/microkernels/w4_tiles.h"
// clang-format on

#include "support/emulated_amx_tiles.h"

namespace gemmtune::cpu {

constexpr StreamKernels emulated_stream_kernels = tile_stream_kernels<EmulatedTiles>();
constexpr W4Set emulated_w4_kernels = W4TileTables<EmulatedTiles>::set();

}  // namespace gemmtune::cpu
