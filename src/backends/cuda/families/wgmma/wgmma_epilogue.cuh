// Epilogue of whole tiles: scale, bias, conversion, and the store through shared memory and TMA.
#pragma once

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_producer.cuh"
#include "backends/gpu/device/numbers.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

static __device__ inline void warpgroup_sync(int group) { sync_named<128>(warpgroup_barrier + group); }

static __device__ inline float bias_at(const WgmmaArguments& a, int n) {
  if constexpr (!config().bias) return 0.0f;
  return n < a.n ? read_output(a.bias[n]) : 0.0f;
}

static __device__ __forceinline__ output* y_at(const WgmmaArguments& a, int batch) {
  if constexpr (types().batched)
    return a.y + batch * a.y_batch_step;
  else
    return a.y;
}

// An element of y before the conversion to its type.
static __device__ __forceinline__ float epilogue_value(float sum, float scale, float bias) {
  if constexpr (types().scales == Scales::matrix) sum *= scale;
  if constexpr (config().bias) sum += bias;
  return sum;
}

enum : int {
  STAGING_BUFFERS = config().staging_buffers,
  WHOLE_STAGING = config().whole_staging,
  BOX_BYTES = 128,  // of a row of y; stored with the 128-byte swizzle
  BOX_COLUMNS = BOX_BYTES / (int)sizeof(output),
  BOXES_PER_ROW = 64 / BOX_COLUMNS,
  // With SWAP_AB rows of D are columns of y: a warp group transposes 64 of them, STAGED_ROWS rows of y at a time.
  STAGED_ROWS = BLOCK_N % 32 == 0 ? 32 : 16,
  STAGED_TILES = BLOCK_N / STAGED_ROWS,  // of 64 rows of D
  FULL_BOXES = BLOCK_N / BOX_COLUMNS,
  TAIL_COLUMNS = BLOCK_N % BOX_COLUMNS,
  STAGING_BYTES = SWAP_AB ? STAGED_ROWS * BOXES_PER_ROW * BOX_BYTES : 16 * BOX_BYTES,
  WHOLE_STAGING_STEP = SINGLE_TILE ? STAGE_BYTES : STAGING_BYTES,  // from buffer to buffer with whole_staging
};

// Offset of element (row, column) in a buffer with rows of `columns` elements; rows of 128 bytes are swizzled.
template <int columns>
static __device__ __forceinline__ unsigned staging_offset(int row, int column) {
  constexpr int bytes = columns * (int)sizeof(output);
  const int at = column * (int)sizeof(output);
  if (bytes != BOX_BYTES) return (unsigned)(row * bytes + at);
  return (unsigned)(row * BOX_BYTES + (((at / 16) ^ (row % 8)) * 16 + at % 16));
}

// `offset` advanced by a multiple of 8 columns; `offset` has none of the bits of the advance.
template <int columns>
static __device__ __forceinline__ unsigned staging_advance(unsigned offset, int advance) {
  const unsigned bytes = (unsigned)(advance * (int)sizeof(output));
  return columns * (int)sizeof(output) == BOX_BYTES ? offset ^ bytes : offset + bytes;
}

static __device__ __forceinline__ output load_shared(unsigned from) {
  if constexpr (types().output == Element::f32) {
    return (output)load_shared_float(from);
  } else {
    unsigned short bits;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(bits) : "r"(from) : "memory");
    return (output)bits;
  }
}

// Staging buffers of a warp (SWAP_AB: of a warp group) for TMA stores: staging_buffers; of two one is filled while TMA reads the other. With
// whole_staging there are enough for the tile: they are filled one after the other and stored together. With single_tile they lie in the pipeline's
// stages, which are free then, at the own rows of A, which no other warp group reads.
struct StagingBuffers {
  unsigned next;
  int stride;  // to the next buffer
};

static __device__ __forceinline__ unsigned next_buffer(StagingBuffers& buffers) {
  const unsigned buffer = buffers.next;
  buffers.next += (unsigned)buffers.stride;
  if (!WHOLE_STAGING) buffers.stride = -buffers.stride;
  return buffer;
}

static __device__ __forceinline__ StagingBuffers staging_buffers(const SharedLayout& smem) {
  constexpr int stride = STAGING_BUFFERS == 1 ? 0 : STAGING_BYTES;
  if constexpr (config().swap_ab) {
    const unsigned group = threadIdx.x / 128;
    if (SINGLE_TILE) return {smem.pipeline + group * WARPGROUP_M * ATOM_BYTES, STAGE_BYTES};
    return {smem.staging + group * STAGING_BUFFERS * STAGING_BYTES, stride};
  } else {
    const unsigned row = threadIdx.x / 128 * WARPGROUP_M + threadIdx.x % 128 / 32 * 16;
    if (SINGLE_TILE) return {smem.pipeline + row * ATOM_BYTES, STAGE_BYTES};
    return {smem.staging + threadIdx.x / 32 * STAGING_BUFFERS * STAGING_BYTES, stride};
  }
}

// ---- SWAP_AB: D is transposed

// Writes 64 rows x STAGED_ROWS columns of D to a buffer, transposed. `d`: the thread's accumulators.
static __device__ __forceinline__ void stage_transposed(const float* d, unsigned to, float scale, float low,
                                                        float high) {
  const int lane = threadIdx.x % 32;
  const int warp = (int)(threadIdx.x % 128) / 32;
#pragma unroll
  for (int j = 0; j < STAGED_ROWS / 8; j += 2) {
    const float* v = d + j * 4;
    if constexpr (types().output == Element::f32) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int column = warp * 16 + lane / 4 + i / 2 % 2 * 8;
        const int m = (j + i / 4) * 8 + lane % 4 * 2 + i % 2;
        store_shared_float(to + (unsigned)(column / BOX_COLUMNS * STAGED_ROWS * BOX_BYTES) +
                               staging_offset<BOX_COLUMNS>(m, column % BOX_COLUMNS),
                           epilogue_value(v[i], scale, i / 2 % 2 ? high : low));
      }
    } else {
      unsigned matrices[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float bias = i % 2 ? high : low;
        matrices[i] = round_pair(epilogue_value(v[i * 2], scale, bias), epilogue_value(v[i * 2 + 1], scale, bias));
      }
      store_transposed(to + staging_offset<BOX_COLUMNS>((j + lane / 16) * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8),
                       matrices[0], matrices[1], matrices[2], matrices[3]);
    }
  }
}

// Stores a buffer, whose first element is the batch's y[m, n]: through TMA, or element by element if y is not aligned.
static __device__ __forceinline__ void store_transposed_buffer(const WgmmaArguments& a, unsigned from, int m, int n,
                                                               int batch) {
  const int thread = threadIdx.x % 128;
  if (a.use_tma_store) {
    if (thread != 0 || m >= a.m) return;
#pragma unroll
    for (int half = 0; half < BOXES_PER_ROW; ++half) {
      if (n + half * BOX_COLUMNS < a.n)
        tma_store(&a.y_map, from + (unsigned)(half * STAGED_ROWS * BOX_BYTES), n + half * BOX_COLUMNS, m, batch);
    }
  } else {
#pragma unroll 1
    for (int item = thread; item < STAGED_ROWS * 64; item += 128) {
      const int local = item / 64;
      const int column = item % 64;
      if (m + local < a.m && n + column < a.n)
        y_at(a, batch)[(long long)(m + local) * a.ldy + n + column] =
            load_shared(from + (unsigned)(column / BOX_COLUMNS * STAGED_ROWS * BOX_BYTES) +
                        staging_offset<BOX_COLUMNS>(local, column % BOX_COLUMNS));
    }
  }
}

static __device__ __forceinline__ void store_transposed_tile(const Accumulators& d, const WgmmaArguments& a,
                                                             StagingBuffers& buffers, const Tile& tile, int row,
                                                             float scale) {
  const int thread = threadIdx.x % 128;
  const int group = threadIdx.x / 128;
  const unsigned first_buffer = buffers.next;
  if (WHOLE_STAGING && !SINGLE_TILE) {
    if (thread == 0) tma_store_wait<0>();
    warpgroup_sync(group);
  }
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
    const int n = tile.a + row + r * 64;
    const float low = bias_at(a, n + thread / 32 * 16 + thread % 32 / 4);
    const float high = bias_at(a, n + thread / 32 * 16 + thread % 32 / 4 + 8);
#pragma unroll
    for (int first = 0; first < BLOCK_N; first += STAGED_ROWS) {
      const unsigned to = next_buffer(buffers);
      if (!WHOLE_STAGING) {
        if (thread == 0) tma_store_wait<STAGING_BUFFERS - 1>();
        warpgroup_sync(group);
      }
      stage_transposed(&d[r][first / 2], to, scale, low, high);
      if (WHOLE_STAGING) continue;
      fence_async_proxy();
      warpgroup_sync(group);
      store_transposed_buffer(a, to, tile.b + first, n, tile.batch);
      if (thread == 0) tma_store_commit();
    }
  }
  if (!WHOLE_STAGING) return;
  fence_async_proxy();
  warpgroup_sync(group);
  if (!SINGLE_TILE) buffers.next = first_buffer;
#pragma unroll
  for (int i = 0; i < MMA_TILES * STAGED_TILES; ++i)
    store_transposed_buffer(a, first_buffer + (unsigned)(i * WHOLE_STAGING_STEP),
                            tile.b + i % STAGED_TILES * STAGED_ROWS, tile.a + row + i / STAGED_TILES * 64, tile.batch);
  if (thread == 0) tma_store_commit();
}

// ---- D as it is: each warp stores its own 16 rows of y, without synchronization between warps

// Writes `columns` columns of the warp's 16 rows to a buffer; the first is y's column n. `d`: the lane's accumulators.
template <int columns>
static __device__ __forceinline__ void stage_output(const float* d, const WgmmaArguments& a, unsigned to, int n,
                                                    float scale) {
  const int lane = threadIdx.x % 32;
  constexpr bool floats = types().output == Element::f32;
  const unsigned own = floats ? to + staging_offset<columns>(lane / 4, lane % 4 * 2)
                              : to + staging_offset<columns>(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int j = 0; j < columns / 8; j += 2) {
    const float* v = d + j * 4;
    const int pair = n + j * 8 + lane % 4 * 2;
    const float bias[4] = {bias_at(a, pair), bias_at(a, pair + 1), bias_at(a, pair + 8), bias_at(a, pair + 9)};
    if constexpr (types().output == Element::f32) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store_shared_floats(
            staging_advance<columns>(own, (j + i / 2) * 8) + (unsigned)(i % 2 * 8 * columns * (int)sizeof(output)),
            epilogue_value(v[i * 2], scale, bias[i / 2 * 2]), epilogue_value(v[i * 2 + 1], scale, bias[i / 2 * 2 + 1]));
    } else {
      unsigned matrices[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        matrices[i] = round_pair(epilogue_value(v[i * 2], scale, bias[i / 2 * 2]),
                                 epilogue_value(v[i * 2 + 1], scale, bias[i / 2 * 2 + 1]));
      store_matrices(staging_advance<columns>(own, j * 8), matrices[0], matrices[1], matrices[2], matrices[3]);
    }
    if constexpr (config().bias)
      asm volatile("" ::: "memory");  // otherwise the compiler reads all of the bias first and runs out of registers
  }
}

// Stores a buffer, whose first element is the batch's y[m, n]: through TMA, or element by element if y is not aligned.
template <int columns>
static __device__ __forceinline__ void store_buffer(const WgmmaArguments& a, unsigned from, int m, int n, int batch) {
  const int lane = threadIdx.x % 32;
  if (a.use_tma_store) {
    if (lane == 0 && m < a.m && n < a.n)
      tma_store(columns == BOX_COLUMNS ? &a.y_map : &a.y_tail_map, from, n, m, batch);
  } else {
#pragma unroll 1
    for (int item = lane; item < 16 * columns; item += 32) {
      const int local = item / columns;
      const int column = item % columns;
      if (m + local < a.m && n + column < a.n)
        y_at(a, batch)[(long long)(m + local) * a.ldy + n + column] =
            load_shared(from + staging_offset<columns>(local, column));
    }
  }
}

template <int columns>
static __device__ __forceinline__ void store_columns(const float* d, const WgmmaArguments& a, StagingBuffers& buffers,
                                                     int m, int n, int batch, float scale) {
  const unsigned to = next_buffer(buffers);
  if (!WHOLE_STAGING) {
    if (threadIdx.x % 32 == 0) tma_store_wait<STAGING_BUFFERS - 1>();
    __syncwarp();
  }
  stage_output<columns>(d, a, to, n, scale);
  if (WHOLE_STAGING) return;
  fence_async_proxy();
  __syncwarp();
  store_buffer<columns>(a, to, m, n, batch);
  if (threadIdx.x % 32 == 0) tma_store_commit();
}

static __device__ __forceinline__ void store_own_rows(const Accumulators& d, const WgmmaArguments& a,
                                                      StagingBuffers& buffers, const Tile& tile, int row, float scale) {
  const int m = tile.a + row + (int)(threadIdx.x % 128) / 32 * 16;
  unsigned buffer = buffers.next;
  if (WHOLE_STAGING && !SINGLE_TILE) {
    if (threadIdx.x % 32 == 0) tma_store_wait<0>();
    __syncwarp();
  }
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < FULL_BOXES; ++i)
      store_columns<BOX_COLUMNS>(&d[r][i * BOX_COLUMNS / 2], a, buffers, m + r * 64, tile.b + i * BOX_COLUMNS,
                                 tile.batch, scale);
    if constexpr (TAIL_COLUMNS > 0)
      store_columns<TAIL_COLUMNS>(&d[r][(BLOCK_N - TAIL_COLUMNS) / 2], a, buffers, m + r * 64,
                                  tile.b + BLOCK_N - TAIL_COLUMNS, tile.batch, scale);
  }
  if (!WHOLE_STAGING) return;
  fence_async_proxy();
  __syncwarp();
  if (!SINGLE_TILE) buffers.next = buffer;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < FULL_BOXES; ++i, buffer += WHOLE_STAGING_STEP)
      store_buffer<BOX_COLUMNS>(a, buffer, m + r * 64, tile.b + i * BOX_COLUMNS, tile.batch);
    if constexpr (TAIL_COLUMNS > 0) {
      store_buffer<TAIL_COLUMNS>(a, buffer, m + r * 64, tile.b + BLOCK_N - TAIL_COLUMNS, tile.batch);
      buffer += WHOLE_STAGING_STEP;
    }
  }
  if (threadIdx.x % 32 == 0) tma_store_commit();
}

static __device__ __forceinline__ void store_tile(const Accumulators& d, const WgmmaArguments& a,
                                                  StagingBuffers& buffers, const Tile& tile, int row, float scale) {
  if constexpr (config().swap_ab)
    store_transposed_tile(d, a, buffers, tile, row, scale);
  else
    store_own_rows(d, a, buffers, tile, row, scale);
}
