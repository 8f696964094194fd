// One stage of a mixture of experts with MFMA: rows of the tokens that are routed to an expert times rows of its weight, for all experts in one grid. A
// weight without tokens is not read. Has the tiles of mfma.cu (mfma_tile.cuh): their loads, LDS and instructions. See README.md.
//
// The weight's rows of a wave are of the gate in its first half and the same of the up half in its second, where stage 1 is gated: a lane then holds both
// factors of an element of the hidden layer.
//
// The host defines what mfma.cu needs (DIRECT=0, PAD=0, KPACK=2, SPLIT_K=0, SCALES=0), STAGE (1, 2), GATED and ACTIVATION (moe_activation.cuh; of
// stage 1), WEIGHTED (1: routing weights scale gate and up; of stage 1), BIAS (1: experts have one; of stage 1), MOE_SCALES (0: none, 1: of rows and matrices, 2: of 1 x 128 of x and 128 x 128 of the
// weight).

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"
#include "backends/hip/families/mfma/mfma_instructions.cuh"
#include "backends/hip/families/mfma/mfma_tile.cuh"
#include "backends/hip/families/mfma_moe/mfma_moe_arguments.h"

using gemmtune::gpu::MoeTile;
using gemmtune::hip::MfmaMoeArguments;

#define HALVES (STAGE == 1 && GATED ? 2 : 1)
#define RESULT_TILES (TILES_W / HALVES)
#define WAVE_RESULTS (WAVE_COLUMNS / HALVES)  // columns of `to`
#define TILE_RESULTS (BLOCK_N / HALVES)

typedef float scaled_vector __attribute__((vector_size(4 * SUMS)));
#if MOE_SCALES == 2
typedef scaled_vector Accumulators[TILES_W][TILES_X];
#else
typedef sums_vector Accumulators[TILES_W][TILES_X];
#endif

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
  return STAGE == 1 ? a.pair_of[position] / a.topk : position;
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

static __device__ inline void load_operands(const MfmaMoeArguments& a, Staged& staged, const TokenRows& tokens,
                                            const Work& work, int k_tile) {
  const long long column = (long long)k_tile * BLOCK_K;
  const unsigned char* const w = a.w + work.tile.expert * a.w_matrix_bytes;
  load_rows<X_UNITS, BLOCK_M>(
      staged.x, [&](int i, int) { return tokens.at[i]; }, column, a.k_bytes);
#if SHUFFLED
  load_shuffled(
      staged, w, [&](int row) { return weight_row(a, work.column, row); }, column, a.k_bytes);
#else
  load_rows<W_UNITS, BLOCK_N>(
      staged.w, [&](int, int row) { return w + weight_row(a, work.column, row) * a.k_bytes; }, column, a.k_bytes);
#endif
}

#if MOE_SCALES == 2
// Factors of the rows of x whose sums this lane holds.
struct TokenScales {
  const float* at[TILES_X];
};

static __device__ inline void add_block(const MfmaMoeArguments& a, Accumulators& sums,
                                        const sums_vector (&products)[TILES_W][TILES_X], const TokenScales& tokens,
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
#endif

static __device__ inline void multiply_all(const MfmaMoeArguments& a, Accumulators& sums, unsigned char* memory,
                                           const Work& work, int wave_m, int wave_n) {
  TokenRows tokens;
#pragma unroll
  for (int i = 0; i < X_UNITS; ++i)
    tokens.at[i] = a.x + x_row(a, work.tile, ((int)threadIdx.x + i * NUM_THREADS) / UNITS) * a.x_line_bytes;
#if MOE_SCALES == 2
  TokenScales scales;
#pragma unroll
  for (int j = 0; j < TILES_X; ++j)
    scales.at[j] = a.x_scales + x_row(a, work.tile, wave_m * WAVE_ROWS + j * MFMA_ROWS + (int)threadIdx.x % MFMA_ROWS) *
                                    a.x_scale_step;
#endif
  const int k_tiles = (int)((a.k_bytes + BLOCK_K - 1) / BLOCK_K);
  Staged next;
  load_operands(a, next, tokens, work, 0);
  __syncthreads();  // the tile of other work was read
  store_tile(next, memory);
  __syncthreads();
  int buffer = 0;
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
#if SHUFFLED
    const Staged now = next;
#else
    const Staged& now = next;
#endif
    unsigned char* const read = memory + buffer * BUFFER_BYTES;
    unsigned char* const write = NUM_BUFFERS == 2 ? memory + (buffer ^ 1) * BUFFER_BYTES : memory;
    const bool is_last = k_tile + 1 == k_tiles;
    if (!is_last) load_operands(a, next, tokens, work, k_tile + 1);
#if MOE_SCALES == 2
    sums_vector products[TILES_W][TILES_X] = {};
    multiply_tile(products, read, now, wave_m, wave_n);
    add_block(a, sums, products, scales, work, k_tile, wave_n);
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
}

// Stores four adjacent columns; `columns` of the result are a multiple of four.
static __device__ inline void store_results(output* to, const float (&values)[4]) {
  struct alignas(4 * sizeof(output)) Four {
    output value[4];
  } four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.value[i] = round_output(values[i]);
  *(Four*)to = four;
}

// What the epilogue multiplies the products of a row by: its scale, and the routing weight where that goes before the activation.
struct RowFactors {
  float scale, weight;
};

static __device__ inline void store_work(const MfmaMoeArguments& a, const Accumulators& sums, const Work& work,
                                         int wave_m, int wave_n) {
  const int lane = threadIdx.x % 64;
  RowFactors rows[TILES_X];
#pragma unroll
  for (int j = 0; j < TILES_X; ++j) {
    const int row = clamp_row(wave_m * WAVE_ROWS + j * MFMA_ROWS + lane % MFMA_ROWS, work.tile.count);
    rows[j].scale = MOE_SCALES == 1 ? a.x_scales[x_row(a, work.tile, row) * a.x_scale_step] : 1.0f;
    rows[j].weight = WEIGHTED ? a.weights[a.pair_of[work.tile.first + row]] : 1.0f;
  }
#pragma unroll
  for (int i = 0; i < RESULT_TILES; ++i) {
#pragma unroll
    for (int four = 0; four < SUMS / 4; ++four) {
      const int within = i * MFMA_ROWS + four * 4 * LANE_GROUPS + lane / MFMA_ROWS * 4;
      const int column = work.column + wave_n * WAVE_RESULTS + within;
      float scales[HALVES][4];
#if BIAS
      float biases[HALVES][4];
#endif
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int n = 0; n < 4; ++n)
          scales[half][n] =
              MOE_SCALES == 1 ? weight_scale(a, work, half * a.columns + clamp_row(column + n, a.columns), 0) : 1.0f;
#if BIAS
#pragma unroll
        for (int n = 0; n < 4; ++n)
          biases[half][n] = a.bias[(long long)work.tile.expert * (HALVES * a.columns) + half * a.columns +
                                   clamp_row(column + n, a.columns)];
#endif
      }
#pragma unroll
      for (int j = 0; j < TILES_X; ++j) {
        const int row = wave_m * WAVE_ROWS + j * MFMA_ROWS + lane % MFMA_ROWS;
        float values[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          float first = (float)sums[i][j][4 * four + n] * (rows[j].scale * scales[0][n]);
#if STAGE == 1
          float second =
              (float)sums[i + TILES_W - RESULT_TILES][j][4 * four + n] * (rows[j].scale * scales[HALVES - 1][n]);
#if BIAS
          first += biases[0][n];
          second += biases[HALVES - 1][n];
#endif
          values[n] = activate(first * rows[j].weight, second * rows[j].weight);
#else
          values[n] = first;
#endif
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
    Accumulators sums = {};
    multiply_all(a, sums, memory, work, wave_m, wave_n);
    store_work(a, sums, work, wave_m, wave_n);
  }
}
