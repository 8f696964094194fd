// y[m, n] = sum over k of x[m, k] * w[n, k] with MFMA, gfx90a, gfx942 and gfx950. See README.md.
//
// MfmaConfig is what the host compiles it for. The blocks along z have a batch each. With split-K mfma_reduce.cu adds the partial sums.

#include "backends/gpu/device/numbers.cuh"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "backends/hip/families/mfma/mfma_instructions.cuh"
#include "backends/hip/families/mfma/mfma_tile.cuh"

extern "C" __global__ void __launch_bounds__(NUM_THREADS) OCCUPANCY mfma(const MfmaArguments all) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const MfmaArguments a = of_block(all);
  const Tile tile = tile_at(a, (int)blockIdx.x);
  const int k_tiles = (int)((a.k_bytes + BLOCK_K - 1) / BLOCK_K);
  const int begin = (int)((long long)k_tiles * blockIdx.y / a.split_k);
  const int end = (int)((long long)k_tiles * (blockIdx.y + 1) / a.split_k);
  const int wave = threadIdx.x / 64;
  const int wave_m = wave % WAVES_M;
  const int wave_n = wave / WAVES_M;

  Staged next;
  sums_vector sums[TILES_W][TILES_X] = {};
  load_tile(a, next, memory, tile, begin);
  store_tile(next, memory);
  __syncthreads();
  int buffer = 0;
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    const Staged now = next;
    unsigned char* const read = memory + buffer * BUFFER_BYTES;
    unsigned char* const write = NUM_BUFFERS == 2 ? memory + (buffer ^ 1) * BUFFER_BYTES : memory;
    const bool is_last = k_tile + 1 == end;
    if (!is_last) load_tile(a, next, write, tile, k_tile + 1);
    if constexpr (types().scales == Scales::blocks) {
      sums_vector products[TILES_W][TILES_X] = {};
      multiply_tile(products, read, now, wave_m, wave_n);
      add_scaled(a, sums, products, tile, k_tile, wave_m, wave_n);
    } else {
      multiply_tile(sums, read, now, wave_m, wave_n);
    }
    if (is_last) break;
    // All waves have read the tile that the next one replaces.
    if (NUM_BUFFERS == 1) __syncthreads();
    store_tile(next, write);
    __syncthreads();
    if (NUM_BUFFERS == 2) buffer ^= 1;
  }

  const int lane = threadIdx.x % 64;
#pragma unroll
  for (int i = 0; i < TILES_W; ++i) {
#pragma unroll
    for (int four = 0; four < SUMS / 4; ++four) {
      const int column = tile.n + wave_n * WAVE_COLUMNS + i * MFMA_ROWS + four * 4 * LANE_GROUPS + lane / MFMA_ROWS * 4;
      Column columns[4] = {};
#pragma unroll
      for (int n = 0; n < 4; ++n)
        if (!config().split_k) columns[n] = column_at(a, clamp_row(column + n, a.n));
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
        const sums_vector of = in_units_of_y(sums[i][j]);
        const sum values[4] = {of[4 * four], of[4 * four + 1], of[4 * four + 2], of[4 * four + 3]};
        store_four(a, tile.m + wave_m * WAVE_ROWS + j * MFMA_ROWS + lane % MFMA_ROWS, column, values, columns);
      }
    }
  }
}
