// AMX with VBMI: weights of fp8 and MXFP4 are decoded into tiles.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_bytes.h"
#include "backends/cpu/microkernels/stream_fp8.h"
#include "backends/cpu/microkernels/stream_integer.h"
#include "backends/cpu/microkernels/amx_tile.h"
#include "backends/cpu/microkernels/tile_stream.h"
// clang-format on

namespace gemmtune::cpu {

constexpr StreamKernels amx_stream_kernels = tile_stream_kernels<AmxTiles>();

}  // namespace gemmtune::cpu
