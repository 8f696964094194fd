// Strips of 16 rows of a weight of 4 bits in shared memory, times tokens in registers, of each WeightFormat.
#pragma once

#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/cuda/families/moe_decode/moe_decode_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

typedef float Sums[4];  // rows lane / 4 and that plus 8, tokens lane % 4 * 2 and the next

static __device__ constexpr Element group_scale_type() { return types().output; }
static __device__ constexpr bool wide_atoms() { return false; }

#include "backends/cuda/families/weight_strip.cuh"

// The 16 rows from `row` on of a stage at `stage`, which has `count` rows of w1 or (SECOND) w2.
template <bool SECOND>
static __device__ __forceinline__ WeightStrip strip_of(unsigned stage, int count, int row) {
  WeightStrip strip;
  strip.pitch = SECOND ? HIDDEN_PITCH : PITCH;
  strip.scale_pitch = SECOND ? config().hidden_scale_pitch : config().scale_pitch;
  strip.zero_pitch = SECOND ? config().hidden_zero_pitch : config().zero_pitch;
  const unsigned scales = stage + (unsigned)(count * strip.pitch);
  strip.rows = stage + (unsigned)(row * strip.pitch);
  strip.scales = scales + (unsigned)(row * strip.scale_pitch);
  strip.zeros = scales + (unsigned)(count * strip.scale_pitch + row * strip.zero_pitch);
  return strip;
}

typedef float PairOfSums[2][1][4];

// ---- MXFP4

// d += the warp's atoms of a row, one in APART from `first` on, times `x`; COUNT: of a team's warps.
template <bool LARGE, bool EIGHT_ROWS, int COUNT, int APART, int HELD>
static __device__ __forceinline__ void multiply_atoms(PairOfSums& d, const unsigned (&x)[HELD][1][8],
                                                      const unsigned (&scales)[HELD][2], unsigned from, unsigned second,
                                                      int first) {
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if ((i + 1) * APART > COUNT && i * APART + first >= COUNT) continue;
    OwnWords words;
    load_words<EIGHT_ROWS>(words, from + (unsigned)(i * APART * W_ATOM_BYTES), second);
    multiply_unit<LARGE, EIGHT_ROWS, 1>(d, x[i], scales[i], words);
  }
}

template <bool EIGHT_ROWS, int COUNT, int APART, int HELD>
static __device__ __forceinline__ void multiply_mxfp4(Sums& d, const unsigned (&x)[HELD][1][8],
                                                      const WeightStrip& strip, int first) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned from = strip.rows + (unsigned)(lane / 4 * strip.pitch + first * W_ATOM_BYTES + lane % 4 * 8);
  const unsigned scales_from = strip.scales + (unsigned)(lane / 4 * strip.scale_pitch + first * 2 + lane % 4 / 2);
  unsigned scales[HELD][2];
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < HELD * 2; ++i) {
    unsigned& e = scales[i / 2][i % 2];
    if (EIGHT_ROWS && i % 2 == 1) continue;
    e = 0;  // behind the row's end is no scale
    if ((i / 2 + 1) * APART <= COUNT || i / 2 * APART + first < COUNT)
      e = load_shared_byte(scales_from + (unsigned)(i % 2 * 8 * strip.scale_pitch + i / 2 * APART * 2));
    all |= e;
  }
  PairOfSums p = {};
  if (__any_sync(0xffffffffu, (all & 0x80u) != 0u)) {
    multiply_atoms<true, EIGHT_ROWS, COUNT, APART>(p, x, scales, from, 8u * (unsigned)strip.pitch, first);
  } else {
    multiply_atoms<false, EIGHT_ROWS, COUNT, APART>(p, x, scales, from, 8u * (unsigned)strip.pitch, first);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = (p[0][0][i] + p[1][0][i]) * E2M1_UNIT;
}

// The sums of a strip, or of its first eight rows, to `d`, which is 0: of the atoms of k from `first` on, one in APART, and COUNT of
// a team's warps; `x` as pair_x() makes it.
template <bool EIGHT_ROWS, int COUNT, int APART, int HELD>
static __device__ __forceinline__ void multiply_strip(Sums& d, const unsigned (&x)[HELD][1][8],
                                                      const WeightStrip& strip, int first) {
  if constexpr (config().weight == WeightFormat::mxfp4) {
    multiply_mxfp4<EIGHT_ROWS, COUNT, APART>(d, x, strip, first);
  } else {
    float sums[1][4] = {};
    multiply_formats<EIGHT_ROWS, 8, COUNT, APART, 1>(sums, x, strip, first);
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = sums[0][i];
  }
}
