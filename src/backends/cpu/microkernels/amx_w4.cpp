// AMX: weights of 4 bits, decoded into tiles of bf16.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/w4_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/amx_tile.h"
#include "backends/cpu/microkernels/w4_tiles.h"
// clang-format on

namespace gemmtune::cpu {

constexpr W4Set amx_w4_kernels = W4TileTables<AmxTiles>::set();

}  // namespace gemmtune::cpu
