// The streaming kernels of AMX over emulated tiles.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_bytes.h"
#include "backends/cpu/microkernels/stream_fp8.h"
#include "backends/cpu/microkernels/stream_integer.h"
#include "backends/cpu/microkernels/tile_stream.h"
// clang-format on

#include "support/emulated_amx_tiles.h"

namespace gemmtune::cpu {

constexpr StreamKernels emulated_stream_kernels = tile_stream_kernels<EmulatedTiles>();

}  // namespace gemmtune::cpu
