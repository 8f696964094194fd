// The tile of mfma.cu in units and instructions: what its config amounts to, types of operands, and the MFMA instruction of each type.
#pragma once

#include "backends/hip/device/architecture.cuh"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "backends/hip/families/mfma/mfma_epilogue.cuh"

static __device__ constexpr gemmtune::hip::MfmaConfig config() { return CONFIG; }

// What is multiplied.
static __device__ constexpr Element mfma_element() { return config().decoded ? Element::bf16 : types().element; }
static __device__ constexpr bool is_two_bytes(Element type) { return type == Element::f16 || type == Element::bf16; }

enum : int {
  BLOCK_M = config().block_m,
  BLOCK_N = config().block_n,
  BLOCK_K = config().block_k,
  WAVES_M = config().waves_m,
  WAVES_N = config().waves_n,
  MFMA_ROWS = config().rows,
  KPACK = config().kpack,
  NUM_BUFFERS = config().buffers,

  WAVES = WAVES_M * WAVES_N,
  NUM_THREADS = 64 * WAVES,
  WAVE_ROWS = BLOCK_M / WAVES_M,
  WAVE_COLUMNS = BLOCK_N / WAVES_N,
  TILES_X = WAVE_ROWS / MFMA_ROWS,
  TILES_W = WAVE_COLUMNS / MFMA_ROWS,
  LANE_GROUPS = 64 / MFMA_ROWS,  // lanes of a group hold the same bytes of k of all rows
  SUMS = MFMA_ROWS * MFMA_ROWS / 64,
  UNITS = BLOCK_K / 16,  // of 16 bytes in a row of a tile
  PITCH = BLOCK_K + config().pad,
  STEP_BYTES = 8 * KPACK * LANE_GROUPS,
  STEPS = BLOCK_K / STEP_BYTES,
  DECODE_X = config().decoded && types().element != Element::bf16,
  // Of gfx950: instructions of 16 bytes a lane beside those of 8; for fp8 of 32 bytes, two steps at once.
  LONG_OPERANDS = architecture() == Architecture::gfx950 && KPACK == 2,
  WIDE = LONG_OPERANDS && (is_two_bytes(mfma_element()) || mfma_element() == Element::int8),
  PAIRED = LONG_OPERANDS && mfma_element() == Element::e4m3 && STEPS % 2 == 0,
  // A lane's 16 bytes of a shuffled fp4 weight are a block of 32 elements: 64 bytes of bf16.
  FRAGMENT_BYTES = 64 * LANE_GROUPS,
  FRAGMENTS = BLOCK_K / FRAGMENT_BYTES,
  BANKS_BYTES = architecture() == Architecture::gfx950 ? 256 : 128,  // of all banks of shared memory
  X_BYTES = BLOCK_M * PITCH,
  BUFFER_BYTES = X_BYTES + (config().shuffled ? 0 : BLOCK_N * PITCH),
  // Rows of a column-major operand that 4 bytes of memory have.
  WORD_ROWS = is_two_bytes(types().element) ? 2 : 4,
};
// Units that a thread copies. Of a column-major operand they are WORD_ROWS rows of the same k.
static __device__ constexpr int units_of(int block, bool columns) {
  const int together = columns ? WORD_ROWS : 1;
  return (block / together * UNITS + NUM_THREADS - 1) / NUM_THREADS * together;
}
enum : int { X_UNITS = units_of(BLOCK_M, config().x_columns), W_UNITS = units_of(BLOCK_N, config().w_columns) };

typedef unsigned unit_words __attribute__((vector_size(16)));
typedef unit_words unit_anywhere __attribute__((aligned(1)));
typedef sum sums_vector __attribute__((vector_size(4 * SUMS)));

// Eight bytes of k of each instruction's row.
typedef long Operand __attribute__((vector_size(8 * KPACK)));

typedef short four_shorts __attribute__((vector_size(8)));
typedef _Float16 four_halves __attribute__((vector_size(8)));
typedef _Float16 eight_halves __attribute__((vector_size(16)));
#if defined(__gfx950__) && !defined(GEMMTUNE_EMULATION)
typedef __bf16 eight_bfloats __attribute__((ext_vector_type(8)));
#else
typedef short eight_bfloats __attribute__((vector_size(16)));
#endif
typedef int four_words __attribute__((vector_size(16)));
typedef int eight_words __attribute__((vector_size(32)));

// The instructions. What has them is a template, because a compiler need not know those of other architectures. LANE: what a lane has of an operand.

// `sums` becomes what the instruction of MFMA_ROWS rows computes.
#define MFMA(of_16_rows, of_32_rows, ...)                   \
  if constexpr (MFMA_ROWS == 16)                            \
    sums = __builtin_amdgcn_mfma_##of_16_rows(__VA_ARGS__); \
  else                                                      \
    sums = __builtin_amdgcn_mfma_##of_32_rows(__VA_ARGS__)

// Of e2m1: a lane has the 32 elements of one block, and its scale.
template <typename LANE, typename VECTOR>
static __device__ inline VECTOR multiply_scaled(LANE w, LANE x, VECTOR sums, int w_scale, int x_scale) {
  const unit_words a = __builtin_bit_cast(unit_words, w);
  const unit_words b = __builtin_bit_cast(unit_words, x);
  const eight_words wide_a = {(int)a[0], (int)a[1], (int)a[2], (int)a[3], 0, 0, 0, 0};
  const eight_words wide_b = {(int)b[0], (int)b[1], (int)b[2], (int)b[3], 0, 0, 0, 0};
  // 4: e2m1, of A and of B; 0: the scale is the lowest byte.
  MFMA(scale_f32_16x16x128_f8f6f4, scale_f32_32x32x64_f8f6f4, wide_a, wide_b, sums, 4, 4, 0, w_scale, 0, x_scale);
  return sums;
}

// Of e4m3. Which of the 128 elements of k a lane has does not matter, as long as it has the same of both operands.
template <typename LANE, typename VECTOR>
static __device__ inline VECTOR multiply_pair(const LANE (&w)[2], const LANE (&x)[2], VECTOR sums) {
  struct Both {
    LANE first, second;
  };
  const eight_words a = __builtin_bit_cast(eight_words, Both{w[0], w[1]});
  const eight_words b = __builtin_bit_cast(eight_words, Both{x[0], x[1]});
  // 0: e4m3, of A and of B; scales of 0 select the instruction without scales.
  MFMA(scale_f32_16x16x128_f8f6f4, scale_f32_32x32x64_f8f6f4, a, b, sums, 0, 0, 0, 0, 0, 0);
  return sums;
}

template <typename LANE, typename VECTOR>
static __device__ inline VECTOR multiply_wide(LANE w, LANE x, VECTOR sums) {
  if constexpr (mfma_element() == Element::f16) {
    const eight_halves a = __builtin_bit_cast(eight_halves, w);
    const eight_halves b = __builtin_bit_cast(eight_halves, x);
    MFMA(f32_16x16x32_f16, f32_32x32x16_f16, a, b, sums, 0, 0, 0);
  } else if constexpr (mfma_element() == Element::bf16) {
    const eight_bfloats a = __builtin_bit_cast(eight_bfloats, w);
    const eight_bfloats b = __builtin_bit_cast(eight_bfloats, x);
    MFMA(f32_16x16x32_bf16, f32_32x32x16_bf16, a, b, sums, 0, 0, 0);
  } else {
    const four_words a = __builtin_bit_cast(four_words, w);
    const four_words b = __builtin_bit_cast(four_words, x);
    MFMA(i32_16x16x64_i8, i32_32x32x32_i8, a, b, sums, 0, 0, 0);
  }
  return sums;
}

// Eight bytes a lane.
template <typename VECTOR>
static __device__ inline VECTOR multiply(long w, long x, VECTOR sums) {
  if constexpr (mfma_element() == Element::f16) {
    const four_halves a = __builtin_bit_cast(four_halves, w);
    const four_halves b = __builtin_bit_cast(four_halves, x);
    MFMA(f32_16x16x16f16, f32_32x32x8f16, a, b, sums, 0, 0, 0);
  } else if constexpr (mfma_element() == Element::bf16) {
    const four_shorts a = __builtin_bit_cast(four_shorts, w);
    const four_shorts b = __builtin_bit_cast(four_shorts, x);
    MFMA(f32_16x16x16bf16_1k, f32_32x32x8bf16_1k, a, b, sums, 0, 0, 0);
  } else if constexpr (mfma_element() == Element::int8 && architecture() == Architecture::gfx90a) {
    // Instructions of four bytes a lane.
    MFMA(i32_16x16x16i8, i32_32x32x8i8, (int)w, (int)x, sums, 0, 0, 0);
    MFMA(i32_16x16x16i8, i32_32x32x8i8, (int)(w >> 32), (int)(x >> 32), sums, 0, 0, 0);
  } else if constexpr (mfma_element() == Element::int8) {
    MFMA(i32_16x16x32_i8, i32_32x32x16_i8, w, x, sums, 0, 0, 0);
  } else {
    MFMA(f32_16x16x32_fp8_fp8, f32_32x32x16_fp8_fp8, w, x, sums, 0, 0, 0);
  }
  return sums;
}

#undef MFMA
