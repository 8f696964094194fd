// The tile of mfma.cu in units and instructions: what its defines amount to, types of operands, and the MFMA instruction of each
// type.
#pragma once

#include "backends/gpu/device/numbers.cuh"

#if ELEMENT == 4
typedef int sum;
#else
typedef float sum;
#endif

#ifndef REDUCE

#define WAVES (WAVES_M * WAVES_N)
#define NUM_THREADS (64 * WAVES)
#define WAVE_ROWS (BLOCK_M / WAVES_M)
#define WAVE_COLUMNS (BLOCK_N / WAVES_N)
#define TILES_X (WAVE_ROWS / MFMA_ROWS)
#define TILES_W (WAVE_COLUMNS / MFMA_ROWS)
#define LANE_GROUPS (64 / MFMA_ROWS)  // lanes of a group hold the same bytes of k of all rows
#define SUMS (MFMA_ROWS * MFMA_ROWS / 64)
#define UNITS (BLOCK_K / 16)  // of 16 bytes in a row of a tile
#define PITCH (BLOCK_K + PAD)
#define STEP_BYTES (8 * KPACK * LANE_GROUPS)
#define STEPS (BLOCK_K / STEP_BYTES)
#define MFMA_ELEMENT (DECODE ? 2 : ELEMENT)
#define DECODE_X (DECODE && ELEMENT != 2)
// Instructions of 16 bytes a lane, which gfx950 has beside those of 8.
#if defined(__gfx950__) && KPACK == 2 && (MFMA_ELEMENT == 1 || MFMA_ELEMENT == 2 || MFMA_ELEMENT == 4)
#define WIDE 1
#else
#define WIDE 0
#endif
// fp8 has instructions of 32 bytes a lane: two steps at once.
#if defined(__gfx950__) && KPACK == 2 && MFMA_ELEMENT == 3 && STEPS % 2 == 0
#define PAIRED 1
#else
#define PAIRED 0
#endif
// A lane's 16 bytes of a shuffled fp4 weight are a block of 32 elements: 64 bytes of bf16.
#define FRAGMENT_BYTES (64 * LANE_GROUPS)
#define FRAGMENTS (BLOCK_K / FRAGMENT_BYTES)
#ifdef __gfx950__
#define BANKS_BYTES 256  // of all banks of shared memory
#else
#define BANKS_BYTES 128
#endif
#define X_BYTES (BLOCK_M * PITCH)
#define BUFFER_BYTES (X_BYTES + (SHUFFLED ? 0 : BLOCK_N * PITCH))
// Units that a thread copies. Of a column-major operand they are WORD_ROWS rows of the same k: as many as 4 bytes of memory have.
#define WORD_ROWS (ELEMENT == 1 || ELEMENT == 2 ? 2 : 4)
#define UNITS_OF(block, columns) \
  ((block / (columns ? WORD_ROWS : 1) * UNITS + NUM_THREADS - 1) / NUM_THREADS * (columns ? WORD_ROWS : 1))
#define X_UNITS UNITS_OF(BLOCK_M, X_COLUMNS)
#define W_UNITS UNITS_OF(BLOCK_N, W_COLUMNS)

typedef unsigned unit_words __attribute__((vector_size(16)));
typedef unit_words unit_anywhere __attribute__((aligned(1)));
typedef sum sums_vector __attribute__((vector_size(4 * SUMS)));
typedef short four_shorts __attribute__((vector_size(8)));
typedef _Float16 four_halves __attribute__((vector_size(8)));

// Eight bytes of k of each instruction's row.
typedef long Operand __attribute__((vector_size(8 * KPACK)));

#if SCALED || PAIRED
typedef int eight_words __attribute__((vector_size(32)));
#endif

#if SCALED

// A lane has the 32 elements of one block, and its scale.
static __device__ inline sums_vector multiply_scaled(Operand w, Operand x, sums_vector sums, unsigned w_scale,
                                                     unsigned x_scale) {
  const unit_words a = __builtin_bit_cast(unit_words, w);
  const unit_words b = __builtin_bit_cast(unit_words, x);
  const eight_words wide_a = {(int)a[0], (int)a[1], (int)a[2], (int)a[3], 0, 0, 0, 0};
  const eight_words wide_b = {(int)b[0], (int)b[1], (int)b[2], (int)b[3], 0, 0, 0, 0};
  // 4: e2m1, of A and of B; 0: the scale is the lowest byte.
#if MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(wide_a, wide_b, sums, 4, 4, 0, (int)w_scale, 0, (int)x_scale);
#else
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(wide_a, wide_b, sums, 4, 4, 0, (int)w_scale, 0, (int)x_scale);
#endif
}

#elif PAIRED

// Which of the 128 elements of k a lane has does not matter, as long as it has the same of both operands.
static __device__ inline sums_vector multiply_pair(const Operand (&w)[2], const Operand (&x)[2], sums_vector sums) {
  struct Both {
    Operand first, second;
  };
  const eight_words a = __builtin_bit_cast(eight_words, Both{w[0], w[1]});
  const eight_words b = __builtin_bit_cast(eight_words, Both{x[0], x[1]});
  // 0: e4m3, of A and of B; scales of 0 select the instruction without scales.
#if MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, sums, 0, 0, 0, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, sums, 0, 0, 0, 0, 0, 0);
#endif
}

#elif WIDE

#ifndef GEMMTUNE_EMULATION  // tests/support/emulation/device.h has it for the host
typedef __bf16 gemmtune_eight_bfloats __attribute__((ext_vector_type(8)));
#endif
typedef _Float16 eight_halves __attribute__((vector_size(16)));
typedef int four_words __attribute__((vector_size(16)));

static __device__ inline sums_vector multiply_wide(Operand w, Operand x, sums_vector sums) {
#if MFMA_ELEMENT == 1 && MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(eight_halves, w),
                                                __builtin_bit_cast(eight_halves, x), sums, 0, 0, 0);
#elif MFMA_ELEMENT == 1
  return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(eight_halves, w),
                                                __builtin_bit_cast(eight_halves, x), sums, 0, 0, 0);
#elif MFMA_ELEMENT == 2 && MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(gemmtune_eight_bfloats, w),
                                                 __builtin_bit_cast(gemmtune_eight_bfloats, x), sums, 0, 0, 0);
#elif MFMA_ELEMENT == 2
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(gemmtune_eight_bfloats, w),
                                                 __builtin_bit_cast(gemmtune_eight_bfloats, x), sums, 0, 0, 0);
#elif MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_i32_16x16x64_i8(__builtin_bit_cast(four_words, w), __builtin_bit_cast(four_words, x),
                                               sums, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_i32_32x32x32_i8(__builtin_bit_cast(four_words, w), __builtin_bit_cast(four_words, x),
                                               sums, 0, 0, 0);
#endif
}

#else

static __device__ inline sums_vector multiply(long w, long x, sums_vector sums) {
#if MFMA_ELEMENT == 1 && MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(four_halves, w), __builtin_bit_cast(four_halves, x),
                                               sums, 0, 0, 0);
#elif MFMA_ELEMENT == 1
  return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(four_halves, w), __builtin_bit_cast(four_halves, x),
                                              sums, 0, 0, 0);
#elif MFMA_ELEMENT == 2 && MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(four_shorts, w),
                                                   __builtin_bit_cast(four_shorts, x), sums, 0, 0, 0);
#elif MFMA_ELEMENT == 2
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(four_shorts, w),
                                                  __builtin_bit_cast(four_shorts, x), sums, 0, 0, 0);
#elif MFMA_ELEMENT == 4 && defined(__gfx90a__)
  // Instructions of four bytes a lane.
#if MFMA_ROWS == 16
  sums = __builtin_amdgcn_mfma_i32_16x16x16i8((int)w, (int)x, sums, 0, 0, 0);
  return __builtin_amdgcn_mfma_i32_16x16x16i8((int)(w >> 32), (int)(x >> 32), sums, 0, 0, 0);
#else
  sums = __builtin_amdgcn_mfma_i32_32x32x8i8((int)w, (int)x, sums, 0, 0, 0);
  return __builtin_amdgcn_mfma_i32_32x32x8i8((int)(w >> 32), (int)(x >> 32), sums, 0, 0, 0);
#endif
#elif MFMA_ELEMENT == 4 && MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_i32_16x16x32_i8(w, x, sums, 0, 0, 0);
#elif MFMA_ELEMENT == 4
  return __builtin_amdgcn_mfma_i32_32x32x16_i8(w, x, sums, 0, 0, 0);
#elif MFMA_ROWS == 16
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(w, x, sums, 0, 0, 0);
#else
  return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(w, x, sums, 0, 0, 0);
#endif
}

#endif

#endif
