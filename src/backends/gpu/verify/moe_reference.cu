// The float64 reference of a mixture of experts, a stage a kernel, as verify/reference_moe.cpp has it: hidden = act(x * w1), which is not rounded, and
// partial results = weight * (hidden * w2) with their magnitudes, sum over k of (|hidden| + hidden_floor) * |w2| in float32. Rows of a tile are positions of one
// expert; of a w1 with gate a tile has 32 rows of the gate and the same of up, so that a thread has both. Tiles are those of
// reference_tiles.cuh.
//
// The host defines: STAGE (1, 2), GATED (of stage 1) and ACTIVATION (0: none, 1: silu, 2: gelu, 3: swiglu), X_TYPE, W_TYPE, X_SCALES and W_SCALES
// (moe_elements.cuh), W_GLOBAL (1: each expert's w has a scale more) and W_ZERO_POINTS (1: w has them).

#include "backends/gpu/moe/moe_elements.cuh"
#include "backends/gpu/moe/moe_scales_arguments.h"
#include "backends/gpu/verify/moe_reference_arguments.h"
#include "backends/gpu/verify/reference_tiles.cuh"

using gemmtune::gpu::MoeReferenceArguments;
using gemmtune::gpu::MoeReferenceTile;
using gemmtune::gpu::MoeScales;

#define WEIGHT_UNIT (W_SCALES ? SCALED_WEIGHT_UNIT : 1)
#define COLUMNS (GATED ? TILE / 2 : TILE)  // of the result, of a tile

// Where a row begins: indices of its first element and its first scale. `element` < 0: the tile has no such row.
struct Row {
  long long element, scale;
};
struct Rows {
  Row x[TILE];
  Row w[TILE];
};

static __device__ inline double activate(const MoeReferenceArguments& a, double gate, double up) {
  if constexpr (ACTIVATION == 3) {
    const double limit = a.swiglu_limit;
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return gate / (1.0 + exp(-a.swiglu_alpha * gate)) * (up + 1.0);
  }
  double value = gate;
  if constexpr (ACTIVATION == 1) value = gate / (1.0 + exp(-gate));
  if constexpr (ACTIVATION == 2) value = 0.5 * gate * (1.0 + erf(gate * 0.70710678118654752440));
  return GATED ? value * up : value;
}

static __device__ inline Row row_of(const MoeScales& scales, long long matrix, long long rows, long long row,
                                    long long width) {
  return {(matrix * rows + row) * width, matrix * scales.matrix_elements + row / scales.row_block * scales.columns};
}

// Where row `at` of the tile's operands begins.
static __device__ inline Row x_row(const MoeReferenceArguments& a, const MoeReferenceTile& tile, int at) {
  if (at >= tile.count) return {-1, 0};
  const long long position = tile.first + at;
  if constexpr (STAGE == 2) return {position * a.ldx, 0};
  const long long token = a.token_of[position];
  return {token * a.ldx, row_of(a.x_scales, 0, 0, token, 0).scale};
}
static __device__ inline Row w_row(const MoeReferenceArguments& a, const MoeReferenceTile& tile, long long first_column,
                                   int at) {
  const long long column = first_column + at % COLUMNS;
  if (column >= a.columns) return {-1, 0};
  return row_of(a.w_scales, tile.expert, (GATED ? 2 : 1) * a.columns, at < COLUMNS ? column : a.columns + column, a.k);
}

extern "C" __global__ void __launch_bounds__(256, 2) moe_reference(const MoeReferenceArguments a) {
  __shared__ Tiles tiles;
  __shared__ Rows rows;
  const int thread = threadIdx.x;
  const int across = thread % 16;
  const int down = thread / 16;
  const long long first_column = (long long)blockIdx.x * COLUMNS;
  // A grid has at most 65535 blocks along y: a block loops over tiles.
  for (int index = (int)blockIdx.y; index < a.tile_count; index += (int)gridDim.y) {
    const MoeReferenceTile tile = a.tiles[index];
    if (thread < TILE) {
      rows.x[thread] = x_row(a, tile, thread);
    } else if (thread < 2 * TILE) {
      rows.w[thread - TILE] = w_row(a, tile, first_column, thread - TILE);
    }
    __syncthreads();
    TileSums sums = {};
    for (long long first_k = 0; first_k < a.k; first_k += BLOCK_K) {
      const long long k = first_k + across;
      const unsigned w_block = (unsigned)k / (unsigned)a.w_scales.k_block;
      const unsigned x_block = STAGE == 1 ? (unsigned)k / (unsigned)a.x_scales.k_block : 0u;
      // All loads before the first conversion: they are under way together. Rows that the tile lacks load the first element.
      unsigned w_bits[TILE / 16];
      float w_scales[TILE / 16];
      float w_zeros[TILE / 16];    // with W_ZERO_POINTS
      unsigned x_bits[TILE / 16];  // of stage 1, with the scales
      float x_scales[TILE / 16];
      double x_values[TILE / 16];  // of stage 2
#pragma unroll
      for (int i = 0; i < TILE / 16; ++i) {
        const int at = down + 16 * i;
        const Row x = rows.x[at];
        const Row w = rows.w[at];
        const bool x_inside = k < a.k && x.element >= 0;
        const bool w_inside = k < a.k && w.element >= 0;
        w_bits[i] = bits_at<W_TYPE>(a.w, w_inside ? w.element + k : 0);
        w_scales[i] = scale_at<W_SCALES>(a.w_scales.values, w_inside ? w.scale + w_block : 0);
        if constexpr (W_ZERO_POINTS) w_zeros[i] = (float)a.format.zero_points[w_inside ? w.scale + w_block : 0];
        if constexpr (STAGE == 1) {
          x_bits[i] = bits_at<X_TYPE>(a.x, x_inside ? x.element + k : 0);
          x_scales[i] = scale_at<X_SCALES>(a.x_scales.values, x_inside ? x.scale + x_block : 0);
        } else {
          x_values[i] = ((const double*)a.x)[x_inside ? x.element + k : 0];
        }
      }
#pragma unroll
      for (int i = 0; i < TILE / 16; ++i) {
        const int at = down + 16 * i;
        double x_value;
        if constexpr (STAGE == 1) {
          x_value = (double)value_of<X_TYPE>(x_bits[i]) * (double)x_scales[i];
        } else {
          x_value = x_values[i];
        }
        double w_value = (double)value_of<W_TYPE>(w_bits[i]);
        if constexpr (W_ZERO_POINTS) w_value -= (double)w_zeros[i];
        w_value *= (double)w_scales[i];
        if constexpr (W_GLOBAL) w_value *= (double)a.format.w_global[tile.expert];
        const double x = k < a.k && rows.x[at].element >= 0 ? x_value : 0.0;
        const double w = k < a.k && rows.w[at].element >= 0 ? w_value : 0.0;
        tiles.x[across][at] = x;
        tiles.w[across][at] = w;
        if constexpr (STAGE == 2) {
          tiles.x_abs[across][at] = fabsf((float)(x * WEIGHT_UNIT)) + (float)(a.hidden_floor * WEIGHT_UNIT);
          tiles.w_abs[across][at] = fabsf((float)(w / WEIGHT_UNIT));
        }
      }
      __syncthreads();
      multiply_tiles<STAGE == 2>(tiles, across, down, sums);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * down + i;
      if (at >= tile.count) continue;
      const long long position = tile.first + at;
      const double weight = a.weights ? a.weights[position] : 1.0;
#pragma unroll
      for (int j = 0; j < (GATED ? 2 : 4); ++j) {
        const long long column = first_column + tile_column(across, j);
        if (column >= a.columns) continue;
        const float* const bias = a.bias ? a.bias + tile.expert * ((GATED ? 2 : 1) * a.columns) + column : nullptr;
        const double first = sums.values[i][j] + (bias ? (double)bias[0] : 0.0);
        if constexpr (STAGE == 1) {
          const double second =
              GATED ? sums.values[i][GATED ? j + 2 : j] + (bias ? (double)bias[a.columns] : 0.0) : first;
          a.values[position * a.columns + column] = activate(a, weight * first, weight * second);
        } else {
          a.values[position * a.columns + column] = weight * first;
          a.magnitudes[position * a.columns + column] =
              (float)weight * (sums.magnitudes[i][j] + (bias ? fabsf(bias[0]) : 0.0f));
        }
      }
    }
  }
}
