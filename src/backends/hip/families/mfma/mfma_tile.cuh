// A tile of mfma.cu, whose defines it has: which one a block computes, how it comes to shared memory and registers, its products, and how they
// become rows of y. mfma_moe.cu has these tiles too. With REDUCE alone: what the reduction of partial sums needs.
//
// D = A * B of the instruction has the weight as A and x as B, so that a lane holds consecutive columns of y.
#pragma once

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "backends/hip/families/mfma/mfma_instructions.cuh"

using gemmtune::hip::MfmaArguments;

// The arguments of this block's batch.
static __device__ inline MfmaArguments of_batch(MfmaArguments a) {
#if BATCHED
  const long long batch = blockIdx.z;
  a.x += batch * a.x_batch_bytes;
  a.w += batch * a.w_batch_bytes;
  a.y += batch * a.y_batch_step;
  a.partials = (sum*)a.partials + batch * a.split_k * a.m * a.n;
  a.scales = scales_of_batch(a.scales, batch, a.m, a.n);
#endif
  return a;
}

// The factor of a row, and those of a column.
static __device__ inline float row_scale(const MfmaArguments& a, int row) {
  return SCALES == 1 || SCALES == 2 ? x_scale_at(a.scales, row, 0) : 1.0f;
}
struct Column {
  float scale, bias;
};
static __device__ inline Column column_at(const MfmaArguments& a, int column) {
  return {(SCALES == 1 || SCALES == 2) && W_SCALES == SCALES ? w_scale_at(a.scales, column, 0) : 1.0f,
          a.bias ? read_output(a.bias[column]) : 0.0f};
}
static __device__ inline output epilogue_value(sum value, float scale, const Column& column) {
  return round_output((float)value * (scale * column.scale) + column.bias);
}

#ifndef REDUCE

// Offset of the 16 bytes `unit` of a row of a tile in shared memory. Without padding they are swizzled, so that the lanes which the banks
// serve at once read different banks; of a column-major operand also those that write rows WORD_ROWS apart, as far as such rows have different
// banks.
template <bool COLUMNS = false>
static __device__ inline int unit_offset(int row, int unit) {
#if PAD
  const int swizzle = 0;
#elif DECODE && SHUFFLED && MFMA_ROWS == 16
  const int swizzle = row & (BANKS_BYTES == 256 ? 11 : 3);  // groups of lanes read units that are four apart
#elif BANKS_BYTES == 256 && BLOCK_K == 64 && MFMA_ROWS == 16 && KPACK == 2
  const int swizzle = row >> 2 & 2;  // lanes of a phase read two units of each four rows
#elif BLOCK_K < BANKS_BYTES
  const int swizzle = row / (BANKS_BYTES / BLOCK_K) % UNITS;
#else
  const int swizzle = row % (BANKS_BYTES / 16);
#endif
  // Rows of 64 bytes have four units, which the rows of a phase of reads must share as before.
#if BLOCK_K == 64
  const int of_columns = BANKS_BYTES == 256 ? (row >> 4 & 1) * 3 : row >> 3 & 1;
#else
  const int of_columns = row / (BANKS_BYTES / 16) % (UNITS < BANKS_BYTES / 16 ? UNITS : BANKS_BYTES / 16);
#endif
  return row * PITCH + (unit ^ swizzle ^ (COLUMNS && !PAD ? of_columns : 0)) * 16;
}

// 16 bytes of k, of which `left` are there: read so that they end where the row does.
static __device__ inline unit_words load_unit(const unsigned char* from, long long left) {
  return *(const unit_anywhere*)(from + (left < 16 ? left - 16 : 0));
}
// Moves them to the front; the others become zero.
static __device__ inline unit_words trim_unit(unit_words words, long long left) {
  typedef unsigned __int128 bits;
  const int shift = left >= 16 ? 0 : (int)(16 - left) * 8;
  return __builtin_bit_cast(unit_words, shift < 128 ? __builtin_bit_cast(bits, words) >> shift : (bits)0);
}

struct Tile {
  int m, n;  // first row of x, of w
};

// Blocks are dealt to the dies in turn: those of one die get consecutive tiles of `count`, which share operands in its L2.
static __device__ inline int dealt_to_dies(int index, int count, int dies) {
  if (dies <= 1) return index;
  const int die = index % dies;
  const int each = count / dies;
  const int longer = count % dies;  // dies with one tile more
  return die * each + (die < longer ? die : longer) + index / dies;
}

// Consecutive tiles walk down group_m tiles along m before they move on along n.
static __device__ inline Tile tile_at(const MfmaArguments& a, int index) {
  index = dealt_to_dies(index, a.tiles_m * a.tiles_n, a.xcds);
  const int first = index / (a.group_m * a.tiles_n) * a.group_m;
  const int within = index % (a.group_m * a.tiles_n);
  const int height = a.tiles_m - first < a.group_m ? a.tiles_m - first : a.group_m;
  return {(first + within % height) * BLOCK_M, within / height * BLOCK_N};
}

// Rows out of bounds are loaded as the last one: what is computed of them is not stored.
static __device__ inline int clamp_row(int row, int rows) { return row < rows ? row : rows - 1; }

#if DIRECT

#ifndef GEMMTUNE_EMULATION  // tests/support/emulation/device.h has them for the host
static __device__ inline unsigned gemmtune_lds_offset(const void* address) {
  return (unsigned)(unsigned long long)(__attribute__((address_space(3))) const unsigned char*)address;
}
#ifdef __gfx90a__
#define LOAD_TO_LDS "global_load_dword %1, off lds"
#else
#define LOAD_TO_LDS "global_load_lds_dword %1, off"
#endif
// A wave's load of 256 bytes to shared memory at lds_offset, 4 bytes for each lane. Compilers before LLVM 20 fail on the builtin
// (llvm-project#123627).
static __device__ inline void gemmtune_load_to_lds(const void* from, unsigned lds_offset) {
  asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\t" LOAD_TO_LDS ::"s"(__builtin_amdgcn_readfirstlane((int)lds_offset)),
               "v"(from)
               : "memory");
}
#endif

static __device__ const unsigned zeros[4] = {0, 0, 0, 0};

// Of BLOCK rows from row `first` on the bytes of k from `column` on; 4 bytes are there or not.
template <int BLOCK>
static __device__ inline void load_direct(unsigned to, const unsigned char* from, long long line_bytes, int first,
                                          int rows, long long column, long long k_bytes) {
  constexpr int parts = BLOCK * UNITS / 16;  // of 256 bytes
  const int wave = threadIdx.x / 64;
  const int lane = threadIdx.x % 64;
#pragma unroll
  for (int i = 0; i < (parts + WAVES - 1) / WAVES; ++i) {
    const int part = i * WAVES + wave;
    if (parts % WAVES != 0 && part >= parts) break;
    const int unit = part * 16 + lane / 4;
    const int row = unit / UNITS;
    const int place = unit_offset(row, unit % UNITS) % BLOCK_K / 16;  // swizzling is its own inverse
    const long long at = column + place * 16 + lane % 4 * 4;
    const unsigned char* const there = from + clamp_row(first + row, rows) * line_bytes + at;
    gemmtune_load_to_lds(at < k_bytes ? (const void*)there : (const void*)zeros, to + part * 256);
  }
}

#endif

#if DECODE

typedef unsigned word_anywhere __attribute__((aligned(1)));

// Eight elements, a unit of bf16, as they are in memory, and the scale of their block.
struct Encoded {
  unsigned words[2];
  unsigned scale;
};

// The upper halves of two floats, which have bf16's precision.
static __device__ inline unsigned bfloat_pair(float low, float high) {
  return __builtin_amdgcn_perm(__float_as_uint(high), __float_as_uint(low), 0x07060302u);
}

// Elements are decoded over this, because 6 times the largest scales is more than bf16 holds; sums are multiplied by it.
#define E2M1_UNIT 4.0f
#define SUM_UNIT (ELEMENT == 5 ? E2M1_UNIT * E2M1_UNIT : E2M1_UNIT)
static __device__ inline float quarter_scale(unsigned bits) {
  return e8m0_to_float((unsigned char)bits) * (1.0f / E2M1_UNIT);
}

// Eight fp4 elements times their scale.
#ifdef __gfx950__
static __device__ inline unit_words decode_fp4(unsigned word, float scale) {
#define DECODE_BYTE(i) __builtin_bit_cast(unsigned, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, scale, i))
  const unit_words all = {DECODE_BYTE(0), DECODE_BYTE(1), DECODE_BYTE(2), DECODE_BYTE(3)};
#undef DECODE_BYTE
  return all;
}
#else
// The bytes of their bf16 numbers come from tables of eight bytes, chosen by the magnitudes.
static __device__ inline unit_words decode_fp4(unsigned word, float scale) {
  const unsigned even = word & 0x07070707u;
  const unsigned odd = word >> 4 & 0x07070707u;
  const unsigned even_high = __builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, even) | (word & 0x08080808u) << 4;
  const unsigned odd_high = __builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, odd) | (word & 0x80808080u);
  const unsigned even_low = __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, even);
  const unsigned odd_low = __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, odd);
  unit_words all;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned bytes = (4 + i) << 24 | i << 16 | 0x0c0cu;  // 0x0c: a zero
    all[i] = bfloat_pair(__uint_as_float(__builtin_amdgcn_perm(even_high, even_low, bytes)) * scale,
                         __uint_as_float(__builtin_amdgcn_perm(odd_high, odd_low, bytes)) * scale);
  }
  return all;
}
#endif

#if DECODE_X
static __device__ inline unit_words decode_x(const Encoded& from) {
#if ELEMENT == 5
  return decode_fp4(from.words[0], quarter_scale(from.scale));
#else
  unit_words all;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if (ELEMENT == 6 && defined(__gfx942__)) || (ELEMENT == 3 && defined(__gfx950__))
    typedef float float_pair __attribute__((vector_size(8)));
    const float_pair pair = i % 2 ? __builtin_amdgcn_cvt_pk_f32_fp8((int)from.words[i / 2], true)
                                  : __builtin_amdgcn_cvt_pk_f32_fp8((int)from.words[i / 2], false);
    all[i] = bfloat_pair(pair[0], pair[1]);
#else
    const unsigned both = from.words[i / 2] >> i % 2 * 16;
    all[i] = bfloat_pair(read_element((element)(both & 255u)), read_element((element)(both >> 8 & 255u)));
#endif
  }
  return all;
#endif
}
#endif

template <int COUNT, int BLOCK, typename Decode>
static __device__ inline void store_decoded(unsigned char* to, const Encoded (&from)[COUNT], const Decode& decode) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (BLOCK * UNITS % NUM_THREADS == 0 || at < BLOCK * UNITS)
      *(unit_words*)(to + unit_offset(at / UNITS, at % UNITS)) = decode(from[i]);
  }
}

// BITS of an element: 4, or 8, which have no scales here. k is a multiple of 32: a unit is there or not.
template <int BITS, int COUNT, int BLOCK>
static __device__ inline void load_encoded(Encoded (&to)[COUNT], const unsigned char* from, long long line_bytes,
                                           const void* scales, long long scale_step, int first, int rows,
                                           long long column, long long k_bytes) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (BLOCK * UNITS % NUM_THREADS == 0 || at < BLOCK * UNITS) {
      const long long byte = column + at % UNITS * 16;
      const bool is_there = byte < k_bytes;
      const long long k = is_there ? byte / 2 : 0;
      const long long row = clamp_row(first + at / UNITS, rows);
      const unsigned char* const there = from + row * line_bytes + k * BITS / 8;
      to[i].words[0] = *(const word_anywhere*)there;
      if (BITS == 8) to[i].words[1] = *(const word_anywhere*)(there + 4);
      if (BITS == 4) to[i].scale = ((const unsigned char*)scales)[row * scale_step + k / MX_BLOCK];
      if (!is_there) to[i].words[0] = to[i].words[1] = 0;
    }
  }
}

#endif

// What a thread has loaded of the next tile.
struct Staged {
#if DECODE_X
  Encoded x[X_UNITS];
#elif !DIRECT
  unit_words x[X_UNITS];
#endif
#if DECODE && SHUFFLED
  unit_words fragments[FRAGMENTS][TILES_W];
  unsigned fragment_scales[FRAGMENTS][TILES_W];
#elif SHUFFLED
  Operand weight[STEPS][TILES_W];
#elif DECODE
  Encoded w[W_UNITS];
#elif !DIRECT
  unit_words w[W_UNITS];
#endif
#if SCALED
  unsigned x_scales[STEPS][TILES_X];
  unsigned w_scales[STEPS][TILES_W];
#endif
};

// `row_at(i, row)`: where row `row` of the block begins, of which the thread copies its i-th unit.
template <int COUNT, int BLOCK, typename RowAt>
static __device__ inline void load_rows(unit_words (&to)[COUNT], const RowAt& row_at, long long column,
                                        long long k_bytes) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (BLOCK * UNITS % NUM_THREADS == 0 || at < BLOCK * UNITS) {
      const long long byte = column + at % UNITS * 16;
      to[i] = load_unit(row_at(i, at / UNITS) + byte, k_bytes - byte);
    }
  }
  // Only the last tile has less than whole units.
  if (column + BLOCK_K > k_bytes) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      to[i] = trim_unit(to[i], k_bytes - column - ((int)threadIdx.x + i * NUM_THREADS) % UNITS * 16);
  }
}

template <int COUNT, int BLOCK>
static __device__ inline void store_rows(unsigned char* to, const unit_words (&from)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (BLOCK * UNITS % NUM_THREADS == 0 || at < BLOCK * UNITS)
      *(unit_words*)(to + unit_offset(at / UNITS, at % UNITS)) = from[i];
  }
}

#if X_COLUMNS || W_COLUMNS

#define ELEMENT_BYTES (4 / WORD_ROWS)
#define UNIT_LINES (16 / ELEMENT_BYTES)  // of memory, each an element of k, that a unit has elements of
typedef unsigned word_of_line __attribute__((aligned(1)));

// Keep a value of the whole wave in scalar registers, where the compiler would add it to addresses of lanes; and what depends on a lane's
// value from being computed before the loop: there are more lines than registers for the addresses of all.
static __device__ inline long long in_scalar_registers(long long value) {
#ifndef GEMMTUNE_EMULATION
  asm volatile("" : "+s"(value));
#endif
  return value;
}
static __device__ inline int computed_here(int value) {
#ifndef GEMMTUNE_EMULATION
  asm volatile("" : "+v"(value));
#endif
  return value;
}

// Of a column-major operand WORD_ROWS units a group: a word of each line, neighbouring threads at neighbouring words. The last word of a line
// may reach into the next one: rows out of bounds are computed and not stored. INSIDE: all `lines` of the tile are there, and words do not end behind
// the operand, whose last one begins at `last_word`. Within a tile offsets have 31 bits, so that addresses of lines are in scalar registers.
template <int COUNT, int BLOCK, bool INSIDE>
static __device__ inline void load_words(unit_words (&to)[COUNT], const unsigned char* from, int line_bytes, int first,
                                         int rows, int lines, int last_word) {
  constexpr int groups = BLOCK / WORD_ROWS * UNITS;
  const int last_row = (rows - 1) / WORD_ROWS * WORD_ROWS;
#pragma unroll
  for (int i = 0; i < COUNT / WORD_ROWS; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (groups % NUM_THREADS == 0 || at < groups) {
      const int wanted = first + at % (BLOCK / WORD_ROWS) * WORD_ROWS;
      const int line = at / (BLOCK / WORD_ROWS) * UNIT_LINES;
      const int row_bytes = (wanted < last_row ? wanted : last_row) * ELEMENT_BYTES;
      const int begin = INSIDE ? line * line_bytes + row_bytes : computed_here(line * line_bytes + row_bytes);
      long long offset = 0;  // of the j-th line
#pragma unroll
      for (int j = 0; j < UNIT_LINES; ++j) {
        unsigned word;
        if (INSIDE) {
          word = *(const word_of_line*)(from + offset + (unsigned)begin);
          offset = in_scalar_registers(offset + line_bytes);
        } else {
          const int byte = begin + j * line_bytes;
          const int there = byte < last_word ? byte : last_word;
          const unsigned loaded = *(const word_of_line*)(from + there);
          word = line + j < lines ? loaded >> (byte - there) * 8 % 32 : 0u;
        }
        to[i * WORD_ROWS + j / 4][j % 4] = word;
      }
    }
  }
}

template <int COUNT, int BLOCK>
static __device__ inline void load_columns(unit_words (&to)[COUNT], const unsigned char* from, long long line_bytes,
                                           int first, int rows, long long column, long long k_bytes) {
  const unsigned char* const tile = from + column / ELEMENT_BYTES * line_bytes;
  if (column + BLOCK_K + (rows % WORD_ROWS == 0 ? 0 : 4) <= k_bytes) {
    load_words<COUNT, BLOCK, true>(to, tile, (int)line_bytes, first, rows, 0, 0);
  } else {
    const int lines = (int)((k_bytes - column) / ELEMENT_BYTES);
    load_words<COUNT, BLOCK, false>(to, tile, (int)line_bytes, first, rows, lines,
                                    (lines - 1) * (int)line_bytes + rows * ELEMENT_BYTES - 4);
  }
}

// The words of UNIT_LINES lines become a unit of each row.
static __device__ inline void transpose(unit_words (&to)[WORD_ROWS], const unit_words* from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if WORD_ROWS == 2
    const unsigned first = from[i / 2][i % 2 * 2];
    const unsigned second = from[i / 2][i % 2 * 2 + 1];
    to[0][i] = __builtin_amdgcn_perm(second, first, 0x05040100u);
    to[1][i] = __builtin_amdgcn_perm(second, first, 0x07060302u);
#else
    // Pairs of lines, rows 0 and 1, rows 2 and 3; then the pairs of pairs.
    const unsigned low_first = __builtin_amdgcn_perm(from[i][1], from[i][0], 0x05010400u);
    const unsigned high_first = __builtin_amdgcn_perm(from[i][1], from[i][0], 0x07030602u);
    const unsigned low_second = __builtin_amdgcn_perm(from[i][3], from[i][2], 0x05010400u);
    const unsigned high_second = __builtin_amdgcn_perm(from[i][3], from[i][2], 0x07030602u);
    to[0][i] = __builtin_amdgcn_perm(low_second, low_first, 0x05040100u);
    to[1][i] = __builtin_amdgcn_perm(low_second, low_first, 0x07060302u);
    to[2][i] = __builtin_amdgcn_perm(high_second, high_first, 0x05040100u);
    to[3][i] = __builtin_amdgcn_perm(high_second, high_first, 0x07060302u);
#endif
  }
}

template <int COUNT, int BLOCK>
static __device__ inline void store_columns(unsigned char* to, const unit_words (&from)[COUNT]) {
  constexpr int groups = BLOCK / WORD_ROWS * UNITS;
#pragma unroll
  for (int i = 0; i < COUNT / WORD_ROWS; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (groups % NUM_THREADS == 0 || at < groups) {
      unit_words rows[WORD_ROWS];
      transpose(rows, from + i * WORD_ROWS);
#pragma unroll
      for (int row = 0; row < WORD_ROWS; ++row)
        *(unit_words*)(to + unit_offset<true>(at % (BLOCK / WORD_ROWS) * WORD_ROWS + row, at / (BLOCK / WORD_ROWS))) =
            rows[row];
    }
  }
}

#endif

#if SHUFFLED && !DECODE
// Tiles of 16 rows x 16 bytes: a wave reads 1 KiB in one piece (two of 512 bytes with 32 rows). `row_of(row)`: the weight's row of one of the block.
template <typename RowOf>
static __device__ inline void load_shuffled(Staged& staged, const unsigned char* w, const RowOf& row_of,
                                            long long column, long long k_bytes) {
  const int lane = threadIdx.x % 64;
  const int first = (int)threadIdx.x / 64 / WAVES_M * WAVE_COLUMNS + lane % MFMA_ROWS;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
      const long long row = row_of(first + i * MFMA_ROWS);
      const long long wanted = column + step * STEP_BYTES + lane / MFMA_ROWS * 16;
      const long long byte = wanted < k_bytes ? wanted : k_bytes - 16;
      staged.weight[step][i] =
          __builtin_bit_cast(Operand, *(const unit_words*)(w + row / 16 * 16 * k_bytes + byte * 16 + row % 16 * 16));
    }
  }
  // Only the last tile has bytes past the end of k.
  if (column + BLOCK_K > k_bytes) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const bool is_there = column + step * STEP_BYTES + lane / MFMA_ROWS * 16 < k_bytes;
      const unit_words zero = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < TILES_W; ++i)
        staged.weight[step][i] =
            __builtin_bit_cast(Operand, is_there ? __builtin_bit_cast(unit_words, staged.weight[step][i]) : zero);
    }
  }
}
#endif

#if DECODE && SHUFFLED
// Tiles of 16 rows x 16 bytes, 32 elements: as of other types below.
static __device__ inline void load_fragments(const MfmaArguments& a, Staged& staged, const Tile& tile,
                                             long long column) {
  const int lane = threadIdx.x % 64;
  const int first = tile.n + (int)threadIdx.x / 64 / WAVES_M * WAVE_COLUMNS + lane % MFMA_ROWS;
#pragma unroll
  for (int step = 0; step < FRAGMENTS; ++step) {
    const long long byte = (column + step * FRAGMENT_BYTES) / 4 + lane / MFMA_ROWS * 16;
    const bool is_there = byte < a.w_line_bytes;
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
      const long long row = clamp_row(first + i * MFMA_ROWS, a.n);
      const unit_words zero = {0, 0, 0, 0};
      staged.fragments[step][i] =
          is_there ? *(const unit_words*)(a.w + row / 16 * 16 * a.w_line_bytes + byte * 16 + row % 16 * 16) : zero;
      staged.fragment_scales[step][i] =
          ((const unsigned char*)a.scales.w)[row * a.scales.w_row_step + (is_there ? byte / 16 : 0)];
    }
  }
}
#endif

#if SCALED
// Of the blocks of 32 elements that the lane multiplies. The bytes past the end of k are zero, whatever their scale; NaN it may be only where
// the row's result is.
static __device__ inline void load_scales(const MfmaArguments& a, Staged& staged, const Tile& tile, long long column) {
  const int lane = threadIdx.x % 64;
  const int wave = threadIdx.x / 64;
  const int x_first = tile.m + wave % WAVES_M * WAVE_ROWS + lane % MFMA_ROWS;
  const int w_first = tile.n + wave / WAVES_M * WAVE_COLUMNS + lane % MFMA_ROWS;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const long long byte = column + step * STEP_BYTES + lane / MFMA_ROWS * 16;
    const long long block = byte < a.k_bytes ? byte / 16 : 0;
#pragma unroll
    for (int j = 0; j < TILES_X; ++j)
      staged.x_scales[step][j] =
          ((const unsigned char*)a.scales.x)[clamp_row(x_first + j * MFMA_ROWS, a.m) * a.scales.x_row_step + block];
#pragma unroll
    for (int i = 0; i < TILES_W; ++i)
      staged.w_scales[step][i] =
          ((const unsigned char*)a.scales.w)[clamp_row(w_first + i * MFMA_ROWS, a.n) * a.scales.w_row_step + block];
  }
}
#endif

// Asks for a tile: to registers, or to `buffer`.
static __device__ inline void load_tile(const MfmaArguments& a, Staged& staged, unsigned char* buffer, const Tile& tile,
                                        int k_tile) {
  const long long column = (long long)k_tile * BLOCK_K;
#if DIRECT
  load_direct<BLOCK_M>(gemmtune_lds_offset(buffer), a.x, a.x_line_bytes, tile.m, a.m, column, a.k_bytes);
#if !SHUFFLED
  load_direct<BLOCK_N>(gemmtune_lds_offset(buffer + X_BYTES), a.w, a.w_line_bytes, tile.n, a.n, column, a.k_bytes);
#endif
#else
#if DECODE_X
  load_encoded<ELEMENT == 5 ? 4 : 8, X_UNITS, BLOCK_M>(staged.x, a.x, a.x_line_bytes, a.scales.x, a.scales.x_row_step,
                                                       tile.m, a.m, column, a.k_bytes);
#elif X_COLUMNS
  load_columns<X_UNITS, BLOCK_M>(staged.x, a.x, a.x_line_bytes, tile.m, a.m, column, a.k_bytes);
#else
  load_rows<X_UNITS, BLOCK_M>(
      staged.x, [&](int, int row) { return a.x + clamp_row(tile.m + row, a.m) * a.x_line_bytes; }, column, a.k_bytes);
#endif
#if DECODE && !SHUFFLED
  load_encoded<4, W_UNITS, BLOCK_N>(staged.w, a.w, a.w_line_bytes, a.scales.w, a.scales.w_row_step, tile.n, a.n, column,
                                    a.k_bytes);
#elif W_COLUMNS
  load_columns<W_UNITS, BLOCK_N>(staged.w, a.w, a.w_line_bytes, tile.n, a.n, column, a.k_bytes);
#elif !SHUFFLED
  load_rows<W_UNITS, BLOCK_N>(
      staged.w, [&](int, int row) { return a.w + clamp_row(tile.n + row, a.n) * a.w_line_bytes; }, column, a.k_bytes);
#endif
#endif
#if SCALED
  load_scales(a, staged, tile, column);
#endif
#if DECODE && SHUFFLED
  load_fragments(a, staged, tile, column);
#elif SHUFFLED
  load_shuffled(
      staged, a.w, [&](int row) { return clamp_row(tile.n + row, a.n); }, column, a.k_bytes);
#endif
}

// Writes what was loaded to registers; after a barrier all waves see the tile.
static __device__ inline void store_tile(const Staged& staged, unsigned char* buffer) {
#if DIRECT
  __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
#else
#if DECODE_X
  store_decoded<X_UNITS, BLOCK_M>(buffer, staged.x, [](const Encoded& from) { return decode_x(from); });
#elif X_COLUMNS
  store_columns<X_UNITS, BLOCK_M>(buffer, staged.x);
#else
  store_rows<X_UNITS, BLOCK_M>(buffer, staged.x);
#endif
#if DECODE && !SHUFFLED
  store_decoded<W_UNITS, BLOCK_N>(buffer + X_BYTES, staged.w, [](const Encoded& from) {
    return decode_fp4(from.words[0], quarter_scale(from.scale));
  });
#elif W_COLUMNS
  store_columns<W_UNITS, BLOCK_N>(buffer + X_BYTES, staged.w);
#elif !SHUFFLED
  store_rows<W_UNITS, BLOCK_N>(buffer + X_BYTES, staged.w);
#endif
#endif
}

template <bool COLUMNS>
static __device__ inline Operand read_operand(const unsigned char* rows, int row, int step, int group) {
#if DECODE && SHUFFLED
  const int byte = step / 4 * FRAGMENT_BYTES + group * 64 + step % 4 * 16;
#else
  const int byte = step * STEP_BYTES + group * 8 * KPACK;
#endif
  return *(const Operand*)(rows + unit_offset<COLUMNS>(row, byte / 16) + byte % 16);
}

static __device__ inline void multiply_tile(sums_vector (&sums)[TILES_W][TILES_X], const unsigned char* buffer,
                                            const Staged& staged, int wave_m, int wave_n) {
  const int row = threadIdx.x % 64 % MFMA_ROWS;
  const int group = threadIdx.x % 64 / MFMA_ROWS;
#if PAIRED
#pragma unroll
  for (int step = 0; step < STEPS; step += 2) {
    Operand x[TILES_X][2];
#pragma unroll
    for (int j = 0; j < TILES_X; ++j) {
#pragma unroll
      for (int part = 0; part < 2; ++part)
        x[j][part] = read_operand<X_COLUMNS>(buffer, wave_m * WAVE_ROWS + j * MFMA_ROWS + row, step + part, group);
    }
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
      Operand w[2];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#if SHUFFLED
        w[part] = staged.weight[step + part][i];
#else
        w[part] =
            read_operand<W_COLUMNS>(buffer + X_BYTES, wave_n * WAVE_COLUMNS + i * MFMA_ROWS + row, step + part, group);
#endif
      }
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) sums[i][j] = multiply_pair(w, x[j], sums[i][j]);
    }
  }
#else
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    Operand x[TILES_X];
    Operand w[TILES_W];
#pragma unroll
    for (int j = 0; j < TILES_X; ++j)
      x[j] = read_operand<X_COLUMNS>(buffer, wave_m * WAVE_ROWS + j * MFMA_ROWS + row, step, group);
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
#if DECODE && SHUFFLED
      w[i] = __builtin_bit_cast(Operand, decode_fp4(staged.fragments[step / 4][i][step % 4],
                                                    quarter_scale(staged.fragment_scales[step / 4][i])));
#elif SHUFFLED
      w[i] = staged.weight[step][i];
#else
      w[i] = read_operand<W_COLUMNS>(buffer + X_BYTES, wave_n * WAVE_COLUMNS + i * MFMA_ROWS + row, step, group);
#endif
    }
#if SCALED || WIDE
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
#if SCALED
        sums[i][j] = multiply_scaled(w[i], x[j], sums[i][j], staged.w_scales[step][i], staged.x_scales[step][j]);
#else
        sums[i][j] = multiply_wide(w[i], x[j], sums[i][j]);
#endif
      }
    }
#else
#pragma unroll
    for (int part = 0; part < KPACK; ++part) {
#pragma unroll
      for (int i = 0; i < TILES_W; ++i) {
#pragma unroll
        for (int j = 0; j < TILES_X; ++j) sums[i][j] = multiply(w[i][part], x[j][part], sums[i][j]);
      }
    }
#endif
  }
#endif
}

#if SCALES == 3
// The products of one tile, which is one block of k, are scaled before they are added.
static __device__ inline void add_scaled(const MfmaArguments& a, sums_vector (&sums)[TILES_W][TILES_X],
                                         const sums_vector (&products)[TILES_W][TILES_X], const Tile& tile, int k_tile,
                                         int wave_m, int wave_n) {
  const long long k = (long long)k_tile * SCALE_BLOCK;
#pragma unroll
  for (int j = 0; j < TILES_X; ++j) {
    const int row = clamp_row(tile.m + wave_m * WAVE_ROWS + j * MFMA_ROWS + (int)threadIdx.x % MFMA_ROWS, a.m);
    const float x_scale = x_scale_at(a.scales, row, k);
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
      const int column = clamp_row(tile.n + wave_n * WAVE_COLUMNS + i * MFMA_ROWS, a.n);
      sums[i][j] += products[i][j] * (x_scale * w_scale_at(a.scales, column, k));
    }
  }
}
#endif

// Stores four adjacent columns of a row.
static __device__ inline void store_four(const MfmaArguments& a, int row, int column, const sum (&values)[4],
                                         const Column (&columns)[4]) {
  if (row >= a.m || column >= a.n) return;
#if SPLIT_K
  typedef sum stored;
  stored* const to = (sum*)a.partials + ((long long)blockIdx.y * a.m + row) * a.n + column;
#else
  typedef output stored;
  stored* const to = a.y + row * a.ldy + column;
#endif
  struct alignas(4 * sizeof(stored)) Four {
    stored value[4];
  } four;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if SPLIT_K
    four.value[i] = values[i];
#else
    four.value[i] = epilogue_value(values[i], row_scale(a, row), columns[i]);
#endif
  }
  if (column + 3 < a.n && (unsigned long long)to % sizeof(Four) == 0) {
    *(Four*)to = four;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (column + i < a.n) to[i] = four.value[i];
}

#if WAVES_PER_EU && defined(__AMDGCN__)
#define OCCUPANCY __attribute__((amdgpu_waves_per_eu(WAVES_PER_EU)))
#else
#define OCCUPANCY
#endif

#endif
