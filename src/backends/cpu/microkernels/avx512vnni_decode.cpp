// AVX-512 VNNI: int8 as pairs of int16.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_decode.h"
#include "backends/cpu/microkernels/integer_pairs_vnni.h"
// clang-format on

namespace gemmtune::cpu {

constexpr DecodeKernels avx512vnni_decode_kernels = vnni_decode_tables();

}  // namespace gemmtune::cpu
