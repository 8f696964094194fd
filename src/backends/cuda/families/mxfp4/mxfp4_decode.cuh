// A 4-bit weight as bf16, exactly if not SCALED: its scales, and its elements from shared memory to the registers of the tensor core's first operand. Those of mxfp4 and
// nvfp4 are multiplied by their scales there; int4's scales multiply the sums of a group or of a row, or (SCALED) elements too, which are rounded then.
#pragma once

#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/int4.cuh"
#include "backends/cuda/device/nvfp4.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_arguments.h"
#include "backends/cuda/families/mxfp4/mxfp4_producer.cuh"
#include "backends/cuda/families/weight_format.cuh"

// Sums of a group have registers of their own.
static __device__ constexpr bool adds_groups() { return is_grouped() && !config().rescaled && !config().scaled; }

enum : int {
  // Of a row, for 128 of k and for a stage. A scale is of at most the 128 of a half.
  SCALE_BYTES = SCALE_K == 0 ? 0 : 128 / SCALE_K * (is_int4() ? 2 : 1),
  STAGE_SCALE_BYTES = SCALE_BYTES * config().k_atoms / 2,
  ZERO_BYTES = !config().zero_points ? 0
               : SCALE_K == 0        ? 1
                                     : 128 / SCALE_K,
  SCALE_WORDS = (SCALE_BYTES + 3) / 4,
  // Zero points are the last word.
  WORDS = SCALE_WORDS + (ZERO_BYTES > 0 ? 1 : 0) > 0 ? SCALE_WORDS + (ZERO_BYTES > 0 ? 1 : 0) : 1,
  STEPS_PER_SCALE = SCALE_K == 0 ? 8 : SCALE_K / 16,
  // Of e4m3 ones, as zeros are rare scales.
  SCALES_BEHIND = config().weight == WeightFormat::nvfp4 ? 0x38383838 : 0,
};

// Four lanes share their rows: lane l of them holds the scales of 128 of k, the l-th of a chunk of 512; words are exchanged by shuffles.
struct ScaleRows {
  // Of rows warp * 16 + lane / 4 and that plus 8 of each tile; past the last row: of the last one.
  const unsigned char* from[config().tiles][2];
  const unsigned char* zero_points[config().tiles][2];
};
typedef unsigned RowWords[WORDS];
typedef RowWords ScaleWords[config().tiles][2];

static __device__ __forceinline__ const unsigned char* zero_points_of(const Mxfp4Arguments& a) {
  return (const unsigned char*)a.format.zero_points;
}

static __device__ __forceinline__ ScaleRows scale_rows(const Mxfp4Arguments& a, int row) {
  ScaleRows rows;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) {
    int at = row + i / 2 * 64 + i % 2 * 8;
    if (at >= a.n) at = a.n - 1;
    rows.from[i / 2][i % 2] = a.scales + (long long)at * a.scale_row;
    if constexpr (config().zero_points)
      rows.zero_points[i / 2][i % 2] = zero_points_of(a) + (long long)at * a.scale_row / 2;
  }
  return rows;
}

// The lane's words of the chunk that begins at byte `column` of a row of scales. Behind the end of k there are factors of one, or zeros.
static __device__ __forceinline__ void load_scales(ScaleWords& words, const ScaleRows& rows, const Mxfp4Arguments& a,
                                                   int column) {
  column += (int)threadIdx.x % 4 * SCALE_BYTES;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) {
    RowWords& to = words[i / 2][i % 2];
    const unsigned char* const from = rows.from[i / 2][i % 2] + column;
    if constexpr (SCALE_BYTES == 2) {
      to[0] = column < a.scale_row ? load_scale_half_word(from) : 0u;
    } else {
#pragma unroll
      for (int word = 0; word < SCALE_WORDS; ++word)
        to[word] =
            load_scale_word_or(SCALES_BEHIND, from + word * 4, column + word * 4, a.scale_row, a.scale_alignment);
    }
    if constexpr (ZERO_BYTES > 0) {
      to[WORDS - 1] = 0;
#pragma unroll
      for (int byte = 0; byte < ZERO_BYTES; ++byte)
        if (SCALE_K == 0 || column / 2 + byte < a.scale_row / 2)
          to[WORDS - 1] |= load_scale_byte(rows.zero_points[i / 2][i % 2] + column / 2 + byte) << (8 * byte);
    }
  }
}

// Prefetches the block's scales into L2: 512 of k ahead they would come late from memory. This is no read, so that the previous kernel may still run.
// Neighbouring threads have neighbouring sectors of a row, which then leave memory together.
static __device__ __forceinline__ void prefetch_scales(const Mxfp4Arguments& a, const BlockWork& work) {
  if (SCALE_K == 0) return;
  const int first = work.begin * STAGE_SCALE_BYTES;
  const int whole = work.end * STAGE_SCALE_BYTES;
  const int end = whole < a.scale_row ? whole : a.scale_row;
  const unsigned sectors = (unsigned)(end - first + 31) / 32 + 1;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < BLOCK_M * sectors; i += CONSUMER_THREADS) {
    const int row = work.n + (int)(i / sectors);
    const int column = first + (int)(i % sectors) * 32;
    if (row < a.n) {
      const long long at = (long long)row * a.scale_row + (column < end ? column : end - 1);
      prefetch_sector(a.scales + at);
      if constexpr (config().zero_points) prefetch_sector(zero_points_of(a) + at / 2);
    }
  }
}

static __device__ __forceinline__ unsigned byte_of(unsigned word, int i) {
  return __byte_perm(word, 0u, 0x4440u + (unsigned)i);
}

// The lane's byte of each word of 16 bytes: pairs of k from 0, 8, 16 and 24 on.
static __device__ __forceinline__ unsigned own_bytes(const uint4& row, unsigned select) {
  return __byte_perm(__byte_perm(row.x, row.y, select), __byte_perm(row.z, row.w, select), 0x5410u);
}

// Of 16 of k, for the thread's two rows of a tile: what elements are multiplied by, and `more` where a scale of the warp is rare: of mxfp4 above 2, of nvfp4
// no positive normal number, of SCALED int4 without zero points 2 and above. Of int4 what is added to them, SCALED what they are multiplied by.
// Scales of a byte of a packed weight that are not rare have their two factors in by[0].
struct Factors {
  unsigned by[2];
  unsigned more[2];
};
static __device__ __forceinline__ constexpr bool has_factor_pair(bool rare) {
  return config().packed && !is_int4() && !rare;
}
// SCALED: one product and sum makes of an element plus 8 the rounded product with its scale, since 8 times a scale is exact.
static __device__ __forceinline__ constexpr bool scales_at_once(bool rare) {
  return config().scaled && config().packed && !config().zero_points && !rare;
}
// Of 16 of k `step` of eight of 128.
static __device__ __forceinline__ Factors factors_of(const RowWords (&words)[2], int step, bool rare) {
  Factors factors;
  if (has_factor_pair(rare)) {
    constexpr bool is_nvfp4 = config().weight == WeightFormat::nvfp4;
    const int word = is_nvfp4 ? step / 4 : 0;
    const unsigned pair = byte_pair(words[0][word], words[1][word], (unsigned)(is_nvfp4 ? step % 4 : step / 2));
    factors.by[0] = is_nvfp4 ? normal_e4m3_factor_pair(pair) : scale_factor_pair(pair);
    return factors;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    factors.more[i] = 0;
    if constexpr (config().weight == WeightFormat::mxfp4) {
      unsigned e = byte_of(words[i][0], step / 2);
      if (rare) {
        factors.more[i] = large_factor(e);
        e = without_large(e);
      }
      factors.by[i] = scale_factor(e);
    } else if constexpr (config().weight == WeightFormat::nvfp4) {
      const unsigned code = byte_of(words[i][step / 4], step % 4);
      unsigned any[2];
      if (rare) e4m3_factors(any, code);
      factors.by[i] = rare ? any[0] : normal_e4m3_factor(code);
    } else {
      int zero_point = 0;
      if constexpr (config().zero_points)
        zero_point = (signed char)byte_of(words[i][WORDS - 1], step / STEPS_PER_SCALE);
      factors.by[i] = config().packed ? masked_offset(zero_point) : int4_offset(zero_point);
      if constexpr (config().scaled) {
        const unsigned scale = int4_scale_pair(words[i], step / STEPS_PER_SCALE);
        factors.more[i] = scale;
        if (scales_at_once(rare)) {
          factors.more[i] = scaled_int4_factor(scale, i);
          factors.by[i] = scaled_int4_offset(scale);
        }
      }
    }
  }
  return factors;
}
static __device__ __forceinline__ void apply(unsigned (&fragment)[4], const Factors& factors, bool rare) {
  if (config().rescaled || scales_at_once(rare)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = multiply_add(fragment[i], factors.more[i % 2], factors.by[i % 2]);
    return;
  }
  if constexpr (is_int4()) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragment[i] = config().packed ? scale_masked(fragment[i], i, factors.by[i % 2])
                                    : subtract_int4(fragment[i], factors.by[i % 2]);
      if constexpr (config().scaled) fragment[i] = multiply(fragment[i], factors.more[i % 2]);
    }
    return;
  }
  if (rare && config().weight == WeightFormat::mxfp4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = multiply(fragment[i], factors.more[i % 2]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    fragment[i] = has_factor_pair(rare) ? multiply(fragment[i], repeat_half(factors.by[0], i % 2))
                                        : multiply(fragment[i], factors.by[i % 2]);
}

// The scales of int4 that sums of the thread's rows are multiplied by.
typedef float SumScales[config().tiles][2];
// Of the group of 16 of k `step` of eight.
static __device__ __forceinline__ void group_scales(SumScales& scales, const ScaleWords& words, int step) {
  const int group = step / STEPS_PER_SCALE;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i)
    scales[i / 2][i % 2] =
        read_stored<types().output>((unsigned short)(words[i / 2][i % 2][group / 2] >> (group % 2 * 16)));
}
// RESCALED: the scale of a group is a power of two from 2^-100 to 1, which multiplies elements exactly, times the unit that sums are in then, so that sums need none of
// the group's own. Returns what sums are multiplied by that were in the unit of the group before. A scale of zero makes elements zero.
static __device__ __forceinline__ float begin_unit(Factors& factors, float& unit, const RowWords (&words)[2], int row) {
  const float scale = read_stored<types().output>((unsigned short)words[row][0]);
  const unsigned exponent = __float_as_uint(scale) & 0x7f800000u;
  const unsigned power = min(max(exponent, 0x0d800000u), 0x3f800000u);
  const float before = unit;
  if (scale != 0.0f) unit = scale * __uint_as_float(0x7f000000u - power);
  const int zero_point = config().zero_points ? (signed char)byte_of(words[row][WORDS - 1], 0) : 0;
  const unsigned factor = scale != 0.0f ? power : 0u;
  const unsigned masked_factor = scale != 0.0f ? power + (row == 0 ? 0x3f800000u : 0x3d800000u) : 0u;
  factors.more[row] = __byte_perm(masked_factor, 0u, 0x3232u);
  factors.by[row] = multiply(masked_offset(zero_point), __byte_perm(factor, 0u, 0x3232u));
  const float reciprocal = __fdividef(1.0f, unit);
  const float quotient = before * reciprocal;
  return fmaf(fmaf(-quotient, unit, before), reciprocal, quotient);  // exact if it is a power of two
}
typedef Factors UnitFactors[config().tiles];
static __device__ __forceinline__ void begin_units(UnitFactors& factors, SumScales& by, SumScales& units,
                                                   const ScaleWords& words) {
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i)
    by[i / 2][i % 2] = begin_unit(factors[i / 2], units[i / 2][i % 2], words[i / 2], i % 2);
}
static __device__ __forceinline__ void row_scales(SumScales& scales, const ScaleRows& rows) {
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i)
    scales[i / 2][i % 2] = read_stored<types().output>((unsigned short)load_scale_half_word(rows.from[i / 2][i % 2]));
}

// Where a thread's part of the weight lies in a stage.
struct OwnWeight {
  unsigned at;
  unsigned select;  // of a plain weight
};
static __device__ __forceinline__ OwnWeight own_weight() {
  const int lane = threadIdx.x % 32;
  const int group = threadIdx.x / 128;
  OwnWeight own;
  if constexpr (config().packed) {
    own.at = (unsigned)(group * config().tiles * config().k_atoms * FRAGMENT_BYTES + (int)threadIdx.x % 128 * 16);
  } else {
    own.at = (unsigned)((group * config().tiles * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4) * 128);
    own.select = (unsigned)(lane % 4 * 0x11 + 0x40);
  }
  return own;
}

// The thread's part of 128 of k: packed as it lies in a stage, 64 of k each; plain, its bytes of each 32 of k of rows r and r + 8.
struct PackedRaw {
  uint4 of[config().tiles][2];
};
struct PlainRaw {
  unsigned of[config().tiles][4][2];
};

// Loads half `half` of a stage at `w`.
static __device__ __forceinline__ void load_half(PackedRaw& raw, const OwnWeight& own, unsigned w, int half) {
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i)
    raw.of[i / 2][i % 2] =
        load_shared_words(w + own.at + (unsigned)((i / 2 * config().k_atoms + half * 2 + i % 2) * FRAGMENT_BYTES));
}
static __device__ __forceinline__ void load_half(PlainRaw& raw, const OwnWeight& own, unsigned w, int half) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i)  // TMA's swizzle: 16 bytes at c of row r are at c ^ (r % 8)
      raw.of[r][i / 2][i % 2] = own_bytes(
          load_shared_words(w + own.at +
                            (unsigned)(r * 64 * 128 + i % 2 * 8 * 128 + (((half * 4 + i / 2) ^ (lane / 4)) * 16))),
          own.select);
  }
}

// The fragment of tile `r` at step `step` of two of block `block` of four.
static __device__ __forceinline__ void decode(unsigned (&to)[4], const PackedRaw& raw, int r, int block, int step,
                                              const Factors& factors, bool rare) {
  const uint4& words = raw.of[r][block / 2];
  const unsigned word = block % 2 == 0 ? (step == 0 ? words.x : words.y) : (step == 0 ? words.z : words.w);
  if constexpr (is_int4()) {
    mask_word(to, word);
  } else {
    spread_fragment(to, word);
  }
  apply(to, factors, rare);
}
static __device__ __forceinline__ void decode(unsigned (&to)[4], const PlainRaw& raw, int r, int block, int step,
                                              const Factors& factors, bool rare) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned bytes = raw.of[r][block][i % 2];
    to[i] = is_int4() ? raise_byte(bytes, step * 2 + i / 2) : spread_byte(bytes, step * 2 + i / 2);
  }
  apply(to, factors, rare);
}

template <bool IS_PACKED>
struct RawWeightOf {
  typedef PlainRaw type;
};
template <>
struct RawWeightOf<true> {
  typedef PackedRaw type;
};
typedef RawWeightOf<config().packed>::type RawWeight;

// The scales of 128 of k: the words of lane `unit` of four.
static __device__ __forceinline__ void exchange_scales(ScaleWords& words, const ScaleWords& chunk, int unit) {
  if (SCALE_BYTES + ZERO_BYTES == 0) return;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) {
#pragma unroll
    for (int word = 0; word < WORDS; ++word)
      words[i / 2][i % 2][word] =
          __shfl_sync(0xffffffffu, chunk[i / 2][i % 2][word], ((int)threadIdx.x & 28) + unit, 32);
  }
}

// True if a scale of the chunk may be rare: of the warp, or of the warp group, whose warps then take one branch together.
static __device__ __forceinline__ bool has_rare_scales(const ScaleWords& chunk) {
  if constexpr (is_int4() && !scales_at_once(false)) return false;
  bool rare = false;
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) {
#pragma unroll
    for (int word = 0; word < WORDS; ++word) {
      const unsigned scales = chunk[i / 2][i % 2][word];
      all |= config().weight == WeightFormat::nvfp4 ? rare_e4m3(scales) : scales;
    }
  }
  if constexpr (config().weight == WeightFormat::mxfp4) rare = (all & 0x80808080u) != 0u;
  if constexpr (config().weight == WeightFormat::nvfp4) rare = has_rare_e4m3(all);
  if constexpr (is_int4()) rare = has_rare_int4_scale(all);
  if constexpr (config().mma) {
    return __any_sync(0xffffffffu, rare);
  } else {
    return any_of_warpgroup(rare, warpgroup_barrier + (int)threadIdx.x / 128);
  }
}
