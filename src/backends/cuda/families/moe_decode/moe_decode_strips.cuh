// Strips of 16 rows of a weight of 4 bits in shared memory, times tokens in registers, of each WeightFormat.
#pragma once

#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/int4.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/nvfp4.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/cuda/families/moe_decode/moe_decode_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

typedef float Sums[4];  // rows lane / 4 and that plus 8, tokens lane % 4 * 2 and the next

static __device__ __forceinline__ void multiply(Sums& d, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                unsigned b0, unsigned b1) {
  if constexpr (types().element == Element::bf16)
    mma_bf16(d, a0, a1, a2, a3, b0, b1);
  else
    mma_f16(d, a0, a1, a2, a3, b0, b1);
}

enum : int {
  // A thread has of 64 of k eight bytes of a row, or, so that a product has k of one group, four of each 32 of k.
  TWO_GROUPS = is_int4() && SCALE_K == 32,
  GROUPS_OF_ATOM = TWO_GROUPS ? 2 : 1,
};
static __device__ constexpr bool decodes_to_halves() { return types().element == Element::f16; }

// In shared memory: addresses of rows, scales and zero points, and bytes from row to row.
struct Strip {
  unsigned rows, scales, zeros;
  int pitch, scale_pitch, zero_pitch;
};
// The 16 rows from `row` on of a stage at `stage`, which has `count` rows of w1 or (SECOND) w2.
template <bool SECOND>
static __device__ __forceinline__ Strip strip_of(unsigned stage, int count, int row) {
  Strip strip;
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
static __device__ __forceinline__ void multiply_mxfp4(Sums& d, const unsigned (&x)[HELD][1][8], const Strip& strip,
                                                      int first) {
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

// ---- NVFP4 and int4

// Of an atom and of the thread's rows: what elements are multiplied by (NVFP4) or what is subtracted (int4), and the
// scales of a group's sums.
struct AtomFactors {
  unsigned by[GROUPS_OF_ATOM][2];
  float scales[GROUPS_OF_ATOM][2];
};
// Of atom `before` + `first`; `before` is a constant, so that the addresses of all atoms are few registers and constants.
template <bool EIGHT_ROWS>
static __device__ __forceinline__ AtomFactors factors_of(const Strip& strip, int before, int first) {
  const int lane = (int)threadIdx.x % 32;
  AtomFactors factors = {};
  if constexpr (config().weight == WeightFormat::nvfp4) {
    const unsigned from = strip.scales + (unsigned)(lane / 4 * strip.scale_pitch + (before + first) * 4 + lane % 4);
    unsigned codes = load_shared_byte(from);
    if (!EIGHT_ROWS) codes |= load_shared_byte(from + 8u * (unsigned)strip.scale_pitch) << 8;
    if constexpr (decodes_to_halves())
      e4m3_half_factors(factors.by[0], codes);
    else
      e4m3_factors(factors.by[0], codes);
    return factors;
  }
  constexpr int atoms = SCALE_K > 64 ? SCALE_K / 64 : 1;  // of a group
  const int group = (before / atoms + (before % atoms + first) / atoms) * GROUPS_OF_ATOM;
#pragma unroll
  for (int i = 0; i < (EIGHT_ROWS ? 1 : 2); ++i) {
    const int row = lane / 4 + i * 8;
    const unsigned scale_at = strip.scales + (unsigned)(row * strip.scale_pitch + group * 2);
    const unsigned zero_at = strip.zeros + (unsigned)(row * strip.zero_pitch + group);
    const unsigned scales = TWO_GROUPS ? load_shared_word(scale_at) : load_shared_half_word(scale_at);
    unsigned zeros = 0;
    if constexpr (config().zero_points) zeros = TWO_GROUPS ? load_shared_half_word(zero_at) : load_shared_byte(zero_at);
#pragma unroll
    for (int of_atom = 0; of_atom < GROUPS_OF_ATOM; ++of_atom) {
      factors.by[of_atom][i] = int4_offset<decodes_to_halves()>((signed char)(zeros >> (of_atom * 8)));
      factors.scales[of_atom][i] = read_stored<types().output>((unsigned short)(scales >> (of_atom * 16)));
    }
  }
  return factors;
}

// Eight elements of a row, in pairs as pair_x() has those of x.
static __device__ __forceinline__ void decode_word(unsigned (&to)[4], unsigned word, unsigned by) {
  constexpr bool halves = decodes_to_halves();
  if constexpr (is_int4())
    raise_word<halves>(to, word);
  else if constexpr (halves)
    spread_word_to_halves(to, word);
  else
    spread_word(to, word);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (is_int4())
      to[j] = subtract_int4<halves>(to[j], by);
    else if constexpr (halves)
      to[j] = multiply_halves(to[j], by);
    else
      to[j] = multiply(to[j], by);
  }
}

// Every element is exact; of int4 the sums of a group of k are multiplied by its scale.
template <bool EIGHT_ROWS, int COUNT, int APART, int HELD>
static __device__ __forceinline__ void multiply_formats(Sums& d, const unsigned (&x)[HELD][1][8], const Strip& strip,
                                                        int first) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned from =
      strip.rows + (unsigned)(lane / 4 * strip.pitch + first * W_ATOM_BYTES + lane % 4 * (TWO_GROUPS ? 4 : 8));
  PairOfSums p = {};
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if ((i + 1) * APART > COUNT && i * APART + first >= COUNT) continue;
    const unsigned at = from + (unsigned)(i * APART * W_ATOM_BYTES);
    OwnWords words;
    if constexpr (TWO_GROUPS) {
#pragma unroll
      for (int row = 0; row < (EIGHT_ROWS ? 1 : 2); ++row) {
        words[row].x = load_shared_word(at + (unsigned)(row * 8 * strip.pitch));
        words[row].y = load_shared_word(at + (unsigned)(row * 8 * strip.pitch + 16));
      }
    } else {
      load_words<EIGHT_ROWS>(words, at, 8u * (unsigned)strip.pitch);
    }
    const AtomFactors factors = factors_of<EIGHT_ROWS>(strip, i * APART, first);
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const int group = TWO_GROUPS ? word : 0;
      unsigned pairs[2][4] = {};
#pragma unroll
      for (int row = 0; row < (EIGHT_ROWS ? 1 : 2); ++row)
        decode_word(pairs[row], word == 0 ? words[row].x : words[row].y, factors.by[group][row]);
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        multiply(p[j / 2][0], pairs[0][j], pairs[1][j], pairs[0][j + 1], pairs[1][j + 1], x[i][0][word * 4 + j],
                 x[i][0][word * 4 + j + 1]);
      if (!is_grouped() || (!TWO_GROUPS && word == 0)) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        d[e] = fmaf(p[0][0][e] + p[1][0][e], factors.scales[group][e / 2], d[e]);
        p[0][0][e] = p[1][0][e] = 0.0f;
      }
    }
  }
  if constexpr (!is_grouped()) {
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] = (p[0][0][e] + p[1][0][e]) * NVFP4_UNIT;
  }
}

// The sums of a strip, or of its first eight rows, to `d`, which is 0: of the atoms of k from `first` on, one in APART, and COUNT of
// a team's warps; `x` as pair_x() makes it.
template <bool EIGHT_ROWS, int COUNT, int APART, int HELD>
static __device__ __forceinline__ void multiply_strip(Sums& d, const unsigned (&x)[HELD][1][8], const Strip& strip,
                                                      int first) {
  if constexpr (config().weight == WeightFormat::mxfp4)
    multiply_mxfp4<EIGHT_ROWS, COUNT, APART>(d, x, strip, first);
  else
    multiply_formats<EIGHT_ROWS, COUNT, APART>(d, x, strip, first);
}
