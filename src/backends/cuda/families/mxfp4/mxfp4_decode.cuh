// An MXFP4 weight as bf16, exactly: its scales, and its elements from shared memory to the registers of the tensor core's first operand.
#pragma once

#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_arguments.h"
#include "backends/cuda/families/mxfp4/mxfp4_producer.cuh"

// Four lanes share their rows: lane l of them holds the scales of 128 of k, the l-th of a chunk of 512; words are exchanged by shuffles.
struct ScaleRows {
  const unsigned char*
      from[config().tiles]
          [2];  // of rows warp * 16 + lane / 4 and that plus 8 of each tile; past the last row: of the last one
};
typedef unsigned ScaleWords[config().tiles][2];

static __device__ __forceinline__ ScaleRows scale_rows(const Mxfp4Arguments& a, int row) {
  ScaleRows rows;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) {
    int at = row + i / 2 * 64 + i % 2 * 8;
    if (at >= a.n) at = a.n - 1;
    rows.from[i / 2][i % 2] = a.scales + (long long)at * a.scale_columns;
  }
  return rows;
}

// The lane's words of the chunk that begins at scale `column`.
static __device__ __forceinline__ void load_scales(ScaleWords& words, const ScaleRows& rows, const Mxfp4Arguments& a,
                                                   int column) {
  column += (int)threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) {
    words[i / 2][i % 2] = load_scale_word(rows.from[i / 2][i % 2] + column, column, a.scale_columns, a.scale_alignment);
  }
}

// Prefetches the block's scales into L2: 512 of k ahead they would come late from memory. This is no read, so that the previous kernel may still run.
// Neighbouring threads have neighbouring sectors of a row, which then leave memory together.
static __device__ __forceinline__ void prefetch_scales(const Mxfp4Arguments& a, const BlockWork& work) {
  const int first = work.begin * config().k_atoms * 2;
  const int end = work.end * config().k_atoms * 2 < a.scale_columns ? work.end * config().k_atoms * 2 : a.scale_columns;
  const unsigned sectors = (unsigned)(end - first + 31) / 32 + 1;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < BLOCK_M * sectors; i += CONSUMER_THREADS) {
    const int row = work.n + (int)(i / sectors);
    const int column = first + (int)(i % sectors) * 32;
    if (row < a.n) prefetch_sector(a.scales + (long long)row * a.scale_columns + (column < end ? column : end - 1));
  }
}

static __device__ __forceinline__ unsigned byte_of(unsigned word, int i) {
  return __byte_perm(word, 0u, 0x4440u + (unsigned)i);
}

// The lane's byte of each word of 16 bytes: pairs of k from 0, 8, 16 and 24 on.
static __device__ __forceinline__ unsigned own_bytes(const uint4& row, unsigned select) {
  return __byte_perm(__byte_perm(row.x, row.y, select), __byte_perm(row.z, row.w, select), 0x5410u);
}

// The factors of 32 of k for the thread's two rows of a tile; `more` where a scale of the warp is above 2.
struct Factors {
  unsigned by[2];
  unsigned more[2];
};
// Block `block` of four of 128 of k.
static __device__ __forceinline__ Factors factors_of(const unsigned (&words)[2], int block, bool large) {
  Factors factors;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unsigned e = byte_of(words[i], block);
    factors.more[i] = 0;
    if (large) {
      factors.more[i] = large_factor(e);
      e = without_large(e);
    }
    factors.by[i] = scale_factor(e);
  }
  return factors;
}
static __device__ __forceinline__ void scale(unsigned (&fragment)[4], const Factors& factors, bool large) {
  if (large) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = multiply(fragment[i], factors.more[i % 2]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) fragment[i] = multiply(fragment[i], factors.by[i % 2]);
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

// The fragment of tile `r` at step `step` of two of block `block` of four, times its scales.
static __device__ __forceinline__ void decode(unsigned (&to)[4], const PackedRaw& raw, int r, int block, int step,
                                              const Factors& factors, bool large) {
  const uint4& words = raw.of[r][block / 2];
  spread_fragment(to, block % 2 == 0 ? (step == 0 ? words.x : words.y) : (step == 0 ? words.z : words.w));
  scale(to, factors, large);
}
static __device__ __forceinline__ void decode(unsigned (&to)[4], const PlainRaw& raw, int r, int block, int step,
                                              const Factors& factors, bool large) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = spread_byte(raw.of[r][block][i % 2], step * 2 + i / 2);
  scale(to, factors, large);
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
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i)
    words[i / 2][i % 2] = __shfl_sync(0xffffffffu, chunk[i / 2][i % 2], ((int)threadIdx.x & 28) + unit, 32);
}

// True if a scale of the chunk may be above 2: of the warp, or of the warp group, whose warps then take one branch together.
static __device__ __forceinline__ bool has_large_scales(const ScaleWords& chunk) {
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < config().tiles * 2; ++i) all |= chunk[i / 2][i % 2];
  if constexpr (config().mma) {
    return __any_sync(0xffffffffu, (all & 0x80808080u) != 0u);
  } else {
    return any_of_warpgroup((all & 0x80808080u) != 0u, warpgroup_barrier + (int)threadIdx.x / 128);
  }
}
