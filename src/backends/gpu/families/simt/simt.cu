// y[m, n] = sum over k of x[m, k] * w[n, k], by fused multiply-adds: any type, any scales, any size, any device. A block of 256 threads computes a
// tile of BLOCK_M x 64, each thread BLOCK_M / 16 x 4 of it, in k tiles of 16. A batch is a block
// along the grid's z. The order of the sums is fixed.
//
// The host defines: BLOCK_M (16, 64), PACKED (1: the weight has the layout tile64x128, or fragment64), and types
// (device/types.cuh).

#include "backends/gpu/device/batch.cuh"
#include "backends/gpu/device/fragment64.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/gpu/families/simt/simt_arguments.h"

#define BLOCK_N 64
#define BLOCK_K 16
#define THREAD_M (BLOCK_M / 16)
#define THREAD_N (BLOCK_N / 16)

using gemmtune::gpu::SimtArguments;

// Layout fragment64: a thread's 16 bytes of a tile of 64 x 64, a word for each 16 of k, whose eight elements are spread over its bits.
static __device__ inline float fragment_weight_at(const SimtArguments& a, long long row, long long column) {
  const int r = (int)(row % 64);
  const int k = (int)(column % 64);
  const int thread = r / 16 * 32 + r % 8 * 4 + k % 8 / 2;
  const int pair = r % 16 / 8 + k % 16 / 8 * 2;
  const unsigned word =
      ((const unsigned*)a.w)[((row / 64 * a.k_atoms + column / 64) * 128 + thread) * 4 + k / 16] >> (k % 2 * 16);
  const unsigned char bits = (unsigned char)gather_element<types().weight == Element::int4>(word, pair);
  return read_half<types().weight>(&bits, 0);
}

// Layout tile64x128: tiles of 64 rows x 128 bytes; the 16 bytes at 16 c of row r are at 16 (c ^ r % 8).
static __device__ inline float tile_weight_at(const SimtArguments& a, long long row, long long column) {
  const long long at = column * (long long)sizeof(element);
  const long long tile = row / 64 * a.k_atoms + at / 128;
  const long long unit = (at % 128 / 16) ^ (row % 8);
  return read_w(a.w, ((tile * 64 + row % 64) * 128 + unit * 16 + at % 16) / (long long)sizeof(element));
}

static __device__ inline float weight_at(const SimtArguments& a, long long row, long long column) {
  if constexpr (PACKED && is_half(types().weight)) {
    return fragment_weight_at(a, row, column);
  } else if constexpr (PACKED) {
    return tile_weight_at(a, row, column);
  } else {
    return read_w(a.w, row * a.w_row_step + column * a.w_k_step);
  }
}

// Elements times the largest e8m0 scales are more than float32 holds: they are divided by this, and sums are multiplied by it.
#define E8M0_UNIT 256.0f
#define X_UNIT (SCALES == 4 || E8M0 ? E8M0_UNIT : 1.0f)
#define W_UNIT (W_SCALES == 4 || E8M0 ? E8M0_UNIT : 1.0f)

// Element (row, column) of w, less its zero point, times its scale.
static __device__ inline float scaled_weight_at(const SimtArguments& a, long long row, long long column) {
  float weight = weight_at(a, row, column);
  if constexpr (types().zero_points) weight -= zero_point_at(a.format, a.scales.w_row_step, row, column);
  return weight * (w_scale_at(a.scales, row, column) * (1.0f / W_UNIT));
}

extern "C" __global__ void __launch_bounds__(256, 1) simt(const SimtArguments all) {
  const SimtArguments a = of_batch(all);
  __shared__ float x_tile[BLOCK_K][BLOCK_M + 1];
  __shared__ float w_tile[BLOCK_K][BLOCK_N + 1];
  const int thread = threadIdx.x;
  const bool x_columns = a.x_k_step != 1;
  const bool w_columns = a.w_k_step != 1;
  const long long first_n = (long long)blockIdx.x * BLOCK_N;
  // A grid has at most 65535 blocks along y: a block loops over rows of tiles.
  for (long long first_m = (long long)blockIdx.y * BLOCK_M; first_m < a.m; first_m += (long long)gridDim.y * BLOCK_M) {
    float sums[THREAD_M][THREAD_N] = {};
    for (long long first_k = 0; first_k < a.k; first_k += BLOCK_K) {
      // Neighbouring threads load what is contiguous: elements of k, or rows of a column-major operand.
      for (int i = thread; i < BLOCK_M * BLOCK_K; i += 256) {
        const int k_at = x_columns ? i / BLOCK_M : i % BLOCK_K;
        const int row_at = x_columns ? i % BLOCK_M : i / BLOCK_K;
        const long long row = first_m + row_at;
        const long long column = first_k + k_at;
        x_tile[k_at][row_at] = row < a.m && column < a.k ? read_x(a.x, row * a.x_row_step + column * a.x_k_step) *
                                                               (x_scale_at(a.scales, row, column) * (1.0f / X_UNIT))
                                                         : 0.0f;
      }
      for (int i = thread; i < BLOCK_N * BLOCK_K; i += 256) {
        const int k_at = w_columns ? i / BLOCK_N : i % BLOCK_K;
        const int row_at = w_columns ? i % BLOCK_N : i / BLOCK_K;
        const long long row = first_n + row_at;
        const long long column = first_k + k_at;
        w_tile[k_at][row_at] = row < a.n && column < a.k ? scaled_weight_at(a, row, column) : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < BLOCK_K; ++k) {
        float w[THREAD_N];
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) w[j] = w_tile[k][thread % 16 + 16 * j];
#pragma unroll
        for (int i = 0; i < THREAD_M; ++i) {
          const float x = x_tile[k][thread / 16 + 16 * i];
#pragma unroll
          for (int j = 0; j < THREAD_N; ++j) sums[i][j] = fmaf(x, w[j], sums[i][j]);
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
      const long long m = first_m + thread / 16 + 16 * i;
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) {
        const long long n = first_n + thread % 16 + 16 * j;
        if (m < a.m && n < a.n) {
          const float bias = a.bias ? read_output(a.bias[n]) : 0.0f;
          float sum = sums[i][j];
          if constexpr (types().w_scales == Scales::nv) sum = sum * w_global(a.format) * x_global(a.format);
          a.y[m * a.ldy + n] = round_output(fmaf(sum, X_UNIT * W_UNIT, bias));
        }
      }
    }
  }
}
