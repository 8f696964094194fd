// One stage of a mixture of experts with MFMA: rows of the tokens that are routed to an expert times rows of its weight, for all experts in one grid. A
// weight without tokens is not read. Has the tiles of mfma.cu (mfma_tile.cuh): their loads, LDS and instructions. See README.md.
//
// The weight's rows of a wave are of the gate in its first half and the same of the up half in its second, where stage 1 is gated: a lane then holds both
// factors of an element of the hidden layer.
//
// MfmaConfig (neither direct nor padded, kpack 2, no split-K) and MfmaMoeConfig are what the host compiles it for; and GATED and ACTIVATION
// (moe_activation.cuh), of stage 1.

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"
#include "backends/hip/families/mfma/mfma_instructions.cuh"
#include "backends/hip/families/mfma/mfma_tile.cuh"
#include "backends/hip/families/mfma_moe/mfma_moe_arguments.h"

using gemmtune::gpu::MoeTile;
using gemmtune::hip::MfmaMoeArguments;

static __device__ constexpr gemmtune::hip::MfmaMoeConfig stage() { return STAGE; }
static __device__ constexpr bool scales_blocks() { return stage().scales == Scales::blocks; }
static __device__ constexpr bool scales_rows() { return stage().scales == Scales::rows; }

enum : int {
  HALVES = stage().gated ? 2 : 1,
  RESULT_TILES = TILES_W / HALVES,
  WAVE_RESULTS = WAVE_COLUMNS / HALVES,  // columns of `to`
  TILE_RESULTS = BLOCK_N / HALVES,
};

struct Work {
  MoeTile tile;
  int column;  // first one of `to`
};

// Neighbours compute all tokens of an expert with the same rows of the weight, then with the next ones.
static __device__ inline Work work_at(const MfmaMoeArguments& a, int index) {
  const int any = index / a.column_tiles;
  const MoeTile one = a.tiles[any];
  const int tiles = a.tiles_of[one.expert];
  const int first = any - one.index;
  const int local = index - first * a.column_tiles;
  return {a.tiles[first + local % tiles], local / tiles * TILE_RESULTS};
}

// The row of x, and of its scales, that a row of the tile is.
static __device__ inline long long x_row(const MfmaMoeArguments& a, const MoeTile& tile, int row) {
  const int position = tile.first + clamp_row(row, tile.count);
  return stage().number == 1 ? a.pair_of[position] / a.topk : position;
}

// The weight's row of row `row` of the block.
static __device__ inline int weight_row(const MfmaMoeArguments& a, int column, int row) {
  const int within = row % WAVE_COLUMNS;
  const int result = column + row / WAVE_COLUMNS * WAVE_RESULTS + within % WAVE_RESULTS;
  return within / WAVE_RESULTS * a.columns + clamp_row(result, a.columns);
}
static __device__ inline float weight_scale(const MfmaMoeArguments& a, const Work& work, int row, int k_block) {
  return a
      .w_scales[work.tile.expert * a.w_scale_matrix + row / a.w_scale_rows * (long long)a.w_scale_columns + k_block];
}

// Where the rows of x begin that this thread copies.
struct TokenRows {
  const unsigned char* at[X_UNITS];
};

template <Path PATH, int COUNT>
static __device__ inline void load_weight(const MfmaMoeArguments& a, StagedOperand<PATH, COUNT>& staged,
                                          const unsigned char* w, const Work& work, long long column) {
  if constexpr (PATH == Path::shuffled)
    load_shuffled(
        staged, w, [&](int row) { return weight_row(a, work.column, row); }, column, a.k_bytes);
  else
    load_rows<COUNT, BLOCK_N>(
        staged.units, [&](int, int row) { return w + weight_row(a, work.column, row) * a.k_bytes; }, column, a.k_bytes);
}

static __device__ inline void load_operands(const MfmaMoeArguments& a, Staged& staged, const TokenRows& tokens,
                                            const Work& work, int k_tile) {
  const long long column = (long long)k_tile * BLOCK_K;
  const unsigned char* const w = a.w + work.tile.expert * a.w_matrix_bytes;
  load_rows<X_UNITS, BLOCK_M>(
      staged.x.units, [&](int i, int) { return tokens.at[i]; }, column, a.k_bytes);
  load_weight(a, staged.w, w, work, column);
}

// Factors of the rows of x whose sums this lane holds.
struct TokenScales {
  const float* at[TILES_X];
};

template <typename VECTOR>
static __device__ inline void add_block(const MfmaMoeArguments& a, VECTOR (&sums)[TILES_W][TILES_X],
                                        const VECTOR (&products)[TILES_W][TILES_X], const TokenScales& tokens,
                                        const Work& work, int k_tile, int wave_n) {
  float x_scales[TILES_X];
#pragma unroll
  for (int j = 0; j < TILES_X; ++j) x_scales[j] = tokens.at[j][k_tile * a.x_scale_k_step];
#pragma unroll
  for (int i = 0; i < TILES_W; ++i) {
    const float scale =
        weight_scale(a, work, weight_row(a, work.column, wave_n * WAVE_COLUMNS + i * MFMA_ROWS), k_tile);
#pragma unroll
    for (int j = 0; j < TILES_X; ++j) sums[i][j] += products[i][j] * (x_scales[j] * scale);
  }
}

static __device__ inline void multiply_all(const MfmaMoeArguments& a, sums_vector (&sums)[TILES_W][TILES_X],
                                           unsigned char* memory, const Work& work, int wave_m, int wave_n) {
  TokenRows tokens;
#pragma unroll
  for (int i = 0; i < X_UNITS; ++i)
    tokens.at[i] = a.x + x_row(a, work.tile, ((int)threadIdx.x + i * NUM_THREADS) / UNITS) * a.x_line_bytes;
  TokenScales scales;
  if constexpr (scales_blocks()) {
#pragma unroll
    for (int j = 0; j < TILES_X; ++j)
      scales.at[j] =
          a.x_scales +
          x_row(a, work.tile, wave_m * WAVE_ROWS + j * MFMA_ROWS + (int)threadIdx.x % MFMA_ROWS) * a.x_scale_step;
  }
  const int k_tiles = (int)((a.k_bytes + BLOCK_K - 1) / BLOCK_K);
  Staged next;
  load_operands(a, next, tokens, work, 0);
  __syncthreads();  // the tile of other work was read
  store_tile(next, memory);
  __syncthreads();
  int buffer = 0;
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    const Staged now = next;
    unsigned char* const read = memory + buffer * BUFFER_BYTES;
    unsigned char* const write = NUM_BUFFERS == 2 ? memory + (buffer ^ 1) * BUFFER_BYTES : memory;
    const bool is_last = k_tile + 1 == k_tiles;
    if (!is_last) load_operands(a, next, tokens, work, k_tile + 1);
    if constexpr (scales_blocks()) {
      sums_vector products[TILES_W][TILES_X] = {};
      multiply_tile(products, read, now, wave_m, wave_n);
      add_block(a, sums, products, scales, work, k_tile, wave_n);
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
}

// Stores four adjacent columns; `columns` of the result are a multiple of four.
static __device__ inline void store_results(output* to, const float (&values)[4]) {
  Four<output> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.value[i] = round_output(values[i]);
  *(Four<output>*)to = four;
}

// What the epilogue multiplies the products of a row by: its scale, and the routing weight where that goes before the activation.
struct RowFactors {
  float scale, weight;
};

static __device__ inline void store_work(const MfmaMoeArguments& a, const sums_vector (&sums)[TILES_W][TILES_X],
                                         const Work& work, int wave_m, int wave_n) {
  const int lane = threadIdx.x % 64;
  RowFactors rows[TILES_X];
#pragma unroll
  for (int j = 0; j < TILES_X; ++j) {
    const int row = clamp_row(wave_m * WAVE_ROWS + j * MFMA_ROWS + lane % MFMA_ROWS, work.tile.count);
    rows[j].scale = scales_rows() ? a.x_scales[x_row(a, work.tile, row) * a.x_scale_step] : 1.0f;
    rows[j].weight = stage().weighted ? a.weights[a.pair_of[work.tile.first + row]] : 1.0f;
  }
#pragma unroll
  for (int i = 0; i < RESULT_TILES; ++i) {
#pragma unroll
    for (int four = 0; four < SUMS / 4; ++four) {
      const int within = i * MFMA_ROWS + four * 4 * LANE_GROUPS + lane / MFMA_ROWS * 4;
      const int column = work.column + wave_n * WAVE_RESULTS + within;
      float scales[HALVES][4];
      float biases[HALVES][4];
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int n = 0; n < 4; ++n)
          scales[half][n] =
              scales_rows() ? weight_scale(a, work, half * a.columns + clamp_row(column + n, a.columns), 0) : 1.0f;
        if constexpr (stage().bias) {
#pragma unroll
          for (int n = 0; n < 4; ++n)
            biases[half][n] = a.bias[(long long)work.tile.expert * (HALVES * a.columns) + half * a.columns +
                                     clamp_row(column + n, a.columns)];
        }
      }
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
        const int row = wave_m * WAVE_ROWS + j * MFMA_ROWS + lane % MFMA_ROWS;
        float values[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          float first = (float)sums[i][j][4 * four + n] * (rows[j].scale * scales[0][n]);
          if constexpr (stage().number == 1) {
            float second =
                (float)sums[i + TILES_W - RESULT_TILES][j][4 * four + n] * (rows[j].scale * scales[HALVES - 1][n]);
            if constexpr (stage().bias) {
              first += biases[0][n];
              second += biases[HALVES - 1][n];
            }
            values[n] = activate(first * rows[j].weight, second * rows[j].weight);
          } else {
            values[n] = first;
          }
        }
        if (row < work.tile.count && column < a.columns)
          store_results((output*)a.to + (work.tile.first + row) * (long long)a.columns + column, values);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(NUM_THREADS) OCCUPANCY mfma_moe(const MfmaMoeArguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const int wave = threadIdx.x / 64;
  const int wave_m = wave % WAVES_M;
  const int wave_n = wave / WAVES_M;
  const int count = *a.tile_count * a.column_tiles;
#pragma unroll 1
  for (int index = (int)blockIdx.x; index < count; index += (int)gridDim.x) {
    const Work work = work_at(a, dealt_to_dies(index, count, a.xcds));
    sums_vector sums[TILES_W][TILES_X] = {};
    multiply_all(a, sums, memory, work, wave_m, wave_n);
    store_work(a, sums, work, wave_m, wave_n);
  }
}
