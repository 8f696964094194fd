// What a consumer of wgmma_moe does with a weight of 4 bits: its rows, their scales, and decoding between shared memory and registers.
#pragma once

#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/int4.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/nvfp4.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

// Elements of k are permuted within 128 so that a thread decodes 16 bytes of its rows, a block of one scale, without the other threads: of k = 32 t + 8 w + j +
// 4 i (i < 2, j, t, w < 4) the place is 32 w + 8 j + 2 t + i. x comes so, and the hidden layer is written so: a warp of stage 1 has features of one (w, j), lane
// group g = 2 t + i; without a gate the second half of the instruction's rows is of j + 1. Of stage 2 neighbouring lane groups have rows 4 apart, for the banks of shared memory; store_staged() puts them in order.
//
// Of int4 weights (WITHIN_32) t and w change places: of k = 32 w + 8 t + j + 4 i the place is the same. An instruction's 16 of k are of one group then; a thread has four bytes of each 32, which matrices of
// 8 rows x 16 bytes bring it, and the tile's features are neighbours.
//
// The row of the tile, in shared memory, of lane group `lane` and instruction R of the block; the second half of the instruction's rows is SECOND_ROW further.
enum : int {
  SECOND_ROW = PERMUTED ? 1 : 8,
  NEXT_ROWS = STAGE == 1 && !WITHIN_32 ? 16 : 64,  // from an instruction's to those of the next
  FRAGMENTS = FRAGMENTS_PER_BATCH(MMA_TILES),      // of 16 of k that are multiplied together
  // For fragments: with four warp groups a multiprocessor one.
  BUFFERS = CONSUMER_WARPGROUPS == 4 || BLOCKS == 2 ? 1 : 2,
};
static __device__ __forceinline__ int permuted_row(int instruction, int warp, int lane) {
  if constexpr (INTERLEAVED && WITHIN_32)
    return instruction * 64 + lane / 2 * 16 + warp + lane % 2 * 4;
  else if constexpr (PERMUTED && WITHIN_32)
    return instruction * 64 + warp / 2 * 32 + lane / 2 * 8 + warp % 2 * 2 + lane % 2 * 4;
  else if constexpr (INTERLEAVED)
    return lane / 2 * (BLOCK_ROWS / 4) + instruction * 16 + warp + lane % 2 * 4;
  else if constexpr (PERMUTED)
    return lane / 2 * (BLOCK_ROWS / 4) + instruction * 16 + warp / 2 * 8 + warp % 2 * 2 + lane % 2 * 4;
  else
    return instruction * 64 + warp * 16 + lane / 2 + lane % 2 * 4;
}
// The feature of w1 that the thread has in its instruction r (of a gated one in both halves of the instruction's rows), of the tile whose first column of `to` is
// `column`.
static __device__ __forceinline__ int feature_of(int column, int r, int half) {
  const int warp = (int)(threadIdx.x % 128) / 32;
  const int lane = (int)threadIdx.x % 32 / 4;
  const int instruction = (int)threadIdx.x / 128 * MMA_TILES + r;
  if constexpr (INTERLEAVED && WITHIN_32)
    return column + instruction * 32 + lane / 2 * 8 + warp + lane % 2 * 4;
  else if constexpr (WITHIN_32)
    return column + permuted_row(instruction, warp, lane) + half;
  else if constexpr (INTERLEAVED)
    return column / 128 * 128 + lane / 2 * 32 + (column % 128 / 32 + instruction) * 8 + warp + lane % 2 * 4;
  else
    return column / 128 * 128 + lane / 2 * 32 + column % 128 / 4 + instruction * 16 + warp / 2 * 8 + warp % 2 * 2 +
           lane % 2 * 4 + half;
}
// Sums of a group of int4 are multiplied by its scale; else elements are.
static __device__ constexpr bool adds_groups() { return is_int4() && !config().scaled; }
// int4 to bf16 with fewer shifts; fp16 has not the range.
static __device__ constexpr bool masks_int4() { return is_int4() && types().element == Element::bf16; }
// By one product and sum.
static __device__ constexpr bool scales_at_once(bool large) {
  return config().scaled && !config().zero_points && !large;
}
enum : int {
  SCALE_SIZE = is_int4() ? 2 : 1,
  // Of a row and 128 of k: bytes of scales, and of zero points, which are the last word.
  UNIT_SCALE_BYTES = 128 / SCALE_K * SCALE_SIZE,
  UNIT_ZERO_BYTES = config().zero_points ? 128 / SCALE_K : 0,
  SCALE_WORDS = (UNIT_SCALE_BYTES + 3) / 4,
  WORDS = SCALE_WORDS + (config().zero_points ? 1 : 0),
  STEPS_PER_SCALE = SCALE_K / 16,
};
typedef unsigned RowWords[WORDS];
typedef RowWords ScaleWords[MMA_TILES][2];

// Where the scales of the thread's rows begin. Four lanes share their rows: lane l of them loads those of 128 of k, the l-th of a chunk of 512.
struct ScaleRows {
  const unsigned char* from[MMA_TILES][2];
};

// Of the tile at row `tile_row` of w, whose first column of `to` is `column`. Rows past the last one have its scales: their products are not stored, or zero.
static __device__ __forceinline__ ScaleRows scale_rows(const WgmmaMoeArguments& a, int expert, int tile_row,
                                                       int column) {
  const unsigned char* const scales = (const unsigned char*)a.w_scales + expert * a.w_scale_matrix * SCALE_SIZE;
  ScaleRows rows;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
    if constexpr (INTERLEAVED) {
      int row = feature_of(column, r, 0);
      if (row >= a.features) row = a.features - 1;
      rows.from[r][0] = scales + (long long)row * a.w_scale_columns * SCALE_SIZE;
      rows.from[r][1] = rows.from[r][0] + (long long)a.features * a.w_scale_columns * SCALE_SIZE;
    } else if constexpr (PERMUTED) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = feature_of(column, r, half);
        if (row >= a.features) row = a.features - 1;
        rows.from[r][half] = scales + (long long)row * a.w_scale_columns * SCALE_SIZE;
      }
    } else {
      const int warp = (int)(threadIdx.x % 128) / 32;
      const int lane = (int)threadIdx.x % 32 / 4;
      const int instruction = (int)threadIdx.x / 128 * MMA_TILES + r;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = tile_row + permuted_row(instruction, warp, lane) + half * 8;
        if (row >= a.features) row = a.features - 1;
        rows.from[r][half] = scales + (long long)row * a.w_scale_columns * SCALE_SIZE;
      }
    }
  }
  return rows;
}

// The lane's words of the chunk that begins at byte `column` of a row of scales.
static __device__ __forceinline__ void load_scales(ScaleWords& words, const WgmmaMoeArguments& a, const ScaleRows& rows,
                                                   int column) {
  const int row_bytes = a.w_scale_columns * SCALE_SIZE;
  column += (int)threadIdx.x % 4 * UNIT_SCALE_BYTES;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    RowWords& to = words[i / 2][i % 2];
    const unsigned char* const from = rows.from[i / 2][i % 2] + column;
    if constexpr (config().weight == WeightFormat::mxfp4) {
      // As load_scale_word(), with which four warp groups would spill.
      unsigned word = 0;
      if (a.w_scale_alignment == 4) {
        if (column < a.w_scale_columns) asm volatile("ld.global.nc.L2::128B.b32 %0, [%1];" : "=r"(word) : "l"(from));
      } else {
#pragma unroll
        for (int byte = 0; byte < 4; byte += 2) {
          unsigned half = 0;
          if (a.w_scale_alignment == 2) {
            if (column + byte < a.w_scale_columns)
              asm volatile("{\n.reg .b16 half;\nld.global.nc.L2::128B.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
                           : "=r"(half)
                           : "l"(from + byte));
          } else {
            unsigned low = 0;
            unsigned high = 0;
            if (column + byte < a.w_scale_columns)
              asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(low) : "l"(from + byte));
            if (column + byte + 1 < a.w_scale_columns)
              asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(high) : "l"(from + byte + 1));
            half = low | high << 8;
          }
          word |= half << (8 * byte);
        }
      }
      to[0] = word;
    } else if constexpr (UNIT_SCALE_BYTES == 2) {
      to[0] = column < row_bytes ? load_scale_half_word(from) : 0u;
    } else {
#pragma unroll
      for (int word = 0; word < SCALE_WORDS; ++word)
        to[word] = load_scale_word(from + word * 4, column + word * 4, row_bytes, a.w_scale_alignment);
    }
    if constexpr (UNIT_ZERO_BYTES > 0) {
      const unsigned char* const zeros =
          (const unsigned char*)a.format.zero_points + (from - (const unsigned char*)a.w_scales) / 2;
      to[WORDS - 1] = 0;
#pragma unroll
      for (int byte = 0; byte < UNIT_ZERO_BYTES; ++byte)
        if (column / 2 + byte < a.w_scale_columns) to[WORDS - 1] |= load_scale_byte(zeros + byte) << (8 * byte);
    }
  }
}

// The words of lane `unit` of four.
static __device__ __forceinline__ unsigned word_of_unit(unsigned word, int unit) {
  return __shfl_sync(0xffffffffu, word, ((int)threadIdx.x & 28) + unit, 32);
}

// Of 128 of k and the thread's two rows: what elements are multiplied by, and of MXFP4 `more` where a scale of the warp group is above 2. Of int4 the words.
struct Mxfp4Factors {
  unsigned by[2];
  unsigned more[2];
};
struct Nvfp4Factors {
  unsigned by[2][2];  // of the first and of the second 16 of the thread's k
};
struct Int4Factors {
  RowWords words[2];
};
template <WeightFormat FORMAT>
struct FactorsOf {
  typedef Mxfp4Factors type;
};
template <>
struct FactorsOf<WeightFormat::nvfp4> {
  typedef Nvfp4Factors type;
};
template <>
struct FactorsOf<WeightFormat::int4> {
  typedef Int4Factors type;
};
typedef FactorsOf<config().weight>::type Factors;

// Of 128 of k, unit `unit` of four of the chunk.
static __device__ __forceinline__ void set_factors(Mxfp4Factors& factors, const RowWords (&chunk)[2], int unit,
                                                   bool large) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unsigned e = __byte_perm(word_of_unit(chunk[i][0], unit), 0u, 0x4440u + (unsigned)(lane % 4));
    factors.more[i] = large ? large_factor(e) : 0u;
    if (large) e = without_large(e);
    factors.by[i] = scale_factor(e);
  }
}
static __device__ __forceinline__ void set_factors(Nvfp4Factors& factors, const RowWords (&chunk)[2], int unit, bool) {
  const int lane = (int)threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned first = word_of_unit(chunk[i][0], unit);
    const unsigned second = word_of_unit(chunk[i][WORDS - 1], unit);
    const unsigned codes = (lane < 2 ? first : second) >> (lane % 2 * 16);
    unsigned by[2];
    if constexpr (types().element == Element::f16)
      e4m3_half_factors(by, codes);
    else
      e4m3_factors(by, codes);
    factors.by[0][i] = by[0];
    factors.by[1][i] = by[1];
  }
}
static __device__ __forceinline__ void set_factors(Int4Factors& factors, const RowWords (&chunk)[2], int unit, bool) {
#pragma unroll
  for (int i = 0; i < 2 * WORDS; ++i)
    factors.words[i / WORDS][i % WORDS] = word_of_unit(chunk[i / WORDS][i % WORDS], unit);
}

// The scale of the sums of group `group` of 128 of k, of row `row` of two.
static __device__ __forceinline__ float group_scale(const Int4Factors& factors, int group, int row) {
  const unsigned short bits = (unsigned short)(factors.words[row][group / 2] >> (group % 2 * 16));
  if constexpr (config().scales == Element::f16)
    return half_to_float(bits);
  else
    return bfloat_to_float(bits);
}

// The thread's 16 bytes of each of its rows.
typedef uint4 RawWeight[MMA_TILES][2];

// Where they are in a stage, of the first instruction's first row; with WITHIN_32 the 16 bytes of a row that the lane addresses.
static __device__ __forceinline__ unsigned own_weight() {
  const int lane = (int)threadIdx.x % 32;
  const int row =
      permuted_row((int)threadIdx.x / 128 * MMA_TILES, (int)(threadIdx.x % 128) / 32, WITHIN_32 ? lane % 8 : lane / 4);
  return (unsigned)(row * ATOM_BYTES + ((WITHIN_32 ? lane / 8 : lane % 4) ^ (row % 8)) *
                                           16);  // TMA's swizzle: 16 bytes at c of row r are at c ^ (r % 8)
}

// 128 of k, half `half` of a stage at `base`. The instructions' rows differ by multiples of 8, the halves by c ^ 4, the second rows, where they follow even ones, by c ^ 1.
static __device__ __forceinline__ void load_half(RawWeight& raw, unsigned base, unsigned own, int half) {
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    const unsigned swizzle = (unsigned)(half * 64 + (SECOND_ROW == 1 ? i % 2 * 16 : 0));
    const unsigned from = base + (own ^ swizzle) + (unsigned)((i / 2 * NEXT_ROWS + i % 2 * SECOND_ROW) * ATOM_BYTES);
    if constexpr (WITHIN_32) {
      unsigned words[4];
      load_matrices(words, from);
      raw[i / 2][i % 2] = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      raw[i / 2][i % 2] = load_shared_words(from);
    }
  }
}

// Eight elements of a row, in pairs, and pair `i` of row `row` of two as it is multiplied, of step `step` of eight of 128 of k.
static __device__ __forceinline__ void spread(unsigned (&pairs)[4], unsigned word, const Mxfp4Factors&) {
  spread_word(pairs, word);
}
static __device__ __forceinline__ unsigned scaled(unsigned pair, int, const Mxfp4Factors& factors, int, int row,
                                                  bool large) {
  if (large) pair = multiply(pair, factors.more[row]);
  return multiply(pair, factors.by[row]);
}
static __device__ __forceinline__ void spread(unsigned (&pairs)[4], unsigned word, const Nvfp4Factors&) {
  if constexpr (types().element == Element::f16)
    spread_word_to_halves(pairs, word);
  else
    spread_word(pairs, word);
}
static __device__ __forceinline__ unsigned scaled(unsigned pair, int, const Nvfp4Factors& factors, int step, int row,
                                                  bool) {
  if constexpr (types().element == Element::f16)
    return multiply_halves(pair, factors.by[step / 4][row]);
  else
    return multiply(pair, factors.by[step / 4][row]);
}
static __device__ __forceinline__ void spread(unsigned (&pairs)[4], unsigned word, const Int4Factors&) {
  if constexpr (masks_int4())
    mask_word(pairs, word);
  else
    raise_word<true>(pairs, word);
}
static __device__ __forceinline__ unsigned scaled(unsigned pair, int i, const Int4Factors& factors, int step, int row,
                                                  bool large) {
  int zero_point = 0;
  if constexpr (config().zero_points)
    zero_point = (signed char)(factors.words[row][WORDS - 1] >> (step / STEPS_PER_SCALE * 8));
  if constexpr (!masks_int4()) return subtract_int4<true>(pair, int4_offset<true>(zero_point));
  const unsigned scales = int4_scale_pair(factors.words[row], step / STEPS_PER_SCALE);
  if (scales_at_once(large)) return multiply_add(pair, scaled_int4_factor(scales, i), scaled_int4_offset(scales));
  const unsigned element = scale_masked(pair, i, masked_offset(zero_point));
  return config().scaled ? multiply(element, scales) : element;
}

// 16 of k, step `step` of eight.
static __device__ __forceinline__ void decode(unsigned (&to)[4], const uint4 (&raw)[2], int step,
                                              const Factors& factors, bool large) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4& row = raw[i % 2];
    const unsigned word = step / 2 == 0 ? row.x : step / 2 == 1 ? row.y : step / 2 == 2 ? row.z : row.w;
    unsigned pairs[4];
    spread(pairs, word, factors);
    const int pair = step % 2 * 2 + i / 2;
    to[i] = scaled(pairs[pair], pair, factors, step, i % 2, large);
  }
}

// COUNT times 16 of k from `step` of the 16 of a stage on, whose tokens are at `b`.
template <int WIDTH, int COUNT>
static __device__ __forceinline__ void start_products(float* d, const unsigned (*fragments)[4], unsigned b, int step) {
  start_batch<COUNT>(b, step, B_ATOM_BYTES, [&](int i, unsigned long long descriptor) {
    Instruction<WIDTH>::multiply(d, fragments[i], descriptor);
  });
}

// True if a scale of the warp group's chunk may be above 2, of MXFP4, or 2 and more, of elements of int4: its warps take one branch together.
static __device__ __forceinline__ bool has_large_scales(const ScaleWords& chunk) {
  if constexpr (config().weight != WeightFormat::mxfp4 && !scales_at_once(false)) return false;
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2 * WORDS; ++i) all |= chunk[i / WORDS / 2][i / WORDS % 2][i % WORDS];
  const bool large = is_int4() ? has_rare_int4_scale(all) : (all & 0x80808080u) != 0u;
  return any_of_warpgroup(large, scales_barrier + (int)threadIdx.x / 128);
}

// What sums of the tile's expert are multiplied by: not of int4 and fp16.
static __device__ constexpr bool has_unit() { return config().fp4 && (!is_int4() || masks_int4()); }
static __device__ __forceinline__ float sum_unit(const WgmmaMoeArguments& a, int expert) {
  if constexpr (config().weight == WeightFormat::nvfp4) {
    float global;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(global) : "l"(a.format.w_global + expert));
    return NVFP4_UNIT * global;
  }
  if constexpr (is_int4()) return INT4_UNIT;
  return E2M1_UNIT * config().token_unit;
}
