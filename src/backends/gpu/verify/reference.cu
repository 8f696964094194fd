// The float64 reference: values[m, n] = (sum over k of x[m, k] * w[n, k]) + bias of elements times their scales; magnitudes[m, n] is the same
// of absolute values in float32. An element times its scale is exact in float64, and so is a product of elements without scales. A block of 256 threads computes tiles of 64 x 64, each thread 4 x 4, in k
// tiles of 16. Shared memory holds elements as float64 and as float32: converting them in the inner loop would take longer than the
// multiply-adds.
#define TILE 64
#define BLOCK_K 16
// Pitches of shared memory: rows are aligned to 16 bytes and begin at different banks.
#define F64_PITCH (TILE + 2)
#define F32_PITCH (TILE + 4)

using gemmtune::gpu::ReferenceArguments;

struct __align__(16) Tiles {
  double x[BLOCK_K][F64_PITCH];
  double w[BLOCK_K][F64_PITCH];
  float x_abs[BLOCK_K][F32_PITCH];
  float w_abs[BLOCK_K][F32_PITCH];
};

#if SCALES || WEIGHT_FP4
typedef double dequantized;
#else
typedef float dequantized;
#endif
static __device__ inline dequantized x_at(const ReferenceArguments& a, long long row, long long k) {
  return (dequantized)read_x(a.x, row * a.x_row_step + k * a.x_k_step) * (dequantized)x_scale_at(a.scales, row, k);
}
static __device__ inline dequantized w_at(const ReferenceArguments& a, long long row, long long k) {
  return (dequantized)read_w(a.w, row * a.w_row_step + k * a.w_k_step) * (dequantized)w_scale_at(a.scales, row, k);
}

extern "C" __global__ void __launch_bounds__(256, 2) reference(const ReferenceArguments a) {
  __shared__ Tiles tiles;
  const int thread = threadIdx.x;
  const int across = thread % 16;
  const int down = thread / 16;
  const long long first_n = (long long)blockIdx.x * TILE;
  // A grid has at most 65535 blocks along y: a block loops over rows of tiles.
  for (long long first_m = (long long)blockIdx.y * TILE; first_m < a.m; first_m += (long long)gridDim.y * TILE) {
    double sums[4][4] = {};
    float magnitudes[4][4] = {};
    for (long long first_k = 0; first_k < a.k; first_k += BLOCK_K) {
      // A thread loads one column of four rows of each operand; with scales one after the other, for want of registers.
      const long long column = first_k + across;
#pragma unroll(SCALES || WEIGHT_FP4 ? 1 : TILE / 16)
      for (int i = 0; i < TILE / 16; ++i) {
        const int row = down + 16 * i;
        const dequantized x = column < a.k && first_m + row < a.m ? x_at(a, first_m + row, column) : dequantized(0);
        const dequantized w = column < a.k && first_n + row < a.n ? w_at(a, first_n + row, column) : dequantized(0);
        tiles.x[across][row] = (double)x;
        tiles.w[across][row] = (double)w;
        tiles.x_abs[across][row] = fabsf((float)x);
        tiles.w_abs[across][row] = fabsf((float)w);
      }
      __syncthreads();
#pragma unroll 2
      for (int k = 0; k < BLOCK_K; ++k) {
        // Columns 2 across, 2 across + 1 and the same plus 32: a warp reads contiguous memory.
        const double2 x_low = *(const double2*)&tiles.x[k][4 * down];
        const double2 x_high = *(const double2*)&tiles.x[k][4 * down + 2];
        const double2 w_low = *(const double2*)&tiles.w[k][2 * across];
        const double2 w_high = *(const double2*)&tiles.w[k][2 * across + 32];
        const float4 x_size = *(const float4*)&tiles.x_abs[k][4 * down];
        const float2 w_size_low = *(const float2*)&tiles.w_abs[k][2 * across];
        const float2 w_size_high = *(const float2*)&tiles.w_abs[k][2 * across + 32];
        const double x[4] = {x_low.x, x_low.y, x_high.x, x_high.y};
        const double w[4] = {w_low.x, w_low.y, w_high.x, w_high.y};
        const float x_abs[4] = {x_size.x, x_size.y, x_size.z, x_size.w};
        const float w_abs[4] = {w_size_low.x, w_size_low.y, w_size_high.x, w_size_high.y};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sums[i][j] = fma(x[i], w[j], sums[i][j]);
            magnitudes[i][j] = fmaf(x_abs[i], w_abs[j], magnitudes[i][j]);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const long long m = first_m + 4 * down + i;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const long long n = first_n + 2 * across + j % 2 + 32 * (j / 2);
        if (m < a.m && n < a.n) {
          const float bias = a.bias ? read_output(a.bias[n]) : 0.0f;
          a.values[m * a.n + n] = sums[i][j] + (double)bias;
          a.magnitudes[m * a.n + n] = magnitudes[i][j] + fabsf(bias);
        }
      }
    }
  }
}
