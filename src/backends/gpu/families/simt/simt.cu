// y[m, n] = sum over k of x[m, k] * w[n, k], by plain multiply-adds: any type, any size, any device. A block
// of 256 threads makes a tile of TILE_M x 64; each thread TILE_M/16 x 4 of it, in steps of 16 k. The order of
// the sums is fixed.
#define TILE_N 64
#define TILE_K 16
#define ROWS (TILE_M / 16)
#define COLUMNS (TILE_N / 16)

struct Arguments {
  const element* x;
  const element* w;
  const output* bias;
  const float* x_scale;
  const float* w_scale;
  output* y;
  long long m, n, k, ldx, ldy;
  long long pieces;  // of a row of a packed weight
};

#if PACKED
// Tiles of 64 rows x 128 bytes, the 16 bytes at 16 c of row r at 16 (c ^ r % 8): layout tile64x128.
static __device__ inline element weight_at(const Arguments& a, long long row, long long column) {
  const long long at = column * (long long)sizeof(element);
  const long long tile = row / 64 * a.pieces + at / 128;
  const long long unit = (at % 128 / 16) ^ (row % 8);
  return a.w[((tile * 64 + row % 64) * 128 + unit * 16 + at % 16) / (long long)sizeof(element)];
}
#else
static __device__ inline element weight_at(const Arguments& a, long long row, long long column) { return a.w[row * a.k + column]; }
#endif

extern "C" __global__ void __launch_bounds__(256, 1) simt(const Arguments a) {
  __shared__ float x_tile[TILE_K][TILE_M + 1];
  __shared__ float w_tile[TILE_K][TILE_N + 1];
  const int thread = threadIdx.x;
  const long long first_n = (long long)blockIdx.x * TILE_N;
  // Few blocks fit along y of a grid: rows of tiles are walked.
  for (long long first_m = (long long)blockIdx.y * TILE_M; first_m < a.m; first_m += (long long)gridDim.y * TILE_M) {
    float sums[ROWS][COLUMNS] = {};
    for (long long first_k = 0; first_k < a.k; first_k += TILE_K) {
      for (int i = thread; i < TILE_M * TILE_K; i += 256) {
        const long long row = first_m + i / TILE_K;
        const long long column = first_k + i % TILE_K;
        x_tile[i % TILE_K][i / TILE_K] = row < a.m && column < a.k ? read_element(a.x[row * a.ldx + column]) : 0.0f;
      }
      for (int i = thread; i < TILE_N * TILE_K; i += 256) {
        const long long row = first_n + i / TILE_K;
        const long long column = first_k + i % TILE_K;
        w_tile[i % TILE_K][i / TILE_K] = row < a.n && column < a.k ? read_element(weight_at(a, row, column)) : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < TILE_K; ++k) {
        float w[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) w[j] = w_tile[k][thread % 16 + 16 * j];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const float x = x_tile[k][thread / 16 + 16 * i];
#pragma unroll
          for (int j = 0; j < COLUMNS; ++j) sums[i][j] = fmaf(x, w[j], sums[i][j]);
        }
      }
      __syncthreads();
    }
    const float scale = a.x_scale ? *a.x_scale * *a.w_scale : 1.0f;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const long long m = first_m + thread / 16 + 16 * i;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const long long n = first_n + thread % 16 + 16 * j;
        if (m < a.m && n < a.n) {
          const float bias = a.bias ? read_output(a.bias[n]) : 0.0f;
          a.y[m * a.ldy + n] = round_output(sums[i][j] * scale + bias);
        }
      }
    }
  }
}
