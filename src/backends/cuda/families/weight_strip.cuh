// Strips of 16 rows of an NVFP4 or int4 weight in shared memory, times tokens in registers by mma.sync. It comes after config(), which has the members weight, group and
// zero_points, group_scale_type(), which int4's scales have, and wide_atoms().
#pragma once

#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/int4.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/nvfp4.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/weight_format.cuh"
#include "backends/gpu/device/numbers.cuh"

static __device__ __forceinline__ void multiply(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                unsigned b0, unsigned b1) {
  if constexpr (types().element == Element::bf16)
    mma_bf16(d, a0, a1, a2, a3, b0, b1);
  else
    mma_f16(d, a0, a1, a2, a3, b0, b1);
}

enum : int {
  // An atom is 64 of k, of which a thread has eight bytes of a row, or, so that a product has k of one group, four of each 32 of k. With wide_atoms() it is
  // 128, of which a thread has 16 bytes: fewer loads meet in the same banks where rows lie at multiples of 128 bytes.
  TWO_GROUPS = is_int4() && SCALE_K == 32,
  UNITS_OF_ATOM = wide_atoms() ? 2 : 1,
  GROUPS_OF_ATOM = TWO_GROUPS || (wide_atoms() && !is_int4()) ? 2 : 1,
  WORDS_OF_ATOM = 2 * UNITS_OF_ATOM,
  STRIP_ATOM_BYTES = 32 * UNITS_OF_ATOM,
};
static_assert(!wide_atoms() || config().weight == gemmtune::cuda::WeightFormat::nvfp4 || SCALE_K == 128,
              "a product has k of one group");
static __device__ constexpr bool decodes_to_halves() { return types().element == Element::f16; }

// In shared memory: addresses of rows, scales and zero points, and bytes from row to row.
struct WeightStrip {
  unsigned rows, scales, zeros;
  int pitch, scale_pitch, zero_pitch;
};
// Of two scales of e4m3.
static __device__ __forceinline__ void decode_scales(unsigned (&factors)[2], unsigned codes) {
  if constexpr (decodes_to_halves())
    e4m3_half_factors(factors, codes);
  else
    e4m3_factors(factors, codes);
}

// Of an atom and of the thread's rows: what elements are multiplied by (NVFP4) or what is subtracted (int4), and the
// scales of a group's sums.
struct AtomFactors {
  unsigned by[GROUPS_OF_ATOM][2];
  float scales[GROUPS_OF_ATOM][2];
};
// Of atom `before` + `first`; `before` is a constant, so that the addresses of all atoms are few registers and constants.
template <bool EIGHT_ROWS, int SECOND_ROWS>
static __device__ __forceinline__ AtomFactors factors_of(const WeightStrip& strip, int before, int first) {
  const int lane = (int)threadIdx.x % 32;
  AtomFactors factors = {};
  if constexpr (config().weight == WeightFormat::nvfp4) {
    const unsigned from =
        strip.scales + (unsigned)(lane / 4 * strip.scale_pitch + ((before + first) * 4 + lane % 4) * GROUPS_OF_ATOM);
    const unsigned second = from + (unsigned)(SECOND_ROWS * strip.scale_pitch);
    if constexpr (wide_atoms()) {
      unsigned of_row[2][2] = {};
      decode_scales(of_row[0], load_shared_half_word(from));
      if (!EIGHT_ROWS) decode_scales(of_row[1], load_shared_half_word(second));
#pragma unroll
      for (int i = 0; i < 4; ++i) factors.by[i / 2][i % 2] = of_row[i % 2][i / 2];
    } else {
      unsigned codes = load_shared_byte(from);
      if (!EIGHT_ROWS) codes |= load_shared_byte(second) << 8;
      decode_scales(factors.by[0], codes);
    }
    return factors;
  }
  constexpr int units = 64 * UNITS_OF_ATOM;
  constexpr int atoms = SCALE_K > units ? SCALE_K / units : 1;  // of a group
  const int group = (before / atoms + (before % atoms + first) / atoms) * GROUPS_OF_ATOM;
#pragma unroll
  for (int i = 0; i < (EIGHT_ROWS ? 1 : 2); ++i) {
    const int row = lane / 4 + i * SECOND_ROWS;
    const unsigned scale_at = strip.scales + (unsigned)(row * strip.scale_pitch + group * 2);
    const unsigned zero_at = strip.zeros + (unsigned)(row * strip.zero_pitch + group);
    const unsigned scales = TWO_GROUPS ? load_shared_word(scale_at) : load_shared_half_word(scale_at);
    unsigned zeros = 0;
    if constexpr (config().zero_points) zeros = TWO_GROUPS ? load_shared_half_word(zero_at) : load_shared_byte(zero_at);
#pragma unroll
    for (int of_atom = 0; of_atom < GROUPS_OF_ATOM; ++of_atom) {
      factors.by[of_atom][i] = int4_offset<decodes_to_halves()>((signed char)(zeros >> (of_atom * 8)));
      factors.scales[of_atom][i] = read_stored<group_scale_type()>((unsigned short)(scales >> (of_atom * 16)));
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

// The thread's bytes of an atom of a row.
static __device__ __forceinline__ void load_atom_words(unsigned (&words)[WORDS_OF_ATOM], unsigned from) {
  if constexpr (wide_atoms()) {
    const uint4 bits = load_shared_words(from);
    words[0] = bits.x;
    words[1] = bits.y;
    words[2] = bits.z;
    words[3] = bits.w;
  } else if constexpr (TWO_GROUPS) {
    words[0] = load_shared_word(from);
    words[1] = load_shared_word(from + 16u);
  } else {
    const uint2 bits = load_shared_two_words(from);
    words[0] = bits.x;
    words[1] = bits.y;
  }
}

// Every element is exact; of int4 the sums of a group of k are multiplied by its scale. USED: groups of eight tokens that there are.
template <bool EIGHT_ROWS, int SECOND_ROWS, int COUNT, int APART, int USED, int HELD, int TOKEN_GROUPS>
static __device__ __forceinline__ void multiply_formats(float (&d)[TOKEN_GROUPS][4],
                                                        const unsigned (&x)[HELD][TOKEN_GROUPS][8],
                                                        const WeightStrip& strip, int first) {
  constexpr int atoms = HELD / UNITS_OF_ATOM;
  const int lane = (int)threadIdx.x % 32;
  const unsigned from = strip.rows + (unsigned)(lane / 4 * strip.pitch + first * STRIP_ATOM_BYTES +
                                                lane % 4 * (TWO_GROUPS ? 4 : STRIP_ATOM_BYTES / 4));
  float p[2][TOKEN_GROUPS][4] = {};
#pragma unroll
  for (int i = 0; i < atoms; ++i) {
    if ((i + 1) * APART > COUNT && i * APART + first >= COUNT) continue;
    const unsigned at = from + (unsigned)(i * APART * STRIP_ATOM_BYTES);
    unsigned words[2][WORDS_OF_ATOM];
#pragma unroll
    for (int row = 0; row < (EIGHT_ROWS ? 1 : 2); ++row)
      load_atom_words(words[row], at + (unsigned)(row * SECOND_ROWS * strip.pitch));
    const AtomFactors factors = factors_of<EIGHT_ROWS, SECOND_ROWS>(strip, i * APART, first);
#pragma unroll
    for (int word = 0; word < WORDS_OF_ATOM; ++word) {
      const int group = word / (WORDS_OF_ATOM / GROUPS_OF_ATOM);
      const int unit = i * UNITS_OF_ATOM + word / 2;
      unsigned pairs[2][4] = {};
#pragma unroll
      for (int row = 0; row < (EIGHT_ROWS ? 1 : 2); ++row)
        decode_word(pairs[row], words[row][word], factors.by[group][row]);
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
#pragma unroll
        for (int of_tokens = 0; of_tokens < USED; ++of_tokens)
          multiply(p[TWO_GROUPS ? 0 : j / 2][of_tokens], pairs[0][j], pairs[1][j], pairs[0][j + 1], pairs[1][j + 1],
                   x[unit][of_tokens][word % 2 * 4 + j], x[unit][of_tokens][word % 2 * 4 + j + 1]);
      }
      if (!is_grouped() || (!TWO_GROUPS && word < WORDS_OF_ATOM - 1)) continue;
#pragma unroll
      for (int e = 0; e < USED * 4; ++e) {
        float& sum = d[e / 4][e % 4];
        float of_group = p[0][e / 4][e % 4];
        if constexpr (!TWO_GROUPS) of_group += p[1][e / 4][e % 4];
        sum = fmaf(of_group, factors.scales[group][e % 4 / 2], sum);
        p[0][e / 4][e % 4] = p[1][e / 4][e % 4] = 0.0f;
      }
    }
  }
  if constexpr (!is_grouped()) {
#pragma unroll
    for (int e = 0; e < USED * 4; ++e) d[e / 4][e % 4] = (p[0][e / 4][e % 4] + p[1][e / 4][e % 4]) * NVFP4_UNIT;
  }
}
