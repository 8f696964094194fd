// y[m, n] = sum over k of x[m, k] * w[n, k] for few rows of x, on Hopper. TMA loads the weight, which is read once, into a multistage
// pipeline in shared memory. A and B are swapped: the weight is wgmma's first operand (64 rows for each instruction) and x, padded to
// BLOCK_N rows, the second. The blocks of a cluster divide k; each block reduces, in a fixed order, the partial sums of its share of the
// rows.
// SkinnyConfig is what the host compiles it for.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/families/skinny/skinny_arguments.h"
#include "backends/cuda/families/skinny/skinny_block_scales.cuh"
#include "backends/cuda/families/skinny/skinny_epilogue.cuh"
#include "backends/cuda/families/skinny/skinny_producer.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

// The bits of an accumulator.
#define FLOAT_SUM(d) "+f"(d)
#define INT_SUM(d) "+r"((int&)d)
#define WGMMA_8(SUM, shape_k, options)                                                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k" shape_k " {%0, %1, %2, %3}, %4, %5, 1" options ";" \
               : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3])                                             \
               : "l"(a), "l"(b))
#define WGMMA_16(SUM, shape_k, options)                                                                              \
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k" shape_k " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1" options \
               ";"                                                                                                   \
               : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3]), SUM(d[4]), SUM(d[5]), SUM(d[6]), SUM(d[7])              \
               : "l"(a), "l"(b))
#define WGMMA_32(SUM, shape_k, options)                                                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k" shape_k                                                       \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1" options ";"   \
               : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3]), SUM(d[4]), SUM(d[5]), SUM(d[6]), SUM(d[7]), SUM(d[8]), \
                 SUM(d[9]), SUM(d[10]), SUM(d[11]), SUM(d[12]), SUM(d[13]), SUM(d[14]), SUM(d[15])                  \
               : "l"(a), "l"(b))
#define WGMMA_64(SUM, shape_k, options)                                                                                                                                              \
  asm volatile(                                                                                                                                                                      \
      "wgmma.mma_async.sync.aligned.m64n64k" shape_k                                                                                                                                 \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1" options \
      ";"                                                                                                                                                                            \
      : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3]), SUM(d[4]), SUM(d[5]), SUM(d[6]), SUM(d[7]), SUM(d[8]), SUM(d[9]),                                                                \
        SUM(d[10]), SUM(d[11]), SUM(d[12]), SUM(d[13]), SUM(d[14]), SUM(d[15]), SUM(d[16]), SUM(d[17]), SUM(d[18]),                                                                  \
        SUM(d[19]), SUM(d[20]), SUM(d[21]), SUM(d[22]), SUM(d[23]), SUM(d[24]), SUM(d[25]), SUM(d[26]), SUM(d[27]),                                                                  \
        SUM(d[28]), SUM(d[29]), SUM(d[30]), SUM(d[31])                                                                                                                               \
      : "l"(a), "l"(b))
#define WGMMA_OF(width)                                           \
  if constexpr (types().element == Element::int8)                 \
    WGMMA_##width(INT_SUM, "32.s32.s8.s8", "");                   \
  else if constexpr (types().element == Element::e4m3)            \
    WGMMA_##width(FLOAT_SUM, "32.f32.e4m3.e4m3", ", 1, 1");       \
  else if constexpr (types().element == Element::bf16)            \
    WGMMA_##width(FLOAT_SUM, "16.f32.bf16.bf16", ", 1, 1, 0, 0"); \
  else                                                            \
    WGMMA_##width(FLOAT_SUM, "16.f32.f16.f16", ", 1, 1, 0, 0")

// One instruction: d += 64 x N products over 32 bytes of k. What follows the accumulation's switch: factors, which integers do not have, and the orders of
// elements of two bytes.
template <int HALF_N>
static __device__ __forceinline__ void wgmma(float (&d)[HALF_N], unsigned long long a, unsigned long long b) {
  if constexpr (HALF_N == 4) {
    WGMMA_OF(8);
  } else if constexpr (HALF_N == 8) {
    WGMMA_OF(16);
  } else if constexpr (HALF_N == 16) {
    WGMMA_OF(32);
  } else {
    static_assert(HALF_N == 32, "no such instruction");
    WGMMA_OF(64);
  }
}

static __device__ __forceinline__ void fence_sum(float& sum) {
  if constexpr (types().element == Element::int8)
    asm volatile("" : INT_SUM(sum)::"memory");
  else
    asm volatile("" : FLOAT_SUM(sum)::"memory");
}
// No use of the accumulators may move across the wait for their instructions: the compiler would then wait after each one.
static __device__ inline void fence_accumulators(Accumulators& d) {
#pragma unroll
  for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) fence_sum(d[r][i]);
  }
}

// K atoms whose scales of blocks are loaded before their stage is there. A thread has those of BLOCK_N / 4 rows of x: of 64 rows they would take
// too many registers.
enum : int { SCALES_AHEAD = BLOCK_N < 64 ? config().k_atoms : 1 };

// The tensor core keeps about 13 bits below the largest addend of an fp8 instruction, so that a long sum of one sign is biased. Here it
// accumulates one k atom (128 elements) at a time; d adds these partial sums in float32. The wait for the products of an atom is hidden by
// the pipeline: loading an atom takes longer.
static __device__ inline void promoted_mainloop(Accumulators& d, const SkinnyArguments& a, const SharedLayout& smem,
                                                const ScaledRows& rows, int begin, int end) {
  BlockScalesAt at;
  if constexpr (types().scales == Scales::blocks) at = block_scales_at(rows);
  int stage = 0;
  unsigned phase = 0;
  const bool leader = threadIdx.x % 32 == 0;
#pragma unroll 1
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    const unsigned w = smem.pipeline + (unsigned)stage * STAGE_BYTES;
    BlockScales scales[SCALES_AHEAD];
    if constexpr (types().scales == Scales::blocks) {
#pragma unroll
      for (int i = 0; i < SCALES_AHEAD; ++i) scales[i] = block_scales(at, k_tile * config().k_atoms + i);
    }
    barrier_wait(smem.full_barriers + 8u * (unsigned)stage, phase);
#pragma unroll
    for (int i = 0; i < config().k_atoms; ++i) {
      const unsigned long long x_at =
          matrix_descriptor(w + config().k_atoms * W_ATOM_BYTES + (unsigned)i * X_ATOM_BYTES);
      Accumulators partials = {};
      fence_accumulators(partials);
      wgmma_fence();
#pragma unroll
      for (int k_block = 0; k_block < 4; ++k_block) {
#pragma unroll
        for (int r = 0; r < config().block_m / 64; ++r)
          wgmma(partials[r], matrix_descriptor(w + (unsigned)weight_offset(r, i)) + 2u * k_block, x_at + 2u * k_block);
      }
      wgmma_commit();
      if (types().scales == Scales::blocks && i >= SCALES_AHEAD)
        scales[i % SCALES_AHEAD] = block_scales(at, k_tile * config().k_atoms + i);
      wgmma_wait<0>();
      if (i == config().k_atoms - 1 && leader) barrier_arrive(smem.empty_barriers + 8u * (unsigned)stage);
      fence_accumulators(partials);
#pragma unroll
      for (int r = 0; r < config().block_m / 64; ++r) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) {
          if constexpr (types().scales == Scales::blocks)
            d[r][j] = fmaf(partials[r][j], block_scale(scales[i % SCALES_AHEAD], r, j), d[r][j]);
          else
            d[r][j] += partials[r][j];
        }
      }
    }
    next_stage(stage, phase, a.num_stages);
  }
}

static __device__ inline void mainloop(Accumulators& d, const SkinnyArguments& a, const SharedLayout& smem, int begin,
                                       int end) {
  PipelineState state = {0, 0};
  unsigned previous = 0;
  const bool leader = threadIdx.x % 32 == 0;
#pragma unroll 1
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    const unsigned w = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < config().k_atoms; ++i) {
      const unsigned long long x_at =
          matrix_descriptor(w + config().k_atoms * W_ATOM_BYTES + (unsigned)i * X_ATOM_BYTES);
#pragma unroll
      for (int k_block = 0; k_block < 4; ++k_block) {
#pragma unroll
        for (int r = 0; r < config().block_m / 64; ++r)
          wgmma(d[r], matrix_descriptor(w + (unsigned)weight_offset(r, i)) + 2u * k_block, x_at + 2u * k_block);
      }
    }
    wgmma_commit();
    // The instructions that read the previous stage have completed: release it.
    wgmma_wait<1>();
    if (k_tile != begin && leader) barrier_arrive(smem.empty_barriers + 8u * previous);
    previous = (unsigned)state.stage;
    next_stage(state, a.num_stages);
  }
  wgmma_wait<0>();
  fence_accumulators(d);
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + 32) skinny(const __grid_constant__ SkinnyArguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent_launch) launch_dependents();
  // No divisions in the prologue: they would take as long as the first bytes of the weight.
  const int split_k = a.split_k;
  const int rank = cluster_cta_rank();
  const int row = cluster_index() * config().block_m;
  const int begin = rank * a.k_tiles + (rank < a.extra_k_tiles ? rank : a.extra_k_tiles);
  const int end = begin + a.k_tiles + (rank < a.extra_k_tiles ? 1 : 0);
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.exchange = smem.pipeline + (unsigned)a.num_stages * STAGE_BYTES;
  smem.full_barriers =
      smem.exchange + (split_k == 1 ? (unsigned)(BLOCK_N * STAGING_PITCH)
                                    : 4u * (unsigned)(split_k * a.max_row_groups * 8 * PARTIALS_PITCH));
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.partials_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  // Loading here, before the barriers are visible to all threads, is 0.2 µs slower.
  if (threadIdx.x == CONSUMER_THREADS) {
    if (!config().packed) prefetch_tensor_map(&a.w);
    prefetch_tensor_map(&a.x);
#pragma unroll 1
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CONSUMER_THREADS / 32);
    }
    barrier_init(smem.partials_barrier, 1);
    fence_barrier_init();
    fence_async_proxy();
    if (split_k > 1)
      barrier_arrive_expect_tx(
          smem.partials_barrier,
          (unsigned)(split_k * (first_row_group(a, rank + 1) - first_row_group(a, rank)) * 8 * BLOCK_N * 4));
  }
  __syncthreads();
  if (split_k > 1) cluster_arrive();

  if (threadIdx.x >= CONSUMER_THREADS) {
    if (elect_one()) fill_pipeline(a, smem, row, begin, end);
    __syncwarp();
    // At the same point as the consumers' wait: compute-sanitizer's racecheck holds each warp here until all have arrived.
    if (split_k > 1) cluster_wait();
    if (elect_one()) refill_pipeline(a, smem, row, begin, end);
    return;
  }
  // Before this, nothing is written, and only a dependent launch reads: the weight.
  grid_dependency_wait();
  float scale = types().scales == Scales::matrix ? *a.scales.x * *a.scales.w : 1.0f;
  materialize(scale);
  const ScaledRows rows = {a.scales, a.m, a.n, row, 0, batch_of_block()};
  RowScales scales;
  if constexpr (types().scales == Scales::rows) scales = row_scales(rows);
  ClusterEpilogue epilogue;
  decltype(block_epilogue(a, smem, row)) own;
  if (split_k == 1) {
    own = block_epilogue(a, smem, row);
  } else {
    epilogue = cluster_epilogue(a, smem, row, rank);
    cluster_wait();  // the other blocks' barriers are initialized
  }
  Accumulators d = {};
  if constexpr (config().promotion) {
    promoted_mainloop(d, a, smem, rows, begin, end);
  } else {
    mainloop(d, a, smem, begin, end);
  }
  if constexpr (types().scales == Scales::rows) scale_rows(d, scales);
  if (split_k == 1) {
    store_tile(d, a, own, scale);
  } else {
    send_partials(d, epilogue);
    barrier_wait_for_cluster(smem.partials_barrier, 0);
    reduce_and_store(a, epilogue, scale);
  }
}
