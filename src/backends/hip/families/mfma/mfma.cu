// y[m, n] = sum over k of x[m, k] * w[n, k] with MFMA, gfx90a, gfx942 and gfx950. See README.md.
//
// The host defines: BLOCK_M, BLOCK_N, BLOCK_K (bytes of k in a tile: 64, 128, 256), WAVES_M, WAVES_N, MFMA_ROWS (16, 32: the instruction),
// KPACK (1, 2: instructions that a lane's read of shared memory feeds), NUM_BUFFERS (1, 2: tiles in shared memory), DIRECT (1: global loads go
// to shared memory without registers), PAD (bytes after a row in shared memory; 0: rows are swizzled), SHUFFLED (1: the weight has the layout
// aiter16x16 and goes to registers), SPLIT_K (1: blocks divide k and write partial sums), WAVES_PER_EU (0: the compiler decides), DECODE (1: an
// fp4 weight, and x unless it is bf16, are multiplied as bf16; bytes of k are then of bf16), SCALED (1: fp4 operands as they are, with scaled
// instructions), X_COLUMNS, W_COLUMNS (1: the operand is column-major, neither DIRECT nor DECODE), ELEMENT, OUTPUT, SCALES, W_SCALES, BATCHED (1: the
// blocks along z have a batch each). With REDUCE alone: the kernel that reduces the partial sums.

#include "backends/gpu/device/numbers.cuh"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "backends/hip/families/mfma/mfma_instructions.cuh"
#include "backends/hip/families/mfma/mfma_tile.cuh"

#ifdef REDUCE

extern "C" __global__ void __launch_bounds__(256) mfma_reduce(const MfmaArguments all) {
  const MfmaArguments a = of_batch(all);
  const sum* const partials = (const sum*)a.partials;
  const long long count = (long long)a.m * a.n;
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += (long long)gridDim.x * 256) {
    sum value = 0;
    for (int split = 0; split < a.split_k; ++split) value += partials[split * count + i];
    const int row = (int)(i / a.n);
    const int column = (int)(i % a.n);
    a.y[row * a.ldy + column] = epilogue_value(value, row_scale(a, row), column_at(a, column));
  }
}

#else

extern "C" __global__ void __launch_bounds__(NUM_THREADS) OCCUPANCY mfma(const MfmaArguments all) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const MfmaArguments a = of_batch(all);
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
#if SHUFFLED || SCALED
    const Staged now = next;
#else
    const Staged& now = next;
#endif
    unsigned char* const read = memory + buffer * BUFFER_BYTES;
    unsigned char* const write = NUM_BUFFERS == 2 ? memory + (buffer ^ 1) * BUFFER_BYTES : memory;
    const bool is_last = k_tile + 1 == end;
    if (!is_last) load_tile(a, next, write, tile, k_tile + 1);
#if SCALES == 3
    sums_vector products[TILES_W][TILES_X] = {};
    multiply_tile(products, read, now, wave_m, wave_n);
    add_scaled(a, sums, products, tile, k_tile, wave_m, wave_n);
#else
    multiply_tile(sums, read, now, wave_m, wave_n);
#endif
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
        if (!SPLIT_K) columns[n] = column_at(a, clamp_row(column + n, a.n));
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
#if DECODE
        const sums_vector of = sums[i][j] * SUM_UNIT;
#else
        const sums_vector& of = sums[i][j];
#endif
        const sum values[4] = {of[4 * four], of[4 * four + 1], of[4 * four + 2], of[4 * four + 3]};
        store_four(a, tile.m + wave_m * WAVE_ROWS + j * MFMA_ROWS + lane % MFMA_ROWS, column, values, columns);
      }
    }
  }
}

#endif
