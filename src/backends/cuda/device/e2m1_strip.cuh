// Strips of 16 rows of a plain MXFP4 weight in shared memory, times bf16 x in registers by mma.sync; A and B are
// swapped: A is the weight.
#pragma once

#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"

// Copies `rows` rows to shared memory. APART: rows have gaps there and are copied one by one, the first by lane
// `first_lane`. SPLIT_ROWS: the second half of them begins `second` rows behind the first. All lanes.
template <bool APART, bool SPLIT_ROWS>
static __device__ __forceinline__ void copy_strip_rows(unsigned to, int pitch, const unsigned char* from, int row_bytes,
                                                       int second, int rows, int first_lane, unsigned full,
                                                       unsigned long long policy) {
  if (APART) {
#pragma unroll 1
    for (int row = ((int)threadIdx.x - first_lane) & 31; row < rows; row += 32)
      bulk_load(to + (unsigned)(row * pitch),
                from + (long long)(SPLIT_ROWS ? row / (rows / 2) * second + row % (rows / 2) : row) * row_bytes,
                (unsigned)row_bytes, full, 0, policy);
  } else if (elect_one()) {
    bulk_load(to, from, (unsigned)((SPLIT_ROWS ? rows / 2 : rows) * row_bytes), full, 0, policy);
    if (SPLIT_ROWS)
      bulk_load(to + (unsigned)(rows / 2 * pitch), from + (long long)second * row_bytes,
                (unsigned)(rows / 2 * row_bytes), full, 0, policy);
  }
}

// The thread's eight bytes of 64 of k of two rows, the second one `second` bytes behind.
typedef uint2 OwnWords[2];
template <bool EIGHT_ROWS>
static __device__ __forceinline__ void load_words(OwnWords& words, unsigned from, unsigned second) {
#pragma unroll
  for (int i = 0; i < (EIGHT_ROWS ? 1 : 2); ++i) words[i] = load_shared_two_words(from + (unsigned)i * second);
}

// Multiplies 64 of k; the sums are in units of E2M1_UNIT. `scales`: of both rows. LARGE: a scale of the warp is above
// 2. EIGHT_ROWS: the second row is taken as zeros. USED: groups of eight rows of x that have rows. The sums of SUM_SETS
// sets do not wait for each other.
template <bool LARGE, bool EIGHT_ROWS, int USED, int SUM_SETS, int ROW_GROUPS>
static __device__ __forceinline__ void multiply_unit(float (&d)[SUM_SETS][ROW_GROUPS][4],
                                                     const unsigned (&x)[ROW_GROUPS][8], const unsigned (&scales)[2],
                                                     const OwnWords& raw) {
  unsigned by[2];
  unsigned more[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (EIGHT_ROWS && i == 1) continue;
    const unsigned e = scales[i];
    more[i] = LARGE ? large_factor(e) : 0u;
    by[i] = scale_factor(LARGE ? without_large(e) : e);
  }
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    unsigned pairs[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (EIGHT_ROWS && i == 1) {
#pragma unroll
        for (int j = 0; j < 4; ++j) pairs[i][j] = 0u;
        continue;
      }
      spread_word(pairs[i], word == 0 ? raw[i].x : raw[i].y);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (LARGE) pairs[i][j] = multiply(pairs[i][j], more[i]);
        pairs[i][j] = multiply(pairs[i][j], by[i]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
#pragma unroll
      for (int group = 0; group < USED; ++group)
        mma_bf16(d[j / 2 % SUM_SETS][group], pairs[0][j], pairs[1][j], pairs[0][j + 1], pairs[1][j + 1],
                 x[group][word * 4 + j], x[group][word * 4 + j + 1]);
    }
  }
}
