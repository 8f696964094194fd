// The float64 reference: values[m, n] = (sum over k of x[m, k] * w[n, k]) + bias of elements times their scales; magnitudes[m, n] is the same
// of absolute values in float32. An element times its scale is exact in float64, and so is a product of elements without scales. Tiles are those
// of reference_tiles.cuh.

#include "backends/gpu/device/batch.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/gpu/verify/reference_arguments.h"
#include "backends/gpu/verify/reference_tiles.cuh"

using gemmtune::gpu::ReferenceArguments;

#if SCALES || W_SCALES
typedef double dequantized;
#define WEIGHT_UNIT SCALED_WEIGHT_UNIT
#else
typedef float dequantized;
#define WEIGHT_UNIT 1
#endif
static __device__ inline dequantized x_at(const ReferenceArguments& a, long long row, long long k) {
  return (dequantized)read_x(a.x, row * a.x_row_step + k * a.x_k_step) * (dequantized)x_scale_at(a.scales, row, k) *
         (dequantized)x_global(a.format);
}
static __device__ inline dequantized w_at(const ReferenceArguments& a, long long row, long long k) {
  const dequantized weight = (dequantized)read_w(a.w, row * a.w_row_step + k * a.w_k_step) -
                             (dequantized)zero_point_at(a.format, a.scales.w_row_step, row, k);
  return weight * (dequantized)w_scale_at(a.scales, row, k) * (dequantized)w_global(a.format);
}
// Without sign; 0 of what is no finite number.
static __device__ inline float size_of(dequantized value) {
  return value - value == dequantized(0) ? fabsf((float)value) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256, 2) reference(const ReferenceArguments all) {
  const ReferenceArguments a = of_batch(all, [](ReferenceArguments& b, long long batch) {
    b.values += batch * b.m * b.n;
    b.magnitudes += batch * b.m * b.n;
  });
  __shared__ Tiles tiles;
  const int thread = threadIdx.x;
  const int across = thread % 16;
  const int down = thread / 16;
  const long long first_n = (long long)blockIdx.x * TILE;
  // A grid has at most 65535 blocks along y: a block loops over rows of tiles.
  for (long long first_m = (long long)blockIdx.y * TILE; first_m < a.m; first_m += (long long)gridDim.y * TILE) {
    TileSums sums = {};
    for (long long first_k = 0; first_k < a.k; first_k += BLOCK_K) {
      // A thread loads one column of four rows of each operand; with scales one after the other, for want of registers.
      const long long column = first_k + across;
#pragma unroll(SCALES || W_SCALES ? 1 : TILE / 16)
      for (int i = 0; i < TILE / 16; ++i) {
        const int row = down + 16 * i;
        const dequantized x = column < a.k && first_m + row < a.m ? x_at(a, first_m + row, column) : dequantized(0);
        const dequantized w = column < a.k && first_n + row < a.n ? w_at(a, first_n + row, column) : dequantized(0);
        tiles.x[across][row] = (double)x;
        tiles.w[across][row] = (double)w;
        tiles.x_abs[across][row] = size_of(x * dequantized(WEIGHT_UNIT));
        tiles.w_abs[across][row] = size_of(w / dequantized(WEIGHT_UNIT));
      }
      __syncthreads();
      multiply_tiles<true>(tiles, across, down, sums);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const long long m = first_m + 4 * down + i;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const long long n = first_n + tile_column(across, j);
        if (m < a.m && n < a.n) {
          const float bias = a.bias ? read_output(a.bias[n]) : 0.0f;
          a.values[m * a.n + n] = sums.values[i][j] + (double)bias;
          a.magnitudes[m * a.n + n] = sums.magnitudes[i][j] + size_of((dequantized)bias);
        }
      }
    }
  }
}
