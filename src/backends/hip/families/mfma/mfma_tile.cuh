// A tile of mfma.cu: which one a block computes, how it comes to shared memory and registers, its products, and how they become rows of y.
// mfma_moe.cu has these tiles too.
//
// D = A * B of the instruction has the weight as A and x as B, so that a lane holds consecutive columns of y.
#pragma once

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/hip/device/e2m1.cuh"
#include "backends/hip/device/fp8.cuh"
#include "backends/hip/device/registers.cuh"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "backends/hip/families/mfma/mfma_epilogue.cuh"
#include "backends/hip/families/mfma/mfma_instructions.cuh"

// Reads of the lanes that the banks serve at once: of PHASE_ROWS rows, PHASE_UNITS units of each.
enum : int {
  BANKS_UNITS = BANKS_BYTES / 16,
  PHASE_ROWS = BLOCK_K < BANKS_BYTES ? BANKS_BYTES / BLOCK_K : 1,
  PHASE_UNITS = UNITS < BANKS_UNITS ? UNITS : BANKS_UNITS,
};

// Functions that choose a branch of the config are inlined by force: before the compiler optimizes what they are part of.
static __device__ __forceinline__ int swizzle_of(int row) {
  if constexpr (config().decoded && config().shuffled && MFMA_ROWS == 16)
    return row & (BANKS_BYTES == 256 ? 11 : 3);  // groups of lanes read units that are four apart
  else if constexpr (BANKS_BYTES == 256 && BLOCK_K == 64 && MFMA_ROWS == 16 && KPACK == 2)
    return row >> 2 & 2;  // lanes of a phase read two units of each four rows
  else
    return row / PHASE_ROWS % PHASE_UNITS;
}
// Of a column-major operand, whose lanes also write rows WORD_ROWS apart at once, as far as such rows have different banks.
static __device__ __forceinline__ int swizzle_of_columns(int row) {
  // Rows of 64 bytes have four units, which the rows of a phase of reads must share as before.
  if constexpr (BLOCK_K == 64)
    return BANKS_BYTES == 256 ? (row >> 4 & 1) * 3 : row >> 3 & 1;
  else
    return row / BANKS_UNITS % PHASE_UNITS;
}

// Offset of the 16 bytes `unit` of a row of a tile in shared memory. Without padding they are swizzled, so that the lanes which the banks
// serve at once read different banks.
template <bool COLUMNS = false>
static __device__ inline int unit_offset(int row, int unit) {
  if constexpr (config().pad != 0) return row * PITCH + unit * 16;
  const int swizzle = swizzle_of(row);
  const int of_columns = COLUMNS ? swizzle_of_columns(row) : 0;
  return row * PITCH + (unit ^ swizzle ^ of_columns) * 16;
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

// ---- loads to shared memory without registers

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

// ---- elements that become bf16

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
#define SUM_UNIT (types().element == Element::e2m1 ? E2M1_UNIT * E2M1_UNIT : E2M1_UNIT)
static __device__ inline float quarter_scale(unsigned bits) {
  return e8m0_to_float((unsigned char)bits) * (1.0f / E2M1_UNIT);
}

// Eight fp4 elements times their scale.
static __device__ inline unit_words decode_fp4(unsigned word, float scale) {
#ifdef __gfx950__
#define DECODE_BYTE(i) __builtin_bit_cast(unsigned, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, scale, i))
  const unit_words all = {DECODE_BYTE(0), DECODE_BYTE(1), DECODE_BYTE(2), DECODE_BYTE(3)};
#undef DECODE_BYTE
#else
  const E2m1Floats floats = e2m1_floats(word);
  unit_words all;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const float_pair pair = e2m1_pair(floats, i);
    all[i] = bfloat_pair(pair[0] * scale, pair[1] * scale);
  }
#endif
  return all;
}

template <Element TYPE>
static __device__ inline unit_words decode(const Encoded& from) {
  if constexpr (TYPE == Element::e2m1) {
    return decode_fp4(from.words[0], quarter_scale(from.scale));
  } else {
    unit_words all;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float_pair pair = fp8_pair(from.words[i / 2], i % 2);
      all[i] = bfloat_pair(pair[0], pair[1]);
    }
    return all;
  }
}

template <Element TYPE, int COUNT, int BLOCK>
static __device__ inline void store_decoded(unsigned char* to, const Encoded (&from)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (BLOCK * UNITS % NUM_THREADS == 0 || at < BLOCK * UNITS)
      *(unit_words*)(to + unit_offset(at / UNITS, at % UNITS)) = decode<TYPE>(from[i]);
  }
}

// Elements of fp8 have no scales here. k is a multiple of 32: a unit is there or not.
template <Element TYPE, int COUNT, int BLOCK>
static __device__ inline void load_encoded(Encoded (&to)[COUNT], const unsigned char* from, long long line_bytes,
                                           const void* scales, long long scale_step, int first, int rows,
                                           long long column, long long k_bytes) {
  constexpr int bits = TYPE == Element::e2m1 ? 4 : 8;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = (int)threadIdx.x + i * NUM_THREADS;
    if (BLOCK * UNITS % NUM_THREADS == 0 || at < BLOCK * UNITS) {
      const long long byte = column + at % UNITS * 16;
      const bool is_there = byte < k_bytes;
      const long long k = is_there ? byte / 2 : 0;
      const long long row = clamp_row(first + at / UNITS, rows);
      const unsigned char* const there = from + row * line_bytes + k * bits / 8;
      to[i].words[0] = *(const word_anywhere*)there;
      if (bits == 8) to[i].words[1] = *(const word_anywhere*)(there + 4);
      if (bits == 4) to[i].scale = ((const unsigned char*)scales)[row * scale_step + k / MX_BLOCK];
      if (!is_there) to[i].words[0] = to[i].words[1] = 0;
    }
  }
}

// ---- operands as they are, in rows

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

// ---- column-major operands

enum : int {
  ELEMENT_BYTES = 4 / WORD_ROWS,
  UNIT_LINES = 16 / ELEMENT_BYTES,  // of memory, each an element of k, that a unit has elements of
};
typedef unsigned word_of_line __attribute__((aligned(1)));

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
static __device__ inline void transpose(unit_words (&to)[2], const unit_words* from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned first = from[i / 2][i % 2 * 2];
    const unsigned second = from[i / 2][i % 2 * 2 + 1];
    to[0][i] = __builtin_amdgcn_perm(second, first, 0x05040100u);
    to[1][i] = __builtin_amdgcn_perm(second, first, 0x07060302u);
  }
}
static __device__ inline void transpose(unit_words (&to)[4], const unit_words* from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Pairs of lines, rows 0 and 1, rows 2 and 3; then the pairs of pairs.
    const unsigned low_first = __builtin_amdgcn_perm(from[i][1], from[i][0], 0x05010400u);
    const unsigned high_first = __builtin_amdgcn_perm(from[i][1], from[i][0], 0x07030602u);
    const unsigned low_second = __builtin_amdgcn_perm(from[i][3], from[i][2], 0x05010400u);
    const unsigned high_second = __builtin_amdgcn_perm(from[i][3], from[i][2], 0x07030602u);
    to[0][i] = __builtin_amdgcn_perm(low_second, low_first, 0x05040100u);
    to[1][i] = __builtin_amdgcn_perm(low_second, low_first, 0x07060302u);
    to[2][i] = __builtin_amdgcn_perm(high_second, high_first, 0x05040100u);
    to[3][i] = __builtin_amdgcn_perm(high_second, high_first, 0x07060302u);
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

// ---- what a thread has loaded of the next tile

enum class Path {
  direct,     // from global memory to shared memory
  rows,       // through registers, as it is
  columns,    // transposed
  encoded,    // decoded
  shuffled,   // to the registers of the lanes that multiply it, as it is
  fragments,  // decoded there
};
static __device__ constexpr Path path_of_x() {
  if (config().direct) return Path::direct;
  return DECODE_X ? Path::encoded : config().x_columns ? Path::columns : Path::rows;
}
static __device__ constexpr Path path_of_w() {
  if (config().shuffled) return config().decoded ? Path::fragments : Path::shuffled;
  if (config().direct) return Path::direct;
  return config().decoded ? Path::encoded : config().w_columns ? Path::columns : Path::rows;
}

template <Path PATH, int COUNT>
struct StagedOperand {
  unit_words units[COUNT];
};
template <int COUNT>
struct StagedOperand<Path::direct, COUNT> {};
template <int COUNT>
struct StagedOperand<Path::encoded, COUNT> {
  Encoded units[COUNT];
};
template <int COUNT>
struct StagedOperand<Path::shuffled, COUNT> {
  typedef Operand Lane;
  Lane units[STEPS][TILES_W];
};
template <int COUNT>
struct StagedOperand<Path::fragments, COUNT> {
  unit_words units[FRAGMENTS][TILES_W];
  unsigned scales[FRAGMENTS][TILES_W];
};
template <bool SCALED>
struct StagedScales {};
template <>
struct StagedScales<true> {
  unsigned x[STEPS][TILES_X];
  unsigned w[STEPS][TILES_W];
};
struct Staged {
  StagedOperand<path_of_x(), X_UNITS> x;
  StagedOperand<path_of_w(), W_UNITS> w;
  StagedScales<config().scaled> scales;
};

// Tiles of 16 rows x 16 bytes: a wave reads 1 KiB in one piece (two of 512 bytes with 32 rows). `row_of(row)`: the weight's row of one of the block.
template <int COUNT, typename RowOf>
static __device__ inline void load_shuffled(StagedOperand<Path::shuffled, COUNT>& staged, const unsigned char* w,
                                            const RowOf& row_of, long long column, long long k_bytes) {
  typedef typename StagedOperand<Path::shuffled, COUNT>::Lane Lane;
  const int lane = threadIdx.x % 64;
  const int first = (int)threadIdx.x / 64 / WAVES_M * WAVE_COLUMNS + lane % MFMA_ROWS;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
      const long long row = row_of(first + i * MFMA_ROWS);
      const long long wanted = column + step * STEP_BYTES + lane / MFMA_ROWS * 16;
      const long long byte = wanted < k_bytes ? wanted : k_bytes - 16;
      staged.units[step][i] =
          __builtin_bit_cast(Lane, *(const unit_words*)(w + row / 16 * 16 * k_bytes + byte * 16 + row % 16 * 16));
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
        staged.units[step][i] =
            __builtin_bit_cast(Lane, is_there ? __builtin_bit_cast(unit_words, staged.units[step][i]) : zero);
    }
  }
}

// Tiles of 16 rows x 16 bytes, 32 elements: as of other types above.
template <int COUNT>
static __device__ inline void load_fragments(const MfmaArguments& a, StagedOperand<Path::fragments, COUNT>& staged,
                                             const Tile& tile, long long column) {
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
      staged.units[step][i] =
          is_there ? *(const unit_words*)(a.w + row / 16 * 16 * a.w_line_bytes + byte * 16 + row % 16 * 16) : zero;
      staged.scales[step][i] =
          ((const unsigned char*)a.scales.w)[row * a.scales.w_row_step + (is_there ? byte / 16 : 0)];
    }
  }
}

// Of the blocks of 32 elements that the lane multiplies. The bytes past the end of k are zero, whatever their scale; NaN it may be only where
// the row's result is.
static __device__ inline void load_scales(const MfmaArguments& a, StagedScales<true>& staged, const Tile& tile,
                                          long long column) {
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
      staged.x[step][j] =
          ((const unsigned char*)a.scales.x)[clamp_row(x_first + j * MFMA_ROWS, a.m) * a.scales.x_row_step + block];
#pragma unroll
    for (int i = 0; i < TILES_W; ++i)
      staged.w[step][i] =
          ((const unsigned char*)a.scales.w)[clamp_row(w_first + i * MFMA_ROWS, a.n) * a.scales.w_row_step + block];
  }
}
static __device__ __forceinline__ void load_scales(const MfmaArguments&, StagedScales<false>&, const Tile&, long long) {
}

// An operand that lies as rows or columns in global memory: `rows` of them, of which the tile begins at `first`.
struct OperandRows {
  const unsigned char* begin;
  long long line_bytes;
  const void* scales;
  long long scale_step;
  int first, rows;
};

// Asks for BLOCK rows of an operand: to registers, or to shared memory at `buffer`.
template <Element TYPE, int BLOCK, Path PATH, int COUNT>
static __device__ __forceinline__ void load_operand(StagedOperand<PATH, COUNT>& staged, unsigned char* buffer,
                                                    const OperandRows& from, long long column, long long k_bytes) {
  if constexpr (PATH == Path::direct)
    load_direct<BLOCK>(gemmtune_lds_offset(buffer), from.begin, from.line_bytes, from.first, from.rows, column,
                       k_bytes);
  else if constexpr (PATH == Path::encoded)
    load_encoded<TYPE, COUNT, BLOCK>(staged.units, from.begin, from.line_bytes, from.scales, from.scale_step,
                                     from.first, from.rows, column, k_bytes);
  else if constexpr (PATH == Path::columns)
    load_columns<COUNT, BLOCK>(staged.units, from.begin, from.line_bytes, from.first, from.rows, column, k_bytes);
  else if constexpr (PATH == Path::rows)
    load_rows<COUNT, BLOCK>(
        staged.units,
        [&](int, int row) { return from.begin + clamp_row(from.first + row, from.rows) * from.line_bytes; }, column,
        k_bytes);
}

// Asks for the weight's rows that go to registers.
template <Path PATH, int COUNT>
static __device__ __forceinline__ void load_lanes(const MfmaArguments& a, StagedOperand<PATH, COUNT>& staged,
                                                  const Tile& tile, long long column) {
  if constexpr (PATH == Path::fragments)
    load_fragments(a, staged, tile, column);
  else if constexpr (PATH == Path::shuffled)
    load_shuffled(
        staged, a.w, [&](int row) { return clamp_row(tile.n + row, a.n); }, column, a.k_bytes);
}

// Asks for a tile: to registers, or to `buffer`.
static __device__ inline void load_tile(const MfmaArguments& a, Staged& staged, unsigned char* buffer, const Tile& tile,
                                        int k_tile) {
  const long long column = (long long)k_tile * BLOCK_K;
  load_operand<types().element, BLOCK_M>(
      staged.x, buffer, {a.x, a.x_line_bytes, a.scales.x, a.scales.x_row_step, tile.m, a.m}, column, a.k_bytes);
  load_operand<types().weight, BLOCK_N>(staged.w, buffer + X_BYTES,
                                        {a.w, a.w_line_bytes, a.scales.w, a.scales.w_row_step, tile.n, a.n}, column,
                                        a.k_bytes);
  load_scales(a, staged.scales, tile, column);
  load_lanes(a, staged.w, tile, column);
}

template <Element TYPE, int BLOCK, Path PATH, int COUNT>
static __device__ __forceinline__ void store_operand(const StagedOperand<PATH, COUNT>& staged, unsigned char* buffer) {
  if constexpr (PATH == Path::encoded)
    store_decoded<TYPE, COUNT, BLOCK>(buffer, staged.units);
  else if constexpr (PATH == Path::columns)
    store_columns<COUNT, BLOCK>(buffer, staged.units);
  else if constexpr (PATH == Path::rows)
    store_rows<COUNT, BLOCK>(buffer, staged.units);
}

// Writes what was loaded to registers; after a barrier all waves see the tile.
static __device__ inline void store_tile(const Staged& staged, unsigned char* buffer) {
  if constexpr (config().direct) __builtin_amdgcn_s_waitcnt(0x0f70);  // vmcnt(0)
  store_operand<types().element, BLOCK_M>(staged.x, buffer);
  store_operand<types().weight, BLOCK_N>(staged.w, buffer + X_BYTES);
}

// ---- products

template <bool COLUMNS>
static __device__ inline Operand read_operand(const unsigned char* rows, int row, int step, int group) {
  int byte = step * STEP_BYTES + group * 8 * KPACK;
  if constexpr (path_of_w() == Path::fragments) byte = step / 4 * FRAGMENT_BYTES + group * 64 + step % 4 * 16;
  return *(const Operand*)(rows + unit_offset<COLUMNS>(row, byte / 16) + byte % 16);
}

// A lane's operand of row `row` of the weight's tile, the i-th of its wave.
template <Path PATH, int COUNT>
static __device__ __forceinline__ Operand weight_operand(const StagedOperand<PATH, COUNT>& staged,
                                                         const unsigned char* buffer, int row, int i, int step,
                                                         int group) {
  if constexpr (PATH == Path::fragments)
    return __builtin_bit_cast(
        Operand, decode_fp4(staged.units[step / 4][i][step % 4], quarter_scale(staged.scales[step / 4][i])));
  else if constexpr (PATH == Path::shuffled)
    return staged.units[step][i];
  else
    return read_operand<config().w_columns>(buffer + X_BYTES, row, step, group);
}

// Adds the products of a step.
template <bool SCALED>
static __device__ __forceinline__ void multiply_step(sums_vector (&sums)[TILES_W][TILES_X], const Operand (&w)[TILES_W],
                                                     const Operand (&x)[TILES_X], const StagedScales<SCALED>& scales,
                                                     int step) {
  constexpr int parts = SCALED || WIDE ? 1 : KPACK;
#pragma unroll
  for (int part = 0; part < parts; ++part) {
#pragma unroll
    for (int i = 0; i < TILES_W; ++i) {
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
        if constexpr (SCALED)
          sums[i][j] = multiply_scaled(w[i], x[j], sums[i][j], (int)scales.w[step][i], (int)scales.x[step][j]);
        else if constexpr (WIDE)
          sums[i][j] = multiply_wide(w[i], x[j], sums[i][j]);
        else
          sums[i][j] = multiply(w[i][part], x[j][part], sums[i][j]);
      }
    }
  }
}

static __device__ inline void multiply_tile(sums_vector (&sums)[TILES_W][TILES_X], const unsigned char* buffer,
                                            const Staged& staged, int wave_m, int wave_n) {
  const int row = threadIdx.x % 64 % MFMA_ROWS;
  const int group = threadIdx.x % 64 / MFMA_ROWS;
  if constexpr (PAIRED) {
#pragma unroll
    for (int step = 0; step < STEPS; step += 2) {
      Operand x[TILES_X][2];
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
#pragma unroll
        for (int part = 0; part < 2; ++part)
          x[j][part] =
              read_operand<config().x_columns>(buffer, wave_m * WAVE_ROWS + j * MFMA_ROWS + row, step + part, group);
      }
#pragma unroll
      for (int i = 0; i < TILES_W; ++i) {
        Operand w[2];
#pragma unroll
        for (int part = 0; part < 2; ++part)
          w[part] =
              weight_operand(staged.w, buffer, wave_n * WAVE_COLUMNS + i * MFMA_ROWS + row, i, step + part, group);
#pragma unroll
        for (int j = 0; j < TILES_X; ++j) sums[i][j] = multiply_pair(w, x[j], sums[i][j]);
      }
    }
  } else {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      Operand x[TILES_X];
      Operand w[TILES_W];
#pragma unroll
      for (int j = 0; j < TILES_X; ++j)
        x[j] = read_operand<config().x_columns>(buffer, wave_m * WAVE_ROWS + j * MFMA_ROWS + row, step, group);
#pragma unroll
      for (int i = 0; i < TILES_W; ++i)
        w[i] = weight_operand(staged.w, buffer, wave_n * WAVE_COLUMNS + i * MFMA_ROWS + row, i, step, group);
      multiply_step(sums, w, x, staged.scales, step);
    }
  }
}

// The products of one tile, which is one block of k, are scaled before they are added.
template <typename VECTOR>
static __device__ inline void add_scaled(const MfmaArguments& a, VECTOR (&sums)[TILES_W][TILES_X],
                                         const VECTOR (&products)[TILES_W][TILES_X], const Tile& tile, int k_tile,
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

// Of decoded operands: E2M1_UNIT.
template <typename VECTOR>
static __device__ __forceinline__ VECTOR in_units_of_y(const VECTOR& sums) {
  if constexpr (config().decoded)
    return sums * SUM_UNIT;
  else
    return sums;
}

// Four adjacent columns of a row.
template <typename Stored>
struct alignas(4 * sizeof(Stored)) Four {
  Stored value[4];
};
template <typename Stored>
static __device__ __forceinline__ void store_columns_of(const MfmaArguments& a, Stored* to, int column,
                                                        const Four<Stored>& four) {
  if (column + 3 < a.n && (unsigned long long)to % sizeof(four) == 0) {
    *(Four<Stored>*)to = four;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (column + i < a.n) to[i] = four.value[i];
}
static __device__ inline void store_four(const MfmaArguments& a, int row, int column, const sum (&values)[4],
                                         const Column (&columns)[4]) {
  if (row >= a.m || column >= a.n) return;
  if constexpr (config().split_k) {
    sum* const to = (sum*)a.partials + ((long long)blockIdx.y * a.m + row) * a.n + column;
    store_columns_of(a, to, column, Four<sum>{values[0], values[1], values[2], values[3]});
  } else {
    output* const to = a.y + row * a.ldy + column;
    Four<output> four;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.value[i] = epilogue_value(values[i], row_scale(a, row), columns[i]);
    store_columns_of(a, to, column, four);
  }
}

#ifdef __AMDGCN__
#define OCCUPANCY __attribute__((amdgpu_waves_per_eu(config().waves_per_eu)))  // 0: none
#else
#define OCCUPANCY
#endif
