// y[m, n] = sum over k of x[m, k] * w[n, k] with bf16 x and a 4-bit weight, on Hopper. Other activations were made bf16 (mxfp4_activations.cu). The
// weight stays 4 bits wide up to the registers: A and B are swapped, so that it is wgmma's first operand, which may come from registers. TMA loads stages of the weight and of x; a consumer warp group reads
// its 64 rows of the weight from shared memory, makes bf16 of them and multiplies by x in shared memory. While the tensor core works on 64 of k the
// threads decode the next 64. The blocks of a cluster divide k.
// Mxfp4Config is what the host compiles it for. The host generates WGMMA(d, a, b): d += 64 x block_n products of 16 of k.

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
  for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
    for (int i = 0; i < config().block_n / 2; ++i) asm volatile("" : "+f"(d[r][i])::"memory");
  }
}

// Products of odd steps have sums of their own where a warp has one tile: an instruction then waits for the last but one before it.
enum : int { SETS = config().tiles == 1 ? 2 : 1 };
typedef float AccumulatorSets[SETS][config().tiles][config().block_n / 2];

static __device__ __forceinline__ void clear(Accumulators& d) {
#pragma unroll
  for (int i = 0; i < config().tiles * config().block_n / 2; ++i)
    d[i / (config().block_n / 2)][i % (config().block_n / 2)] = 0.0f;
}
// Adds the sums of a group, times its scale.
static __device__ __forceinline__ void add_group(Accumulators& d, const Accumulators& group, const SumScales& scales) {
#pragma unroll
  for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
    for (int i = 0; i < config().block_n / 2; ++i) d[r][i] = fmaf(group[r][i], scales[r][i % 4 / 2], d[r][i]);
  }
}
static __device__ __forceinline__ void multiply_by(Accumulators& d, const SumScales& scales) {
#pragma unroll
  for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
    for (int i = 0; i < config().block_n / 2; ++i) d[r][i] *= scales[r][i % 4 / 2];
  }
}

// 128 of k. `x_own`: the lane's 16 bytes of eight rows of x, at the first and at the second 32 of k of an atom.
static __device__ __forceinline__ void multiply_half(AccumulatorSets& d, const OwnWeight& own,
                                                     const unsigned (&x_own)[2], unsigned w, int half,
                                                     const ScaleWords& words, bool rare) {
  RawWeight raw;
  load_half(raw, own, w, half);
  AccumulatorSets group = {};
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    unsigned x[config().block_n / 8][4];
#pragma unroll
    for (int j = 0; j < config().block_n / 8; ++j)
      load_matrices(x[j], w + W_BYTES + (unsigned)((half * 2 + block / 2) * X_ATOM_BYTES + j * 8 * ATOM_BYTES) +
                              x_own[block % 2]);
#pragma unroll
    for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const Factors factors = factors_of(words[r], block * 2 + step, rare);
        unsigned fragment[4];
        decode(fragment, raw, r, block, step, factors, rare);
#pragma unroll
        for (int j = 0; j < config().block_n / 8; ++j)
          mma_bf16(reinterpret_cast<float(&)[4]>((adds_groups() ? group : d)[step % SETS][r][4 * j]), fragment[0],
                   fragment[1], fragment[2], fragment[3], x[j][2 * step], x[j][2 * step + 1]);
      }
    }
    if constexpr (adds_groups()) {
      if ((block * 2 + 2) % STEPS_PER_SCALE != 0) continue;
      SumScales scales;
      group_scales(scales, words, block * 2);
#pragma unroll
      for (int set = 0; set < SETS; ++set) {
        add_group(d[0], group[set], scales);
        clear(group[set]);
      }
    }
  }
}

enum : int {
  // Of 16 of k that are multiplied together, of one group.
  FRAGMENTS = !config().together ? 1
              : adds_groups() && STEPS_PER_SCALE < FRAGMENTS_PER_BATCH(config().tiles)
                  ? STEPS_PER_SCALE
                  : FRAGMENTS_PER_BATCH(config().tiles),
  BATCHES = FRAGMENTS == 1 ? 2 : 1,  // under way while the next one is decoded
  // Of a stage's 128 of k, whose words are loaded before the first is multiplied: few, so that they have registers.
  HALVES_TOGETHER = config().packed && config().tiles == 1 && config().block_n <= 64 && config().k_atoms == 4 ? 2 : 1,
};

// COUNT times 16 of k of tile `r`, from `step` of those of a stage on, whose x is at `x_at`. FIRST: the sums begin with them.
template <int COUNT, bool FIRST = false>
static __device__ __forceinline__ void start_products(Accumulators& d, const unsigned (*fragments)[4], unsigned x_at,
                                                      int step, int r) {
  if constexpr (FIRST) {
    start_batch<COUNT>(x_at, step, X_ATOM_BYTES, [&](int i, unsigned long long b) {
      if (i == 0) {
        WGMMA_FIRST(d[r], fragments[i], b);
      } else {
        WGMMA(d[r], fragments[i], b);
      }
    });
  } else {
    start_batch<COUNT>(x_at, step, X_ATOM_BYTES, [&](int i, unsigned long long b) { WGMMA(d[r], fragments[i], b); });
  }
}

// Waits for sums and multiplies them.
static __device__ __forceinline__ void finish_and_multiply(Accumulators& d, const SumScales& by) {
  wgmma_wait<0>();
  fence_accumulators(d);
  multiply_by(d, by);
}
// Waits for the sums of a group and adds them.
static __device__ __forceinline__ void finish_group(Accumulators& d, Accumulators& group, const SumScales& scales) {
  wgmma_wait<0>();
  fence_accumulators(group);
  add_group(d, group, scales);
  fence_accumulators(d);
}

// By the instructions of a warp.
static __device__ __forceinline__ void warp_mainloop(Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem,
                                                     const ScaleRows& rows, ScaleWords& next, const BlockWork& work,
                                                     int& stage, unsigned& phase) {
  const int lane = threadIdx.x % 32;
  const OwnWeight own = own_weight();
  ScaleWords chunk;
  // A matrix is of eight rows of x and eight of k; in TMA's swizzle 16 bytes at c of row r are at c ^ (r % 8).
  const unsigned x_own[2] = {(unsigned)(lane % 8 * ATOM_BYTES + (lane / 8 ^ lane % 8) * 16),
                             (unsigned)(lane % 8 * ATOM_BYTES + ((4 + lane / 8) ^ lane % 8) * 16)};
  AccumulatorSets sets = {};
  bool rare = false;
  int column = work.begin * STAGE_SCALE_BYTES;  // of the scales
#pragma unroll 1
  for (int k_tile = work.begin; k_tile < work.end; ++k_tile) {
    const int unit = (k_tile - work.begin) * (config().k_atoms / 2) % 4;  // of 128 of k in the chunk
    if (unit == 0) {
#pragma unroll
      for (int i = 0; i < config().tiles * 2 * WORDS; ++i)
        chunk[i / WORDS / 2][i / WORDS % 2][i % WORDS] = next[i / WORDS / 2][i / WORDS % 2][i % WORDS];
      column += 4 * SCALE_BYTES;
      if (k_tile + 8 / config().k_atoms < work.end) load_scales(next, rows, a, column);
      rare = has_rare_scales(chunk);
    }
    const unsigned w = smem.pipeline + (unsigned)stage * STAGE_BYTES;
    barrier_wait(smem.full_barriers + 8u * (unsigned)stage, phase);
    const int left = (a.k_atoms - k_tile * config().k_atoms + 1) / 2;
#pragma unroll(config().k_atoms == 8 ? 1 : config().k_atoms / 2)
    for (int half = 0; half < (left < config().k_atoms / 2 ? left : config().k_atoms / 2); ++half) {
      ScaleWords words;
      exchange_scales(words, chunk, unit + half);
      // One branch, so that nothing else divides the instructions.
      if (rare) {
        multiply_half(sets, own, x_own, w, half, words, true);
      } else {
        multiply_half(sets, own, x_own, w, half, words, false);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)stage);
    next_stage(stage, phase, a.num_stages);
  }
#pragma unroll
  for (int r = 0; r < config().tiles; ++r) {
#pragma unroll
    for (int i = 0; i < config().block_n / 2; ++i)
      d[r][i] = SETS == 1 ? sets[0][r][i] : sets[0][r][i] + sets[SETS - 1][r][i];
  }
}

// By those of a warp group.
static __device__ __forceinline__ void mainloop(Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem,
                                                const ScaleRows& rows, ScaleWords& next, const BlockWork& work,
                                                int& stage, unsigned& phase) {
  const int lane = threadIdx.x % 32;
  const OwnWeight own = own_weight();
  ScaleWords chunk;
  unsigned fragments[2 * BATCHES][FRAGMENTS][4];  // of the instructions under way, and of the next ones
  Accumulators group = {};                        // sums of the group under way, and its scales
  SumScales scales = {};                          // with RESCALED the units of sums
  if constexpr (config().rescaled) {
#pragma unroll
    for (int i = 0; i < config().tiles * 2; ++i) scales[i / 2][i % 2] = 1.0f;
  }
  unsigned previous = 0;
  bool rare = false;
  int column = work.begin * STAGE_SCALE_BYTES;  // of the scales
#pragma unroll 1
  for (int k_tile = work.begin; k_tile < work.end; ++k_tile) {
    const int unit = (k_tile - work.begin) * (config().k_atoms / 2) % 4;  // of 128 of k in the chunk
    if (unit == 0) {
#pragma unroll
      for (int i = 0; i < config().tiles * 2 * WORDS; ++i)
        chunk[i / WORDS / 2][i / WORDS % 2][i % WORDS] = next[i / WORDS / 2][i / WORDS % 2][i % WORDS];
      column += 4 * SCALE_BYTES;
      if (k_tile + 8 / config().k_atoms < work.end) load_scales(next, rows, a, column);
      rare = has_rare_scales(chunk);
    }
    const unsigned w = smem.pipeline + (unsigned)stage * STAGE_BYTES;
    barrier_wait(smem.full_barriers + 8u * (unsigned)stage, phase);
    const unsigned x_at = __shfl_sync(0xffffffffu, descriptor_word(w + W_BYTES), 0);  // in uniform registers
    const bool has_all = config().k_atoms == 2 || k_tile * config().k_atoms + 2 < a.k_atoms;
    RawWeight raws[HALVES_TOGETHER];
#pragma unroll
    for (int half = 0; half < config().k_atoms / 2; ++half) {
      if (half > 0 && !has_all) continue;
      ScaleWords words;
      exchange_scales(words, chunk, unit + half);
      if (half % HALVES_TOGETHER == 0) {
#pragma unroll
        for (int i = 0; i < HALVES_TOGETHER; ++i) load_half(raws[i], own, w, half + i);
      }
      const RawWeight& raw = raws[half % HALVES_TOGETHER];
      // Large scales are rare. A branch between instructions that are under way would make the compiler wait for each of them everywhere.
      if (rare) {
        wgmma_wait<0>();
        if (half == 0 && k_tile != work.begin && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
#pragma unroll
        for (int i = 0; i < 8 * config().tiles; ++i) {
          const int r = i % config().tiles;
          decode(fragments[0][0], raw, r, i / config().tiles / 2, i / config().tiles % 2,
                 factors_of(words[r], i / config().tiles, true), true);
          start_products<1>(d, &fragments[0][0], x_at, half * 8 + i / config().tiles, r);
          wgmma_wait<0>();
        }
        continue;
      }
      UnitFactors factors;
      SumScales by;
      if constexpr (config().rescaled) begin_units(factors, by, scales, words);
#pragma unroll
      for (int batch = 0; batch < 8 / FRAGMENTS * config().tiles; ++batch) {
        const int r = batch % config().tiles;
        const int first = batch / config().tiles * FRAGMENTS;
#pragma unroll
        for (int i = first; i < first + FRAGMENTS; ++i)
          decode(fragments[batch % (2 * BATCHES)][i - first], raw, r, i / 2, i % 2,
                 config().rescaled ? factors[r] : factors_of(words[r], i, false), false);
        const auto& decoded = fragments[batch % (2 * BATCHES)];
        if constexpr (config().rescaled) {
          if (batch == 0) finish_and_multiply(d, by);
          start_products<FRAGMENTS>(d, decoded, x_at, half * 8 + first, r);
        } else if constexpr (adds_groups()) {
          const bool begins = first % STEPS_PER_SCALE == 0;
          if (begins && r == 0) {
            finish_group(d, group, scales);  // the one before
            group_scales(scales, words, first);
          }
          if (begins) {
            start_products<FRAGMENTS, true>(group, decoded, x_at, half * 8 + first, r);
          } else {
            start_products<FRAGMENTS>(group, decoded, x_at, half * 8 + first, r);
          }
        } else {
          start_products<FRAGMENTS>(d, decoded, x_at, half * 8 + first, r);
        }
        // The threads decode while batches are under way. After the first ones of a stage the stage before is free.
        wgmma_wait<BATCHES == 1 ? 1 : 2>();
        if (half == 0 && batch == BATCHES - 1 && k_tile != work.begin && lane == 0)
          barrier_arrive(smem.empty_barriers + 8u * previous);
      }
    }
    previous = (unsigned)stage;
    next_stage(stage, phase, a.num_stages);
  }
  if constexpr (config().rescaled) {
    finish_and_multiply(d, scales);
  } else if constexpr (adds_groups()) {
    finish_group(d, group, scales);
  } else {
    wgmma_wait<0>();
    fence_accumulators(d);
  }
  if (config().persistent && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
}

static __device__ __forceinline__ void multiply(Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem,
                                                const ScaleRows& rows, ScaleWords& next, const BlockWork& work,
                                                int& stage, unsigned& phase) {
  if constexpr (config().mma) {
    warp_mainloop(d, a, smem, rows, next, work, stage, phase);
  } else {
    mainloop(d, a, smem, rows, next, work, stage, phase);
  }
  if constexpr (is_int4()) {
    SumScales scales;
#pragma unroll
    for (int i = 0; i < config().tiles * 2; ++i) scales[i / 2][i % 2] = INT4_UNIT;
    if constexpr (config().packed) multiply_by(d, scales);
    if constexpr (config().group == 0) {
      row_scales(scales, rows);
      multiply_by(d, scales);
    }
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, 1)
    mxfp4(const __grid_constant__ Mxfp4Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent_launch) launch_dependents();
  const int rank = cluster_cta_rank();
  BlockWork work;
  if constexpr (config().persistent) {
    work.tile = (int)blockIdx.x;
  } else {
    work.tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    work.n = cluster_index() * BLOCK_M;
    work.m = (int)blockIdx.y * config().block_n;
  }
  work.begin = rank * a.k_tiles + (rank < a.extra_k_tiles ? rank : a.extra_k_tiles);
  work.end = work.begin + a.k_tiles + (rank < a.extra_k_tiles ? 1 : 0);
  work.tail_left = -1;
  if constexpr (config().persistent) {
    if (config().stream != 0 && a.whole_tiles == 0) {
      next_piece(a, work);
    } else {
      place_tile(a, work);
    }
  }
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.exchange = smem.pipeline + (unsigned)a.storage_bytes;
  smem.full_barriers = smem.exchange + (unsigned)a.exchange_bytes;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.partials_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  if (threadIdx.x == CONSUMER_THREADS) {
    if (!config().packed) prefetch_tensor_map(&a.w);
    prefetch_tensor_map(&a.x);
#pragma unroll 1
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CONSUMER_THREADS / 32);
    }
    if (config().send || config().stream != 0) barrier_init(smem.partials_barrier, 1);
    fence_barrier_init();
    fence_async_proxy();
    if (config().send && a.split_k > 1)
      barrier_arrive_expect_tx(smem.partials_barrier,
                               16u * (unsigned)(a.split_k * (first_unit(a, rank + 1) - first_unit(a, rank))));
  }
  __syncthreads();
  if (config().send && a.split_k > 1) cluster_arrive();
  if (threadIdx.x >= CONSUMER_THREADS) {
    if constexpr (config().wide) give_registers<40>();
    if (threadIdx.x < CONSUMER_THREADS + 32) {
      if (elect_one()) produce(a, smem, work);
    } else if (config().stream != 0 && threadIdx.x < CONSUMER_THREADS + 64) {
      grid_dependency_wait();
      clear_arrived(a, smem);
    }
    __syncwarp();
    if (a.split_k > 1) {
      if (!config().send) {
        cluster_release();
        cluster_wait();
        cluster_release();
      }
      cluster_wait();
    }
    return;
  }
  if constexpr (config().wide) take_registers<232>();
  prefetch_scales(a, work);
  // Before this, nothing is written, and only a dependent launch reads: the weight and its scales.
  if (!a.dependent_launch) grid_dependency_wait();
  const int own_row =
      (int)threadIdx.x / 128 * config().tiles * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
  ScaleRows rows = scale_rows(a, work.n + own_row);
  ScaleWords scales;
  load_scales(scales, rows, a, work.begin * STAGE_SCALE_BYTES);
  if (a.dependent_launch) grid_dependency_wait();
  int stage = 0;
  unsigned phase = 0;
  if constexpr (config().persistent) {
#pragma unroll 1
    for (;;) {
      BlockWork following = work;
      if (next_tile(a, following)) prefetch_scales(a, following);
      Accumulators d = {};
      multiply(d, a, smem, rows, scales, work, stage, phase);
      const BlockWork done = work;
      const bool more = next_tile(a, work);
      if (more) {
        rows = scale_rows(a, work.n + own_row);
        load_scales(scales, rows, a, config().stream != 0 ? work.begin * STAGE_SCALE_BYTES : 0);
      }
      if (config().stream != 0 && done.end < a.k_tiles) {
        store_piece(d, a, smem);
      } else {
        if (config().stream != 0 && done.begin > 0) add_piece(d, a, smem);
        store_staged(d, a, smem, done);
      }
      if (!more) return;
    }
  } else {
    Accumulators d = {};
    multiply(d, a, smem, rows, scales, work, stage, phase);
    sync_consumers();  // all have read the pipeline
    store_partials(d, smem);
    if (a.split_k == 1) {
      sync_consumers();
      store_tile(a, smem, work);
      return;
    }
    if constexpr (config().send) {
      sync_consumers();
      cluster_wait();  // the other blocks' barriers are initialized
      send_partials(a, smem, rank);
      barrier_wait_for_cluster(smem.partials_barrier, 0);
      reduce_sent(a, smem, work, rank);
    } else {
      cluster_release();
      cluster_wait();
      reduce_remote(a, smem, work, rank);
      // Shared memory must outlive its readers.
      cluster_release();
      cluster_wait();
    }
  }
}
