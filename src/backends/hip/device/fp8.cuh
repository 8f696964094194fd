// Pairs of fp8 elements of x as floats.
#pragma once

#include "backends/gpu/device/numbers.cuh"
#include "backends/hip/device/architecture.cuh"

typedef float float_pair __attribute__((vector_size(8)));

// Whether the architecture has an instruction for such a pair.
static __device__ constexpr bool converts_fp8() {
  if (architecture() == Architecture::gfx942) return types().element == Element::e4m3fnuz;
  return architecture() == Architecture::gfx950 && types().element == Element::e4m3;
}

// The lower two elements of a word, or the upper ones.
static __device__ __forceinline__ float_pair fp8_pair(unsigned word, bool upper) {
  if constexpr (converts_fp8()) {
    return upper ? __builtin_amdgcn_cvt_pk_f32_fp8((int)word, true) : __builtin_amdgcn_cvt_pk_f32_fp8((int)word, false);
  } else {
    const unsigned both = upper ? word >> 16 : word;
    return float_pair{read_element((element)(both & 255u)), read_element((element)(both >> 8 & 255u))};
  }
}
