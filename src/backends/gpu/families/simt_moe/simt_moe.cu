// Both stages of a mixture of experts by fused multiply-adds: any type, any scales, any size, any device. A block of 256 threads computes a tile of
// BLOCK_M positions of one expert x 64 columns, each thread BLOCK_M / 16 x 4 of it, in k tiles of 16. The order of the sums is fixed.
//
// The host defines: STAGE (1: act(x * w1 + bias), 2: hidden * w2), BLOCK_M (16, 64), GATED and ACTIVATION (moe_activation.cuh), X_TYPE and W_TYPE,
// X_SCALES and W_SCALES (moe_elements.cuh), BIAS (of stage 1), W_GLOBAL (1: each expert's w has a scale more), W_ZERO_POINTS (1: w has them).

#include "backends/gpu/families/simt_moe/simt_moe_arguments.h"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_elements.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"
#include "backends/gpu/moe/moe_scales_arguments.h"

#define BLOCK_N 64
#define BLOCK_K 16
#define THREAD_M (BLOCK_M / 16)
#define THREAD_N (BLOCK_N / 16)
#define HALVES (STAGE == 1 && GATED ? 2 : 1)  // of w: gate and up

using gemmtune::gpu::MoeScales;
using gemmtune::gpu::MoeTile;
using gemmtune::gpu::SimtMoeArguments;

// Elements times the largest e8m0 scales are more than float32 holds: they are divided by this, and sums are multiplied by it.
#define E8M0_UNIT 256.0f
#define SUM_UNIT ((X_SCALES == 2 ? E8M0_UNIT : 1.0f) * (W_SCALES == 2 ? E8M0_UNIT : 1.0f))

static __device__ inline long long scale_index(const MoeScales& scales, int matrix, long long row, long long k) {
  return matrix * scales.matrix_elements + row / scales.row_block * scales.columns + k / scales.k_block;
}
template <int type>
static __device__ inline float scale_at(const MoeScales& scales, int matrix, long long row, long long k) {
  if constexpr (type == 0) return 1.0f;
  return scale_at<type>(scales.values, scale_index(scales, matrix, row, k)) * (type == 2 ? 1.0f / E8M0_UNIT : 1.0f);
}
// The sum of products of an expert with the scale of its whole w.
static __device__ inline float scaled(const SimtMoeArguments& a, int expert, float sum) {
  const float value = sum * SUM_UNIT;
  if constexpr (W_GLOBAL) return value * a.format.w_global[expert];
  return value;
}

extern "C" __global__ void __launch_bounds__(256, 1) simt_moe(const SimtMoeArguments a) {
  __shared__ float x_tile[BLOCK_K][BLOCK_M + 1];
  __shared__ float w_tile[HALVES][BLOCK_K][BLOCK_N + 1];
  const int thread = threadIdx.x;
  const long long first_n = (long long)blockIdx.x * BLOCK_N;
  const int tile_count = *a.tile_count;
  // A grid has at most 65535 blocks along y: a block loops over tiles.
  for (int index = (int)blockIdx.y; index < tile_count; index += (int)gridDim.y) {
    const MoeTile tile = a.tiles[index];
    float sums[HALVES][THREAD_M][THREAD_N] = {};
    for (long long first_k = 0; first_k < a.k; first_k += BLOCK_K) {
      const long long k = first_k + thread % BLOCK_K;
      for (int at = thread / BLOCK_K; at < BLOCK_M; at += 256 / BLOCK_K) {
        float value = 0.0f;
        if (at < tile.count && k < a.k) {
#if STAGE == 1
          const long long row = a.pair_of[tile.first + at] / a.topk;
          value = value_at<X_TYPE>(a.x, row * a.ldx + k) * scale_at<X_SCALES>(a.x_scales, 0, row, k);
#else
          value = ((const float*)a.x)[(tile.first + at) * a.ldx + k];
#endif
        }
        x_tile[thread % BLOCK_K][at] = value;
      }
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        for (int at = thread / BLOCK_K; at < BLOCK_N; at += 256 / BLOCK_K) {
          float value = 0.0f;
          if (first_n + at < a.columns && k < a.k) {
            const long long row = half * a.columns + first_n + at;
            const long long first = (long long)tile.expert * (HALVES * a.columns) + row;
            value = value_at<W_TYPE>(a.w, first * a.k + k);
            if constexpr (W_ZERO_POINTS)
              value -= (float)a.format.zero_points[scale_index(a.w_scales, tile.expert, row, k)];
            value *= scale_at<W_SCALES>(a.w_scales, tile.expert, row, k);
          }
          w_tile[half][thread % BLOCK_K][at] = value;
        }
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < BLOCK_K; ++i) {
#pragma unroll
        for (int m = 0; m < THREAD_M; ++m) {
          const float x = x_tile[i][thread / 16 + 16 * m];
#pragma unroll
          for (int half = 0; half < HALVES; ++half) {
#pragma unroll
            for (int n = 0; n < THREAD_N; ++n)
              sums[half][m][n] = fmaf(x, w_tile[half][i][thread % 16 + 16 * n], sums[half][m][n]);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m) {
      const int at = thread / 16 + 16 * m;
      if (at >= tile.count) continue;
      const long long position = tile.first + at;
      const float weight = STAGE == 1 && a.weights ? a.weights[a.pair_of[position]] : 1.0f;
#pragma unroll
      for (int n = 0; n < THREAD_N; ++n) {
        const long long column = first_n + thread % 16 + 16 * n;
        if (column >= a.columns) continue;
#if STAGE == 1
        float gate = scaled(a, tile.expert, sums[0][m][n]);
        float up = scaled(a, tile.expert, sums[HALVES - 1][m][n]);
#if BIAS
        const float* const bias = a.bias + tile.expert * (HALVES * a.columns) + column;
        gate += bias[0];
        up += bias[(HALVES - 1) * a.columns];
#endif
        a.to[position * a.columns + column] = activate(gate * weight, up * weight);
#else
        a.to[position * a.columns + column] = scaled(a, tile.expert, sums[0][m][n]) * weight;
#endif
      }
    }
  }
}
