// Epilogue of wgmma_moe: scales of rows and tokens, the activation, quantization of the hidden layer, and the store through shared memory.
#pragma once

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_fp4.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_mainloop.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_producer.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"

// Multiplies d by the scales of its rows and of its tokens.
static __device__ __forceinline__ void scale_rows(Accumulators& d, const WgmmaMoeArguments& a, const Routes& routes,
                                                  const Work& work) {
  constexpr bool integers = types().element == Element::int8;
  float rows[MMA_TILES][2];
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i)
    rows[i / 2][i % 2] = a.w_scales[work.tile.expert * a.w_scale_matrix +
                                    weight_row(a, work, i / 2, i % 2) / a.w_scale_rows * (long long)a.w_scale_columns];
#pragma unroll
  for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = j * 8 + (int)threadIdx.x % 4 * 2 + i;
      const int position = work.tile.first + at;
      const bool there = at < work.tile.count;
      const float token =
          there ? a.x_scales[(long long)(GATHER ? routes.pair_of[position] / a.topk : position) * a.x_scale_step]
                : 0.0f;
#pragma unroll
      for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& sum = d[r][j * 4 + half * 2 + i];
          sum = (integers ? (float)__float_as_int(sum) : sum) * rows[r][half] * token;
          asm volatile("" : "+f"(sum)::"memory");
        }
      }
    }
  }
}

// Multiplies d by the unit of its sums.
static __device__ __forceinline__ void scale_sums(Accumulators& d, float unit) {
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_TOKENS / 2; ++i) d[r][i] *= unit;
  }
}

// Of the tile's tokens, one in 32 of them a lane: loaded before the mainloop, which they would wait for otherwise.
struct TokenScales {
  float of[(BLOCK_TOKENS + 31) / 32];
};

static __device__ __forceinline__ TokenScales load_token_scales(const WgmmaMoeArguments& a, const Routes& routes,
                                                                const Work& work) {
  TokenScales scales;
#pragma unroll
  for (int i = 0; i < (BLOCK_TOKENS + 31) / 32; ++i) {
    const int at = i * 32 + (int)threadIdx.x % 32;
    scales.of[i] = 0.0f;
    if (at < work.tile.count) {
      const float* const from =
          a.x_scales + (long long)(routes.pair_of[work.tile.first + at] / a.topk) * a.x_scale_step;
      asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scales.of[i]) : "l"(from));
    }
  }
  return scales;
}

// Multiplies d by the scales of its tokens.
static __device__ __forceinline__ void scale_tokens(Accumulators& d, const TokenScales& scales) {
#pragma unroll
  for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float scale = __shfl_sync(0xffffffffu, scales.of[j / 4], j % 4 * 8 + (int)threadIdx.x % 4 * 2 + i);
#pragma unroll
      for (int r = 0; r < MMA_TILES * 2; ++r) d[r / 2][j * 4 + r % 2 * 2 + i] *= scale;
    }
  }
}

enum : int { HALVES = INTERLEAVED ? 1 : 2 };  // of an instruction's rows that are columns of `to`

// Of STAGED_TOKENS tokens of an instruction's rows: pairs of tokens of the thread's one or two columns.
struct Rounded {
  unsigned of[STAGED_TOKENS / 8][HALVES];
};

// `d`: the thread's accumulators of these tokens.
static __device__ __forceinline__ Rounded round_tokens(const float* d, const WgmmaMoeArguments& a, const Routes& routes,
                                                       const Work& work, int first_token) {
  Rounded rounded;
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; ++j) {
    const float* v = d + j * 4;
    float factors[2] = {1.0f, 1.0f};
    if constexpr (config().weighted) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = first_token + j * 8 + (int)threadIdx.x % 4 * 2 + i;
        if (at < work.tile.count) factors[i] = a.weights[routes.pair_of[work.tile.first + at]];
      }
    }
    if constexpr (INTERLEAVED) {
      rounded.of[j][0] =
          round_pair(activate(v[0] * factors[0], v[2] * factors[0]), activate(v[1] * factors[1], v[3] * factors[1]));
    } else {
#pragma unroll
      for (int i = 0; i < HALVES; ++i)
        rounded.of[j][i] =
            STAGE == 1 ? round_pair(activate(v[i * 2] * factors[0], 1.0f), activate(v[i * 2 + 1] * factors[1], 1.0f))
                       : round_pair(v[i * 2], v[i * 2 + 1]);
    }
  }
  return rounded;
}

// ---- a quantized hidden layer

static __device__ __forceinline__ void sync_warpgroup() { sync_named<128>(warpgroup_barrier + (int)threadIdx.x / 128); }

enum : int {
  // Of a warp group, whose columns are neighbours: rows of 128 bytes, of which 16 bytes at c of row r are at c ^ (r % 8).
  QUANTIZED_INSTRUCTIONS = INTERLEAVED ? 2 : 1,
  TOKENS_AT_ONCE = 32,  // four threads have a token's 64 columns of the warp group
  QUANTIZED_PARTS = (BLOCK_TOKENS + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE,
};

// Rounds and transposes STAGED_TOKENS tokens of the warp group's instructions from r on.
static __device__ __forceinline__ void stage_chunk(const Accumulators& d, int r, const WgmmaMoeArguments& a,
                                                   const Routes& routes, const Work& work, int first_token,
                                                   unsigned to) {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)(threadIdx.x % 128) / 32;
  // All arithmetic before the first store, so that the compiler interleaves it.
  Rounded rounded[QUANTIZED_INSTRUCTIONS];
#pragma unroll
  for (int i = 0; i < QUANTIZED_INSTRUCTIONS; ++i)
    rounded[i] = round_tokens(&d[r + i][first_token / 2], a, routes, work, first_token);
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; j += 2) {
    // Four matrices of 8 x 8: the columns of two instructions, or of both halves of one, of 8 tokens and of the next 8. Lanes have a row of one each.
    constexpr int second = QUANTIZED_INSTRUCTIONS - 1;
    const unsigned row = (unsigned)((j + (INTERLEAVED ? lane / 8 % 2 : lane / 16)) * 8 + lane % 8);
    const unsigned unit = (unsigned)(INTERLEAVED ? lane / 16 * 4 + warp : warp * 2 + lane / 8 % 2);
    const unsigned values[4] = {
        rounded[0].of[j][0], INTERLEAVED ? rounded[0].of[j + 1][0] : rounded[0].of[j][HALVES - 1],
        INTERLEAVED ? rounded[second].of[j][0] : rounded[0].of[j + 1][0], rounded[second].of[j + 1][HALVES - 1]};
    store_transposed(to + row * 128u + (unit ^ (unsigned)(lane % 8)) * 16u, values[0], values[1], values[2], values[3]);
  }
}

// Of four of eight bf16 values.
static __device__ __forceinline__ unsigned fp8_four(unsigned low, unsigned high, float factor) {
  return fp8_pair(__uint_as_float(low << 16) * factor, __uint_as_float(low & 0xffff0000u) * factor) |
         fp8_pair(__uint_as_float(high << 16) * factor, __uint_as_float(high & 0xffff0000u) * factor) << 16;
}
static __device__ __forceinline__ unsigned max_pair(unsigned first, unsigned second) {
  unsigned most;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(first & 0x7fff7fffu), "r"(second & 0x7fff7fffu));
  return most;
}

// Quantizes the staged tokens as moe_quantize does: the tile's 128 columns are divided by their largest magnitude over 448. `largest`: of this tile, the magnitudes of both
// warp groups' columns.
static __device__ __forceinline__ void store_quantized(const WgmmaMoeArguments& a, const Work& work, unsigned from,
                                                       float (&largest)[2][BLOCK_TOKENS]) {
  const int group = (int)threadIdx.x / 128;
  const int own = (int)threadIdx.x % 128 / 4;
  const int quarter = (int)threadIdx.x % 4;
  uint4 values[QUANTIZED_PARTS][2];
  float most[QUANTIZED_PARTS];
#pragma unroll
  for (int part = 0; part < QUANTIZED_PARTS; ++part) {
    const int token = part * TOKENS_AT_ONCE + own;
    unsigned pair = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint4& value = values[part][i];
      value = make_uint4(0u, 0u, 0u, 0u);
      if (token < work.tile.count)
        value = load_shared_words(from + (unsigned)(token * 128 + ((quarter * 2 + i) ^ (token % 8)) * 16));
      pair = max_pair(max_pair(pair, max_pair(value.x, value.y)), max_pair(value.z, value.w));
    }
    float one = fmaxf(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    one = fmaxf(one, __shfl_xor_sync(0xffffffffu, one, 1));
    most[part] = fmaxf(one, __shfl_xor_sync(0xffffffffu, one, 2));
    if (quarter == 0 && token < work.tile.count) largest[group][token] = most[part];
  }
  sync_named<256>(both_barrier);
#pragma unroll
  for (int part = 0; part < QUANTIZED_PARTS; ++part) {
    const int token = part * TOKENS_AT_ONCE + own;
    if (token >= work.tile.count) continue;
    const float scale = fmaxf(fmaxf(most[part], largest[1 - group][token]), 1e-30f) / 448.0f;
    const float factor = 1.0f / scale;
    const uint4 first = values[part][0], second = values[part][1];
    const long long position = work.tile.first + token;
    *(uint4*)((unsigned char*)a.to + position * a.columns + work.column + group * 64 + quarter * 16) =
        make_uint4(fp8_four(first.x, first.y, factor), fp8_four(first.z, first.w, factor),
                   fp8_four(second.x, second.y, factor), fp8_four(second.z, second.w, factor));
    if (group == 0 && quarter == 0) a.to_scales[(long long)(work.column / 128) * a.pairs + position] = scale;
  }
}

// Stores the tile, staged at `to`. `parity`: of the tile's number.
static __device__ __forceinline__ void store_tile(const Accumulators& d, const WgmmaMoeArguments& a,
                                                  const Routes& routes, const Work& work, unsigned to, int& parity) {
  __shared__ float largest[2][2][BLOCK_TOKENS];  // of two tiles: a warp group may be one ahead
#pragma unroll
  for (int first = 0; first < BLOCK_TOKENS; first += STAGED_TOKENS)
    if (first < work.tile.count) stage_chunk(d, 0, a, routes, work, first, to + (unsigned)(first * 128));
  sync_warpgroup();
  if (work.tile.count > 0) store_quantized(a, work, to, largest[parity]);
  parity ^= 1;
}

// ---- other results

// Rounds and transposes STAGED_TOKENS tokens of an instruction's 16 rows to the warp's staging buffer, a row of 8 or 16 columns for each token; `d`: the thread's accumulators of them.
static __device__ __forceinline__ void stage_output(const float* d, const WgmmaMoeArguments& a, const Routes& routes,
                                                    const Work& work, int first_token, unsigned to) {
  const int lane = (int)threadIdx.x % 32;
  // All arithmetic before the first store, so that the compiler interleaves it.
  const Rounded rounded = round_tokens(d, a, routes, work, first_token);
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; j += 2) {
    const unsigned row = (unsigned)((j + (INTERLEAVED ? lane / 8 % 2 : lane / 16)) * 8 + lane % 8);
    if constexpr (INTERLEAVED)
      store_two_transposed(to + row * STAGING_PITCH, rounded.of[j][0], rounded.of[j + 1][0]);
    else
      store_transposed(to + row * STAGING_PITCH + (unsigned)((lane / 8 % 2) ^ (lane / 4 % 2)) * 16u, rounded.of[j][0],
                       rounded.of[j][HALVES - 1], rounded.of[j + 1][0], rounded.of[j + 1][HALVES - 1]);
  }
}

// Stores the warp's staging buffer, 16 bytes a lane. Warps do not wait for each other: the tensor core would have nothing to do meanwhile.
static __device__ __forceinline__ void store_staged(const WgmmaMoeArguments& a, const Work& work, int first_token,
                                                    int column, unsigned from) {
  constexpr int units = STAGING_PITCH / 16;
#pragma unroll
  for (int i = 0; i < (STAGED_TOKENS * units + 31) / 32; ++i) {
    const int item = i * 32 + (int)threadIdx.x % 32;
    const int row = item / units;
    const int unit = item % units;
    const int own = column + unit * 8;
    if (row >= STAGED_TOKENS || first_token + row >= work.tile.count || own >= a.columns) continue;
    uint4 value;
    value = load_shared_words(from + (unsigned)(row * STAGING_PITCH + (INTERLEAVED ? 0 : (unit ^ (row / 4 % 2)) * 16)));
    if constexpr (config().fp4 && STAGE == 2)
      value = make_uint4(__byte_perm(value.x, value.y, 0x5410), __byte_perm(value.z, value.w, 0x5410),
                         __byte_perm(value.x, value.y, 0x7632), __byte_perm(value.z, value.w, 0x7632));
    const int position = work.tile.first + first_token + row;
    *(uint4*)((output*)a.to + (long long)position * a.columns + own) = value;
  }
}
