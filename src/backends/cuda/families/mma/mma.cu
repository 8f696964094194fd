// y[m, n] = sum over k of x[m, k] * w[n, k] with mma.sync, sm_80 and up. See README.md.
// MmaConfig is what the host compiles it for.

#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/families/mma/mma_arguments.h"
#include "backends/cuda/families/mma/mma_epilogue.cuh"
#include "backends/gpu/device/numbers.cuh"

static __device__ constexpr gemmtune::cuda::MmaConfig config() { return CONFIG; }

enum : int {
  ATOM_BYTES = 128,  // bytes of k in a row of a stage: BLOCK_K
  NUM_THREADS = 32 * config().warps_m * config().warps_n,
  WARP_ROWS = config().block_m / config().warps_m,
  WARP_COLUMNS = config().block_n / config().warps_n,
  STAGE_BYTES = (config().block_m + config().block_n) * ATOM_BYTES,
  GROUP_M = 8,  // tiles along m in a rasterization group
};

static __device__ inline void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (types().element == Element::e4m3) {
    mma_e4m3(d, a[0], a[1], a[2], a[3], b0, b1);
  } else if constexpr (types().element == Element::bf16) {
    mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
  } else {
    mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
  }
}

// Copies the 16 bytes at `from` + `at`, if they are there; else writes zeros.
static __device__ inline void copy_there(unsigned to, const unsigned char* from, long long at, bool there) {
  copy_unit(to, there ? from + at : from, there ? 16 : 0);
}

// Offset in a stage of the 16 bytes `unit` of a row, swizzled so that ldmatrix has no bank conflicts.
static __device__ inline unsigned swizzled_offset(int row, int unit) {
  return (unsigned)(row * ATOM_BYTES + ((unit ^ (row & 7)) << 4));
}

// Copies ROWS rows from row `first` on, one k tile from byte `column` on; elements out of bounds become zero.
template <int ROWS>
static __device__ inline void load_rows(unsigned to, const unsigned char* from, long long row_bytes, int first,
                                        int rows, long long column, long long k_bytes) {
#pragma unroll
  for (int base = 0; base < ROWS * 8; base += NUM_THREADS) {
    const int i = base + (int)threadIdx.x;
    if (ROWS * 8 % NUM_THREADS == 0 || i < ROWS * 8) {
      const int row = i / 8;
      const int unit = i % 8;
      const long long at = column + unit * 16;
      copy_there(to + swizzled_offset(row, unit), from, (first + row) * row_bytes + at,
                 first + row < rows && at < k_bytes);
    }
  }
}

// Of a column-major operand with BLOCK rows a stage holds, for each k, the elements of its rows: groups of at most 64 rows, of 64 k each.
template <int BLOCK>
struct ColumnLayout {
  static constexpr int units = BLOCK < 64 ? BLOCK / 8 : 8;  // of 16 bytes, of a group's k
  static constexpr int group_bytes = 64 * units * 16;
};

// Offset in a stage of 8 rows of a k, `unit` the eighth of their number, swizzled so that ldmatrix has no bank conflicts: the 8 k that it
// reads are at 8 units of 128 bytes.
template <int BLOCK>
static __device__ inline unsigned column_offset(int k, int unit) {
  typedef ColumnLayout<BLOCK> Layout;
  const int within = (unit % Layout::units) ^ (k * Layout::units / 8 % Layout::units);
  return (unsigned)(unit / Layout::units * Layout::group_bytes + (k * Layout::units + within) * 16);
}

// Copies one k tile, from byte `column` of k on, of BLOCK rows of a column-major operand from row `first` on; elements out of bounds become
// zero. A line of memory is an element of k; there are whole units of 8 rows.
template <int BLOCK>
static __device__ inline void load_columns(unsigned to, const unsigned char* from, long long line_bytes, int first,
                                           int rows, long long column, long long k_bytes) {
#pragma unroll
  for (int base = 0; base < BLOCK * 8; base += NUM_THREADS) {
    const int i = base + (int)threadIdx.x;
    if (BLOCK * 8 % NUM_THREADS == 0 || i < BLOCK * 8) {
      const int k = i / (BLOCK / 8);
      const int unit = i % (BLOCK / 8);
      const long long line = column / 2 + k;
      const int row = first + unit * 8;
      copy_there(to + column_offset<BLOCK>(k, unit), from, line * line_bytes + row * 2LL,
                 row < rows && line * 2 < k_bytes);
    }
  }
}

struct Tile {
  int m, n;  // first row of x, of w
};

// Rasterization: consecutive tiles walk down GROUP_M tiles along m before they move on along n, so that tiles that run at the same time
// share operands in L2.
static __device__ inline Tile tile_at(const MmaArguments& a, int index) {
  const int first = index / (GROUP_M * a.tiles_n) * GROUP_M;
  const int within = index % (GROUP_M * a.tiles_n);
  const int height = a.tiles_m - first < GROUP_M ? a.tiles_m - first : GROUP_M;
  return {(first + within % height) * config().block_m, within / height * config().block_n};
}

static __device__ inline void load_stage(const MmaArguments& a, unsigned stage, const Tile& tile, int k_tile) {
  const long long column = (long long)k_tile * ATOM_BYTES;
  if constexpr (config().x_columns) {
    load_columns<config().block_m>(stage, x_of_block(a), a.x_line_bytes, tile.m, a.m, column, a.k_bytes);
  } else {
    load_rows<config().block_m>(stage, x_of_block(a), a.x_line_bytes, tile.m, a.m, column, a.k_bytes);
  }
  if constexpr (config().w_columns) {
    load_columns<config().block_n>(stage + config().block_m * ATOM_BYTES, w_of_block(a), a.w_line_bytes, tile.n, a.n,
                                   column, a.k_bytes);
  } else {
    load_rows<config().block_n>(stage + config().block_m * ATOM_BYTES, w_of_block(a), a.w_line_bytes, tile.n, a.n,
                                column, a.k_bytes);
  }
}

static __device__ inline void multiply_stage(float (&sums)[WARP_ROWS / 16][WARP_COLUMNS / 8][4], unsigned stage,
                                             int warp_m, int warp_n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k_block = 0; k_block < 4; ++k_block) {
    unsigned x[WARP_ROWS / 16][4];
    unsigned w[WARP_COLUMNS / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i) {
      const int row = warp_m * WARP_ROWS + i * 16;
      if constexpr (config().x_columns) {
        load_transposed(x[i], stage + column_offset<config().block_m>(k_block * 16 + lane / 16 * 8 + lane % 8,
                                                                      row / 8 + lane / 8 % 2));
      } else {
        load_matrices(x[i], stage + swizzled_offset(row + lane % 16, k_block * 2 + lane / 16));
      }
    }
#pragma unroll
    for (int j = 0; j < WARP_COLUMNS / 16; ++j) {
      const int row = warp_n * WARP_COLUMNS + j * 16;
      const unsigned weight = stage + config().block_m * ATOM_BYTES;
      if constexpr (config().w_columns) {
        load_transposed(w[j], weight + column_offset<config().block_n>(k_block * 16 + lane / 8 % 2 * 8 + lane % 8,
                                                                       row / 8 + lane / 16));
      } else {
        load_matrices(w[j], weight + swizzled_offset(row + lane % 8 + lane / 16 * 8, k_block * 2 + lane / 8 % 2));
      }
    }
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i) {
#pragma unroll
      for (int j = 0; j < WARP_COLUMNS / 8; ++j)
        multiply(sums[i][j], x[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Stores two adjacent columns of a row.
static __device__ inline void store(const MmaArguments& a, int row, int column, float first, float second,
                                    float scale) {
  if (row >= a.m || column >= a.n) return;
  if constexpr (config().split_k) {
    float* to = partials_of_block(a) + ((long long)blockIdx.y * a.m + row) * a.n + column;
    to[0] = first;
    if (column + 1 < a.n) to[1] = second;
  } else {
    struct alignas(2 * sizeof(output)) Pair {
      output first, second;
    };
    output* to = y_of_block(a) + row * a.ldy + column;
    if (column + 1 < a.n && (unsigned long long)to % sizeof(Pair) == 0) {
      *(Pair*)to = Pair{epilogue_value(a, first, scale, column), epilogue_value(a, second, scale, column + 1)};
    } else {
      to[0] = epilogue_value(a, first, scale, column);
      if (column + 1 < a.n) to[1] = epilogue_value(a, second, scale, column + 1);
    }
  }
}

// Of a column-major operand a block may have all registers: with fewer, some configs spill. 0 is no bound.
enum : int { MIN_BLOCKS = config().x_columns || config().w_columns ? 1 : 0 };

extern "C" __global__ void __launch_bounds__(NUM_THREADS, MIN_BLOCKS) mma(const MmaArguments a) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned pipeline = (unsigned)__cvta_generic_to_shared(memory);
  const Tile tile = tile_at(a, (int)blockIdx.x);
  const int k_tiles = (int)((a.k_bytes + ATOM_BYTES - 1) / ATOM_BYTES);
  const int begin = (int)((long long)k_tiles * blockIdx.y / a.split_k);
  const int end = (int)((long long)k_tiles * (blockIdx.y + 1) / a.split_k);
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % config().warps_m;
  const int warp_n = warp / config().warps_m;

#pragma unroll
  for (int i = 0; i < config().num_stages - 1; ++i) {
    if (begin + i < end) load_stage(a, pipeline + i * STAGE_BYTES, tile, begin + i);
    commit_copies();
  }
  float sums[WARP_ROWS / 16][WARP_COLUMNS / 8][4] = {};
  int stage = 0;
  int next_stage = config().num_stages - 1;
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    wait_for_copies<config().num_stages - 2>();
    // All threads see this stage, and all have read the previous one: it is filled next.
    __syncthreads();
    if (k_tile + config().num_stages - 1 < end)
      load_stage(a, pipeline + next_stage * STAGE_BYTES, tile, k_tile + config().num_stages - 1);
    commit_copies();
    multiply_stage(sums, pipeline + stage * STAGE_BYTES, warp_m, warp_n);
    if (++stage == config().num_stages) stage = 0;
    if (++next_stage == config().num_stages) next_stage = 0;
  }

  const float scale = config().split_k ? 1.0f : scale_of(a);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < WARP_ROWS / 16; ++i) {
#pragma unroll
    for (int j = 0; j < WARP_COLUMNS / 8; ++j) {
      const int row = tile.m + warp_m * WARP_ROWS + i * 16 + lane / 4;
      const int column = tile.n + warp_n * WARP_COLUMNS + j * 8 + lane % 4 * 2;
      store(a, row, column, sums[i][j][0], sums[i][j][1], scale);
      store(a, row + 8, column, sums[i][j][2], sums[i][j][3], scale);
    }
  }
}
