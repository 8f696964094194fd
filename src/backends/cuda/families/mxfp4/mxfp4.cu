// y[m, n] = sum over k of x[m, k] * w[n, k] with bf16 x and an MXFP4 weight, on Hopper. Other activations were made bf16 (mxfp4_activations.cu). The
// weight stays 4 bits wide up to the registers: A and B are swapped, so that it is wgmma's first operand, which may come from registers. TMA loads stages of the weight and of x; a consumer warp group reads
// its 64 rows of the weight from shared memory, makes bf16 of them and multiplies by x in shared memory. While the tensor core works on 64 of k the
// threads decode the next 64. The blocks of a cluster divide k.
//
// The host defines: WARPGROUPS (consumers: 1, 2, 3), TILES (of 64 rows of the weight, of a warp group: 1, 2), BLOCK_N (rows of x), K_ATOMS (BLOCK_K in
// units of 64 elements: 2, 4, 8), PACKED (1: the weight has the layout fragment64), WIDE (1: two warp groups of consumers take registers from the
// producer, which is a warp group then), MMA (1: the instructions of a warp, for few rows of x; 0: those of a warp group), SEND (1: blocks of a
// cluster send each other their partial sums), ROW_SCALES (1: rows of x have scales), ROWS_PER_Y (rows of x whose sums make a row of y: 2 where an fp16
// row became two of bf16), PERSISTENT (1: no split of k, and a block computes several tiles),
// L2_HINTS, OUTPUT, and WGMMA(d, a, b): d += 64 x BLOCK_N products of 16 of k.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/registers.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_arguments.h"
#include "backends/cuda/families/mxfp4/mxfp4_decode.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_epilogue.cuh"
#include "backends/cuda/families/mxfp4/mxfp4_producer.cuh"

static __device__ __forceinline__ void fence_accumulators(Accumulators& d) {
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) asm volatile("" : "+f"(d[r][i])::"memory");
  }
}

#if MMA
// Products of odd steps have sums of their own where a warp has one tile: an instruction then waits for the last but one before it.
#define SETS (TILES == 1 ? 2 : 1)
typedef float AccumulatorSets[SETS][TILES][BLOCK_N / 2];

// 128 of k. `x_own`: the lane's 16 bytes of eight rows of x, at the first and at the second 32 of k of an atom.
static __device__ __forceinline__ void multiply_half(AccumulatorSets& d, const OwnWeight& own,
                                                     const unsigned (&x_own)[2], unsigned w, int half,
                                                     const ScaleWords& words, bool large) {
  RawWeight raw;
  load_half(raw, own, w, half);
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    unsigned x[BLOCK_N / 8][4];
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j)
      load_matrices(x[j], w + W_BYTES + (unsigned)((half * 2 + block / 2) * X_ATOM_BYTES + j * 8 * ATOM_BYTES) +
                              x_own[block % 2]);
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const Factors factors = factors_of(words[r], block, large);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        unsigned fragment[4];
        decode(fragment, raw, r, block, step, factors, large);
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j)
          mma_bf16(reinterpret_cast<float(&)[4]>(d[step % SETS][r][4 * j]), fragment[0], fragment[1], fragment[2],
                   fragment[3], x[j][2 * step], x[j][2 * step + 1]);
      }
    }
  }
}
#endif

#if !MMA
#define FRAGMENTS (TOGETHER ? FRAGMENTS_PER_BATCH(TILES) : 1)  // of 16 of k that are multiplied together
#define BATCHES (FRAGMENTS == 1 ? 2 : 1)                       // under way while the next one is decoded

// COUNT times 16 of k of tile `r`, from `step` of those of a stage on, whose x is at `x_at`.
template <int COUNT>
static __device__ __forceinline__ void start_products(Accumulators& d, const unsigned (*fragments)[4], unsigned x_at,
                                                      int step, int r) {
  start_batch<COUNT>(x_at, step, X_ATOM_BYTES, [&](int i, unsigned long long b) { WGMMA(d[r], fragments[i], b); });
}
#endif

static __device__ __forceinline__ void mainloop(Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem,
                                                const ScaleRows& rows, ScaleWords& next, const BlockWork& work,
                                                PipelineState& state) {
  const int lane = threadIdx.x % 32;
  const OwnWeight own = own_weight();
  ScaleWords chunk;
#if MMA
  // A matrix is of eight rows of x and eight of k; in TMA's swizzle 16 bytes at c of row r are at c ^ (r % 8).
  const unsigned x_own[2] = {(unsigned)(lane % 8 * ATOM_BYTES + (lane / 8 ^ lane % 8) * 16),
                             (unsigned)(lane % 8 * ATOM_BYTES + ((4 + lane / 8) ^ lane % 8) * 16)};
  AccumulatorSets sets = {};
#else
  unsigned fragments[2 * BATCHES][FRAGMENTS][4];  // of the instructions under way, and of the next ones
  unsigned previous = 0;
#endif
  bool large = false;
  int column = work.begin * K_ATOMS * 2;  // of the scales
#pragma unroll 1
  for (int k_tile = work.begin; k_tile < work.end; ++k_tile) {
    const int unit = (k_tile - work.begin) * (K_ATOMS / 2) % 4;  // of 128 of k in the chunk
    if (unit == 0) {
#pragma unroll
      for (int i = 0; i < TILES * 2; ++i) chunk[i / 2][i % 2] = next[i / 2][i % 2];
      column += 16;
      if (k_tile + 8 / K_ATOMS < work.end) load_scales(next, rows, a, column);
      large = has_large_scales(chunk);
    }
    const unsigned w = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#if MMA
    const int left = (a.k_atoms - k_tile * K_ATOMS + 1) / 2;
#pragma unroll(K_ATOMS == 8 ? 1 : K_ATOMS / 2)
    for (int half = 0; half < (left < K_ATOMS / 2 ? left : K_ATOMS / 2); ++half) {
      ScaleWords words;
      exchange_scales(words, chunk, unit + half);
      // One branch, so that nothing else divides the instructions.
      if (large) {
        multiply_half(sets, own, x_own, w, half, words, true);
      } else {
        multiply_half(sets, own, x_own, w, half, words, false);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage);
#else
    const unsigned x_at = __shfl_sync(0xffffffffu, descriptor_word(w + W_BYTES), 0);  // in uniform registers
    const bool has_all = K_ATOMS == 2 || k_tile * K_ATOMS + 2 < a.k_atoms;
#pragma unroll
    for (int half = 0; half < K_ATOMS / 2; ++half) {
      if (half > 0 && !has_all) continue;
      ScaleWords words;
      exchange_scales(words, chunk, unit + half);
      RawWeight raw;
      load_half(raw, own, w, half);
      // Large scales are rare. A branch between instructions that are under way would make the compiler wait for each of them everywhere.
      if (large) {
        wgmma_wait<0>();
        if (half == 0 && k_tile != work.begin && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
#pragma unroll
        for (int i = 0; i < 8 * TILES; ++i) {
          const int r = i % TILES;
          decode(fragments[0][0], raw, r, i / TILES / 2, i / TILES % 2, factors_of(words[r], i / TILES / 2, true),
                 true);
          start_products<1>(d, &fragments[0][0], x_at, half * 8 + i / TILES, r);
          wgmma_wait<0>();
        }
        continue;
      }
#pragma unroll
      for (int batch = 0; batch < 8 / FRAGMENTS * TILES; ++batch) {
        const int r = batch % TILES;
        const int first = batch / TILES * FRAGMENTS;
#pragma unroll
        for (int i = first; i < first + FRAGMENTS; ++i)
          decode(fragments[batch % (2 * BATCHES)][i - first], raw, r, i / 2, i % 2, factors_of(words[r], i / 2, false),
                 false);
        start_products<FRAGMENTS>(d, fragments[batch % (2 * BATCHES)], x_at, half * 8 + first, r);
        // The threads decode while batches are under way. After the first ones of a stage the stage before is free.
#if BATCHES == 1
        wgmma_wait<1>();
#else
        wgmma_wait<2>();
#endif
        if (half == 0 && batch == BATCHES - 1 && k_tile != work.begin && lane == 0)
          barrier_arrive(smem.empty_barriers + 8u * previous);
      }
    }
    previous = (unsigned)state.stage;
#endif
    next_stage(state, a.num_stages);
  }
#if MMA
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) d[r][i] = SETS == 1 ? sets[0][r][i] : sets[0][r][i] + sets[SETS - 1][r][i];
  }
#else
  wgmma_wait<0>();
  fence_accumulators(d);
  if (PERSISTENT && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
#endif
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, 1)
    mxfp4(const __grid_constant__ Mxfp4Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent_launch) launch_dependents();
  const int rank = cluster_cta_rank();
  BlockWork work;
#if PERSISTENT
  work.tile = (int)blockIdx.x;
  work.n = work.tile % a.w_blocks * BLOCK_M;
  work.m = work.tile / a.w_blocks * BLOCK_N;
#else
  work.tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  work.n = cluster_index() * BLOCK_M;
  work.m = (int)blockIdx.y * BLOCK_N;
#endif
  work.begin = rank * a.k_tiles + (rank < a.extra_k_tiles ? rank : a.extra_k_tiles);
  work.end = work.begin + a.k_tiles + (rank < a.extra_k_tiles ? 1 : 0);
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.exchange = smem.pipeline + (unsigned)a.storage_bytes;
  smem.full_barriers = smem.exchange + (unsigned)a.exchange_bytes;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.partials_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  if (threadIdx.x == CONSUMER_THREADS) {
    if (!PACKED) prefetch_tensor_map(&a.w);
    prefetch_tensor_map(&a.x);
#pragma unroll 1
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CONSUMER_THREADS / 32);
    }
    if (SEND) barrier_init(smem.partials_barrier, 1);
    fence_barrier_init();
    fence_async_proxy();
    if (SEND && a.split_k > 1)
      barrier_arrive_expect_tx(smem.partials_barrier,
                               16u * (unsigned)(a.split_k * (first_unit(a, rank + 1) - first_unit(a, rank))));
  }
  __syncthreads();
  if (SEND && a.split_k > 1) cluster_arrive();
  if (threadIdx.x >= CONSUMER_THREADS) {
    give_registers<WIDE ? 40 : 0>();
    if (threadIdx.x < CONSUMER_THREADS + 32) {
      if (elect_one()) produce(a, smem, work);
    }
    __syncwarp();
    if (a.split_k > 1) {
      if (!SEND) {
        cluster_release();
        cluster_wait();
        cluster_release();
      }
      cluster_wait();
    }
    return;
  }
  take_registers<WIDE ? 232 : 0>();
  prefetch_scales(a, work);
  // Before this, nothing is written, and only a dependent launch reads: the weight and its scales.
  if (!a.dependent_launch) grid_dependency_wait();
  const int own_row =
      (int)threadIdx.x / 128 * TILES * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
  ScaleRows rows = scale_rows(a, work.n + own_row);
  ScaleWords scales;
  load_scales(scales, rows, a, work.begin * K_ATOMS * 2);
  if (a.dependent_launch) grid_dependency_wait();
  PipelineState state = {0, 0};
#if PERSISTENT
#pragma unroll 1
  for (;;) {
    BlockWork following = work;
    if (next_tile(a, following)) prefetch_scales(a, following);
    Accumulators d = {};
    mainloop(d, a, smem, rows, scales, work, state);
    const BlockWork done = work;
    const bool more = next_tile(a, work);
    if (more) {
      rows = scale_rows(a, work.n + own_row);
      load_scales(scales, rows, a, 0);
    }
    store_staged(d, a, smem, done);
    if (!more) return;
  }
#else
  Accumulators d = {};
  mainloop(d, a, smem, rows, scales, work, state);
  sync_consumers();  // all have read the pipeline
  store_partials(d, smem);
  if (a.split_k == 1) {
    sync_consumers();
    store_tile(a, smem, work);
    return;
  }
#if SEND
  sync_consumers();
  cluster_wait();  // the other blocks' barriers are initialized
  send_partials(a, smem, rank);
  barrier_wait_for_cluster(smem.partials_barrier, 0);
  reduce_and_store(a, smem, work, rank);
#else
  cluster_release();
  cluster_wait();
  reduce_and_store(a, smem, work, rank);
  // Shared memory must outlive its readers.
  cluster_release();
  cluster_wait();
#endif
#endif
}
