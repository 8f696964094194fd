// The consumer warp groups' mainloop, and the kernel. wgmma_producer.cuh describes the kernel and its macros.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/registers.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_block_scales.cuh"
#include "backends/cuda/families/wgmma/wgmma_epilogue.cuh"
#include "backends/cuda/families/wgmma/wgmma_producer.cuh"
#include "backends/cuda/families/wgmma/wgmma_split_k.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

#if PING_PONG
// A warp group starts its mainloop after the other has waited for all stages of the previous tile. Otherwise it could be a whole
// round of the pipeline ahead, where a barrier's phase has the same parity as the one that it waits for.
static __device__ inline void order_barrier_wait(int group) { sync_named<256>(order_barrier + group); }
static __device__ inline void order_barrier_arrive(int group) { arrive_named<256>(order_barrier + group); }
#endif

// ---- consumer warp groups

// The stage that a warp group reads next, and the parity of its full barrier's phase. The same of the group of scales of blocks, whose places are
// counted in stages; not used without them.
struct ConsumerState : PipelineState {
  unsigned scales;
  unsigned scales_phase;
};

static __device__ inline void advance(const WgmmaArguments& a, ConsumerState& state, int k_tiles) {
  const int there = state.stage + k_tiles;
  state.stage = there % a.num_stages;
  state.phase ^= (unsigned)(there / a.num_stages) & 1u;
#if SCALES == 3
  const unsigned places = (unsigned)a.scale_groups * GROUP_STAGES;
  const unsigned scales_there = state.scales + ((unsigned)k_tiles + GROUP_STAGES - 1) / GROUP_STAGES * GROUP_STAGES;
  state.scales = scales_there % places;
  state.scales_phase ^= (scales_there / places) & 1u;
#endif
}

// Address of the empty barriers that this thread arrives on; 0 if it signals no block. One thread of each warp signals its own block;
// with MULTICAST one thread of each warp group signals each block that it receives rows from. (wgmma is a warp group's instruction: when it
// has completed for one warp, it has for all.)
static __device__ inline unsigned empty_barriers_to_signal(const WgmmaArguments& a, const SharedLayout& smem,
                                                           const BlockWork& work) {
  const int lane = threadIdx.x % 32;
  const int cluster_m = 1 << LOG2_CLUSTER_M;
  const int cluster_n = 1 << LOG2_CLUSTER_N;
  if (!MULTICAST) return lane == 0 ? smem.empty_barriers : 0;
  const int number = (int)(threadIdx.x % 128) / 32 + lane * 4;  // spread over the four warps
  if (number >= cluster_m + cluster_n - 1) return 0;
  const int other = number - cluster_m;
  const int rank_m = number < cluster_m ? number : work.rank_m;
  const int rank_n = number < cluster_m ? work.rank_n : other + (other >= work.rank_n);
  return remote_address(smem.empty_barriers, work.first_rank + rank_m + (rank_n << LOG2_CLUSTER_M));
}

// Releases a stage to its producers. `empty`: empty_barriers_to_signal().
static __device__ __forceinline__ void release_stage(unsigned empty, int stage) {
  if (empty == 0) return;
  if (!MULTICAST) {
    barrier_arrive(empty + 8u * (unsigned)stage);
  } else {
    barrier_arrive_remote(empty + 8u * (unsigned)stage);
  }
}

// What a warp group multiplies: its tile, its first row of A within the tile, its k from k tile `k_begin` on.
struct TileProduct {
  Tile tile;
  int row;
  int k_begin;
  int k_tiles;
};

static __device__ __forceinline__ ScaledRows scaled_rows(const WgmmaArguments& a, const TileProduct& product) {
  return {a.scales, a.m, a.n, product.tile.a + product.row, product.tile.b, product.tile.batch};
}

#if PROMOTION
// The tensor core keeps about 13 bits below the largest addend of an fp8 instruction, so that a long sum of one sign is biased. Here it
// accumulates one k atom (128 elements) at a time; these partial sums are added to d in float32 (promotion).
#define INSTRUCTION_N (BLOCK_N / N_SLICES)
#define SLICES (MMA_TILES * N_SLICES)  // of the warp group's tile: 64 x INSTRUCTION_N, what a set of partial sums holds
#define STEPS (K_ATOMS * SLICES)       // of a stage: a slice of a k atom each

typedef float PartialSums[INSTRUCTION_N / 2];

// The lower words of the descriptors of stage 0: of the warp group's first row of A, and of B. From a shuffle: then they and what is added to them are in
// uniform registers, and those of a stage are ready before the stage is full.
struct StageDescriptors {
  unsigned a, b;
};

static __device__ __forceinline__ StageDescriptors stage_descriptors(const SharedLayout& smem, int row) {
  const unsigned a = (unsigned)matrix_descriptor(smem.pipeline + (unsigned)(row * ATOM_BYTES));
  const unsigned b = (unsigned)matrix_descriptor(smem.pipeline + (unsigned)(K_ATOMS * A_ATOM_BYTES));
  return {__shfl_sync(0xffffffffu, a, 0), __shfl_sync(0xffffffffu, b, 0)};
}

// The descriptor `further` units of 16 bytes on from the one with the lower word `first`.
static __device__ __forceinline__ unsigned long long descriptor_at(unsigned first, unsigned further) {
  return (matrix_descriptor(0) & ~0xffffffffull) | (first + further);
}

// Starts the products of a slice of a k atom. `a_at`, `b_at`: descriptors of the tile's first rows.
static __device__ __forceinline__ void multiply_slice(PartialSums& partials, unsigned long long a_at,
                                                      unsigned long long b_at, int slice) {
  a_at += (unsigned)(slice / N_SLICES * 512);
  b_at += (unsigned)(slice % N_SLICES * INSTRUCTION_N * (ATOM_BYTES / 16));
  wgmma_fence();
#if PROMOTION == 1
  WGMMA(partials, a_at, b_at,
        0);  // unlike WGMMA_FIRST it names the registers that it overwrites: all steps use the same
#else
  WGMMA_FIRST(partials, a_at, b_at);
#endif
#pragma unroll
  for (int k_block = 1; k_block < 4; ++k_block) WGMMA(partials, a_at + 2u * k_block, b_at + 2u * k_block, 1);
  wgmma_commit();
}

static __device__ __forceinline__ BlockScalesAt scales_at(const TileProduct& product) {
#if SCALES == 3
  return block_scales_at(product.tile, product.row);
#else
  return {};
#endif
}

// The scales of k atom i of a stage that is full and not released. `first`: it is the tile's first stage; with split-K its group may have begun before.
static __device__ __forceinline__ BlockScales atom_scales(const SharedLayout& smem, const BlockScalesAt& at,
                                                          const ConsumerState& state, int i, bool first) {
#if SCALES == 3
  const unsigned group = state.scales / GROUP_STAGES;
  const unsigned within = state.scales % GROUP_STAGES;
  if ((within == 0 || (SPLIT_K > 1 && first)) && i == 0)
    barrier_wait(smem.scale_barriers + 8u * group, state.scales_phase);
  return block_scales(at, group_scales(smem, (int)group) + (within * K_ATOMS + (unsigned)i) * 4u);
#else
  return {};
#endif
}

// Adds a slice's partial sums, whose instructions have completed, times their scales. With two sets the additions must not move behind the next
// instructions, or the compiler waits after each of these; with one they cannot, and may move behind the wait for the next stage.
static __device__ __forceinline__ void promote(Accumulators& d, PartialSums& partials, const BlockScales& scales,
                                               const BlockScalesAt& at, int slice) {
  FENCE_ACCUMULATORS(partials);
#pragma unroll
  for (int i = 0; i < INSTRUCTION_N / 2; ++i) {
    const int own = slice % N_SLICES * (INSTRUCTION_N / 2) + i;
    float& sum = d[slice / N_SLICES][own];
#if SCALES == 3
    sum = fmaf(partials[i], block_scale(scales, at, slice / N_SLICES, own), sum);
#else
    sum += partials[i];
#endif
#if PROMOTION > 1
    asm volatile("" : "+f"(sum)::"memory");
#endif
  }
}

// Starts the products of a step of the current stage.
static __device__ __forceinline__ void start_step(PartialSums& partials, const StageDescriptors& first,
                                                  const ConsumerState& state, int step) {
  const unsigned stage = (unsigned)state.stage * (STAGE_BYTES / 16);
  const int i = step / SLICES;
  multiply_slice(partials, descriptor_at(first.a, stage + (unsigned)(i * A_ATOM_BYTES / 16)),
                 descriptor_at(first.b, stage + (unsigned)(i * B_ATOM_BYTES / 16)), step % SLICES);
}

static __device__ __forceinline__ void wait_full(const SharedLayout& smem, const ConsumerState& state) {
  barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
}

// Whether the stage is full, without waiting.
static __device__ __forceinline__ bool is_full(const SharedLayout& smem, const ConsumerState& state) {
  return barrier_completed(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
}

static __device__ __forceinline__ void next_stage(const WgmmaArguments& a, ConsumerState& state) {
  next_stage(state, a.num_stages);
#if SCALES == 3
  if (++state.scales == (unsigned)a.scale_groups * GROUP_STAGES) {
    state.scales = 0;
    state.scales_phase ^= 1u;
  }
#endif
}

// Behind a tile's last stage: the next tile begins with a group of scales.
static __device__ __forceinline__ void end_group(const WgmmaArguments& a, ConsumerState& state) {
#if SCALES == 3
  state.scales = (state.scales + GROUP_STAGES - 1) / GROUP_STAGES * GROUP_STAGES;
  if (state.scales != (unsigned)a.scale_groups * GROUP_STAGES) return;
  state.scales = 0;
  state.scales_phase ^= 1u;
#endif
}

// With two sets: whether scales of blocks are read while the products of their own stage run, or while those of the next one do. (With SWAP_AB a thread has too
// many of them for two sets.)
#define SCALES_AHEAD (!SWAP_AB)

// While the products of a stage run: reads its scales. Returns whether the next stage is full.
static __device__ __forceinline__ bool read_ahead(BlockScales& scales, const WgmmaArguments& a,
                                                  const SharedLayout& smem, const BlockScalesAt& at,
                                                  const ConsumerState& stage) {
  scales = atom_scales(smem, at, stage, 0, false);
  ConsumerState next = stage;
  next_stage(a, next);
  return is_full(smem, next);
}

// Waits until at most `pending` later stages' products run, adds those of a stage of one step, and releases it.
template <int pending>
static __device__ __forceinline__ void finish(Accumulators& d, PartialSums& partials, BlockScales& scales,
                                              const SharedLayout& smem, const BlockScalesAt& at, unsigned empty,
                                              const ConsumerState& stage, bool first) {
  if (!SCALES_AHEAD) scales = atom_scales(smem, at, stage, 0, first);
  wgmma_wait<pending>();
  release_stage(empty, stage.stage);
  promote(d, partials, scales, at, 0);
}

// With one set of narrow instructions the products take less than all else in a step. Then scales are read in front of them, to be multiplied while they run,
// and so is what the next stage's barrier is tested with; one warp group has nothing to gain by it, and wide tiles neither.
#define SCALES_FIRST (SCALES == 3 && PROMOTION == 1 && CONSUMER_WARPGROUPS == 2 && INSTRUCTION_N <= 64)

// The additions of slice `slice` do not move behind this. (Those of the step before would, in front of reads of scales, beside copies of their partial sums.)
static __device__ __forceinline__ void fence_sums(Accumulators& d, int slice) {
  float* const sums = &d[slice / N_SLICES][slice % N_SLICES * (INSTRUCTION_N / 2)];
  FENCE_ACCUMULATORS(sums);
}

// Multiplies the product's stages.
static __device__ __forceinline__ void mainloop(Accumulators& d, const WgmmaArguments& a, const SharedLayout& smem,
                                                unsigned empty, const TileProduct& product, ConsumerState& state) {
  const int k_tiles = product.k_tiles;
  const int row = product.row;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) d[r][i] = 0.0f;
  }
  const StageDescriptors first = stage_descriptors(smem, row);
  const BlockScalesAt at = scales_at(product);
  PartialSums partials[PROMOTION];
#if PROMOTION == 1
  // The other warp group multiplies while this one adds. What passes from the last addition to the next instruction is lost unless the other's products
  // last as long: in straight code of some stages the compiler tests the next stage's barrier in front of most additions, and no branch is behind them.
#pragma unroll
  for (int i = 0; i < INSTRUCTION_N / 2; ++i) asm volatile("" : "=f"(partials[0][i]));  // of any value
#pragma unroll 4
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    wait_full(smem, state);
    BlockScales scales;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#if SCALES_FIRST
      fence_sums(d, (step + SLICES - 1) % SLICES);
      if (step % SLICES == 0) scales = atom_scales(smem, at, state, step / SLICES, k_tile == 0);
      start_step(partials[0], first, state, step);
      if (step == STEPS - 1) {
        ConsumerState next = state;
        next_stage(a, next);
        asm volatile("" ::"r"(smem.full_barriers + 8u * (unsigned)next.stage), "r"(next.phase) : "memory");
      }
#else
      start_step(partials[0], first, state, step);
      if (step % SLICES == 0) scales = atom_scales(smem, at, state, step / SLICES, k_tile == 0);
#endif
      wgmma_wait<0>();
      if (step == STEPS - 1) release_stage(empty, state.stage);
      promote(d, partials[0], scales, at, step % SLICES);
    }
    next_stage(a, state);
  }
#else
  // Each set has every second stage: its products run while those of the stage before are added. A stage has one step: of stages with more the
  // compiler waits after each instruction. What the additions need (scales), and the barrier of the stage after the next, is read while products run: of
  // small tiles a stage lasts as long as these latencies, one after the other.
  static_assert(STEPS == 1, "two sets are of whole stages");
  BlockScales scales[PROMOTION];
  wait_full(smem, state);
  start_step(partials[0], first, state, 0);
  if (SCALES_AHEAD) scales[0] = atom_scales(smem, at, state, 0, true);
  bool full = false;
#pragma unroll 1
  for (int k_tile = 1;; k_tile += 2) {
    ConsumerState previous = state;
    next_stage(a, state);
    if (k_tile == k_tiles) {
      finish<0>(d, partials[0], scales[0], smem, at, empty, previous, k_tile == 1);
      break;
    }
    if (!full) wait_full(smem, state);
    start_step(partials[1], first, state, 0);
    if (SCALES_AHEAD) full = read_ahead(scales[1], a, smem, at, state);
    finish<1>(d, partials[0], scales[0], smem, at, empty, previous, k_tile == 1);
    previous = state;
    next_stage(a, state);
    if (k_tile + 1 == k_tiles) {
      finish<0>(d, partials[1], scales[1], smem, at, empty, previous, false);
      break;
    }
    if (!full) wait_full(smem, state);
    start_step(partials[0], first, state, 0);
    if (SCALES_AHEAD) full = read_ahead(scales[0], a, smem, at, state);
    finish<1>(d, partials[1], scales[1], smem, at, empty, previous, false);
  }
#endif
  end_group(a, state);
}
#else
// The descriptor of an operand, and what to add to it for the next 32 bytes of k: 32 bytes, or 16 rows of an MN-major one. 64 rows further
// on it is 8192 bytes in both.
#define A_DESCRIPTOR(address) (A_MN_MAJOR ? mn_major_descriptor(address) : matrix_descriptor(address))
#define B_DESCRIPTOR(address) (B_MN_MAJOR ? mn_major_descriptor(address) : matrix_descriptor(address))
#define A_STEP (A_MN_MAJOR ? 128u : 2u)
#define B_STEP (B_MN_MAJOR ? 128u : 2u)

// Multiplies the product's stages.
static __device__ __forceinline__ void mainloop(Accumulators& d, const WgmmaArguments& a, const SharedLayout& smem,
                                                unsigned empty, const TileProduct& product, ConsumerState& state) {
  const int k_tiles = product.k_tiles;
  const int row = product.row;
  int previous = -1;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) FENCE_ACCUMULATORS(d[r]);
#pragma unroll 1
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    const unsigned base = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i) {
      const unsigned long long a_at = A_DESCRIPTOR(base + (unsigned)(i * A_ATOM_BYTES + row * ATOM_BYTES));
      const unsigned long long b_at = B_DESCRIPTOR(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
#pragma unroll
      for (int k_block = 0; k_block < 4; ++k_block) {
#pragma unroll
        for (int r = 0; r < MMA_TILES; ++r)
          WGMMA(d[r], a_at + A_STEP * k_block + 512u * r, b_at + B_STEP * k_block, i + k_block == 0 ? k_tile : 1);
      }
    }
    wgmma_commit();
    // The instructions that read the previous stage have completed: release it.
    wgmma_wait<1>();
    if (previous >= 0) release_stage(empty, previous);
    previous = state.stage;
    next_stage(state, a.num_stages);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) FENCE_ACCUMULATORS(d[r]);
  if (previous >= 0) release_stage(empty, previous);
}
#endif

// ---- the kernel

#if SPLIT_K > 1
// Reduces a tile's partial sums over the cluster.
static __device__ __forceinline__ void reduce_split_k(const Accumulators& d, const WgmmaArguments& a,
                                                      const SharedLayout& smem, const BlockWork& work, const Tile& tile,
                                                      int row, float scale) {
  send_partials(d, a, smem, work);
  const ThreadOutputs to = thread_outputs(a, tile, row);
  barrier_wait_for_cluster(smem.partials_barrier, 0);
  reduce_and_store(d, a, smem, to, work.split, scale);
}
#endif

static __device__ __forceinline__ void consume(const WgmmaArguments& a, const SharedLayout& smem,
                                               const BlockWork& work) {
#if PROMOTION
  // The compiler then keeps what depends on it, and the descriptors of the tile's rows, in uniform registers. (Without partial sums the widest tiles
  // spill, and nothing is gained.)
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
#else
  const int group = threadIdx.x / 128;
#endif
  const int row = PING_PONG ? 0 : group * WARPGROUP_M;
  // Before this, nothing is written, and only a dependent launch reads: the weight.
  grid_dependency_wait();
  const float scale = SCALES == 1 ? *a.scales.x * *a.scales.w : 1.0f;
  const int k_tiles = work.k_end - work.k_begin;
  const unsigned empty = empty_barriers_to_signal(a, smem, work);
  ConsumerState state = {{0, 0}, (unsigned)work.k_begin % GROUP_STAGES, 0};
#if SPLIT_K == 1
  StagingBuffers buffers = staging_buffers(smem);
#endif
  for (int round = 0; tile_index(a, round) < a.tiles; ++round) {
#if PING_PONG
    if (round % 2 != group) {
      advance(a, state, k_tiles);
      continue;
    }
    if (round > 0) order_barrier_wait(group);
#endif
    const Tile tile = tile_at(a, tile_index(a, round), work.rank_m, work.rank_n);
    const TileProduct product = {tile, row, work.k_begin, k_tiles};
    Accumulators d;
#if SCALES == 2
    const RowScales scales = row_scales(scaled_rows(a, product));
#endif
    mainloop(d, a, smem, empty, product, state);
    if (SPLIT_K > 1 && !MULTICAST) cluster_wait();  // completes sync_barrier_init(), in front of what is sent
#if PING_PONG
    if (tile_index(a, round + 1) < a.tiles) order_barrier_arrive(1 - group);
#endif
#if SCALES == 2
    scale_rows(d, scales);
#endif
#if SPLIT_K > 1
    reduce_split_k(d, a, smem, work, tile, row, scale);
    return;  // a cluster computes one tile
#else
    store_tile(d, a, buffers, tile, row, scale);
#endif
  }
#if SPLIT_K == 1
  tma_store_wait<0>();  // shared memory must outlive its readers
#endif
}

// The consumer warps initialize the barriers, each a share of the stages: an initialization is slow.
static __device__ __forceinline__ void init_barriers(const WgmmaArguments& a, const SharedLayout& smem,
                                                     const BlockWork& work) {
  if (elect_one()) {
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int i = warp; i < a.num_stages; i += CONSUMER_THREADS / 32) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, (unsigned)a.empty_arrivals);
    }
#if SCALES == 3
#pragma unroll 1
    for (int i = warp; i < a.scale_groups; i += CONSUMER_THREADS / 32)
      barrier_init(smem.scale_barriers + 8u * (unsigned)i, a.scale_maps ? 1 : 32);
#endif
#if SPLIT_K > 1
    if (warp == CONSUMER_THREADS / 32 - 1) {
      barrier_init(smem.partials_barrier, 1);
      barrier_arrive_expect_tx(smem.partials_barrier, received_bytes(work.split));
    }
#endif
    fence_barrier_init();
  }
  __syncwarp();
}

// Makes the barriers' initialization visible to the block and, with MULTICAST, to the cluster.
static __device__ __forceinline__ void sync_barrier_init() {
  if (SPLIT_K > 1 || MULTICAST) cluster_arrive();
  if (MULTICAST) {
    cluster_wait();
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, 1)
    wgmma(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent_launch) launch_dependents();
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.staging = smem.pipeline + (unsigned)a.num_stages * STAGE_BYTES;
  smem.scales = smem.pipeline + (unsigned)a.storage_bytes;
  smem.full_barriers = smem.scales + (unsigned)a.scale_groups * GROUP_SCALES_BYTES;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.partials_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  smem.scale_barriers = smem.partials_barrier + 8u;
  const BlockWork work = block_work(a);
  const bool is_producer = threadIdx.x >= CONSUMER_THREADS;
  ProducerShare share;
  ProducerTile first;
  if (is_producer) {
    if (elect_one()) {
      if (!(PACKED && SWAP_AB)) prefetch_tensor_map(&a.a);
      if (!PACKED || SWAP_AB) prefetch_tensor_map(&a.b);
#if SCALES == 3
      if (a.scale_maps) {
        prefetch_tensor_map(&a.x_scales);
        prefetch_tensor_map(&a.w_scales);
      }
#endif
    }
    // The prologue runs while the consumers initialize the barriers.
    share = producer_share(a, work);
    first = producer_tile(a, share, tile_at(a, tile_index(a, 0), work.rank_m, work.rank_n));
    asm volatile("" ::"r"(first.tile.a), "r"(first.tile.b), "r"(work.k_begin), "r"(work.k_end));
    __syncwarp();
  } else {
    init_barriers(a, smem, work);
  }
  sync_barrier_init();
  if (is_producer) {
    if constexpr (PRODUCER_REGISTERS > 0) give_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x < CONSUMER_THREADS + 32 && elect_one()) {
      produce(a, smem, work, share, first);
      if (a.use_tma_store) prefetch_tensor_map(&a.y_map);
    }
#if SCALES == 3
    if (!a.scale_maps && threadIdx.x / 32 == CONSUMER_THREADS / 32 + 1) produce_scales(a, smem, work);
#endif
    __syncwarp();
    if (SPLIT_K > 1 && !MULTICAST) cluster_wait();
    if (MULTICAST) cluster_arrive();
  } else {
    if constexpr (CONSUMER_REGISTERS > 0) take_registers<CONSUMER_REGISTERS>();
    consume(a, smem, work);
    if (MULTICAST) {
      __syncwarp();
      cluster_arrive();
    }
  }
  // No block exits while another may still access its shared memory. (Partial sums of others have arrived before a block stores.)
  if (MULTICAST) cluster_wait();
}
