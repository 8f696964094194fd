// The consumer warp groups' mainloop: with promotion, and without.
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_block_scales.cuh"
#include "backends/cuda/families/wgmma/wgmma_producer.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

// A warp group starts its mainloop after the other has waited for all stages of the previous tile. Otherwise it could be a whole
// round of the pipeline ahead, where a barrier's phase has the same parity as the one that it waits for.
static __device__ inline void order_barrier_wait(int group) { sync_named<256>(order_barrier + group); }
static __device__ inline void order_barrier_arrive(int group) { arrive_named<256>(order_barrier + group); }

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
  if constexpr (scales_blocks()) {
    const unsigned places = (unsigned)a.scale_groups * GROUP_STAGES;
    const unsigned scales_there = state.scales + ((unsigned)k_tiles + GROUP_STAGES - 1) / GROUP_STAGES * GROUP_STAGES;
    state.scales = scales_there % places;
    state.scales_phase ^= (scales_there / places) & 1u;
  }
}

// Address of the empty barriers that this thread arrives on; 0 if it signals no block. One thread of each warp signals its own block;
// with multicast one thread of each warp group signals each block that it receives rows from. (wgmma is a warp group's instruction: when it
// has completed for one warp, it has for all.)
static __device__ inline unsigned empty_barriers_to_signal(const WgmmaArguments& a, const SharedLayout& smem,
                                                           const BlockWork& work) {
  const int lane = threadIdx.x % 32;
  const int cluster_m = 1 << log2_cluster_m(a);
  const int cluster_n = 1 << log2_cluster_n(a);
  if (!MULTICAST) return lane == 0 ? smem.empty_barriers : 0;
  const int number = (int)(threadIdx.x % 128) / 32 + lane * 4;  // spread over the four warps
  if (number >= cluster_m + cluster_n - 1) return 0;
  const int other = number - cluster_m;
  const int rank_m = number < cluster_m ? number : work.rank_m;
  const int rank_n = number < cluster_m ? work.rank_n : other + (other >= work.rank_n);
  return remote_address(smem.empty_barriers, work.first_rank + rank_m + (rank_n << log2_cluster_m(a)));
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

// ---- promotion

// The tensor core keeps about 13 bits below the largest addend of an fp8 instruction, so that a long sum of one sign is biased. Here it
// accumulates one k atom (128 elements) at a time; these partial sums are added to d in float32 (promotion).
enum : int {
  N_SLICES = config().n_slices,
  INSTRUCTION_N = BLOCK_N / N_SLICES,
  SLICES = MMA_TILES * N_SLICES,  // of the warp group's tile: 64 x INSTRUCTION_N, what a set of partial sums holds
  STEPS = K_ATOMS * SLICES,       // of a stage: a slice of a k atom each
};

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
  if constexpr (config().promotion == 1)
    WGMMA(partials, a_at, b_at,
          0);  // unlike WGMMA_FIRST it names the registers that it overwrites: all steps use the same
  else
    WGMMA_FIRST(partials, a_at, b_at);
#pragma unroll
  for (int k_block = 1; k_block < 4; ++k_block) WGMMA(partials, a_at + 2u * k_block, b_at + 2u * k_block, 1);
  wgmma_commit();
}

static __device__ __forceinline__ BlockScalesAt scales_at(const TileProduct& product) {
  if constexpr (scales_blocks())
    return block_scales_at(product.tile, product.row);
  else
    return {};
}

// The scales of k atom i of a stage that is full and not released. `first`: it is the tile's first stage; with split-K its group may have begun before.
static __device__ __forceinline__ BlockScales atom_scales(const SharedLayout& smem, const BlockScalesAt& at,
                                                          const ConsumerState& state, int i, bool first) {
  if constexpr (scales_blocks()) {
    const unsigned group = state.scales / GROUP_STAGES;
    const unsigned within = state.scales % GROUP_STAGES;
    if ((within == 0 || (SPLIT_K > 1 && first)) && i == 0)
      barrier_wait(smem.scale_barriers + 8u * group, state.scales_phase);
    return block_scales(at, group_scales(smem, (int)group) + (within * K_ATOMS + (unsigned)i) * 4u);
  } else {
    return {};
  }
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
    if constexpr (scales_blocks())
      sum = fmaf(partials[i], block_scale(scales, at, slice / N_SLICES, own), sum);
    else
      sum += partials[i];
    if constexpr (config().promotion > 1) asm volatile("" : "+f"(sum)::"memory");
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
  if constexpr (scales_blocks()) {
    if (++state.scales == (unsigned)a.scale_groups * GROUP_STAGES) {
      state.scales = 0;
      state.scales_phase ^= 1u;
    }
  }
}

// Behind a tile's last stage: the next tile begins with a group of scales.
static __device__ __forceinline__ void end_group(const WgmmaArguments& a, ConsumerState& state) {
  if constexpr (!scales_blocks()) return;
  state.scales = (state.scales + GROUP_STAGES - 1) / GROUP_STAGES * GROUP_STAGES;
  if (state.scales != (unsigned)a.scale_groups * GROUP_STAGES) return;
  state.scales = 0;
  state.scales_phase ^= 1u;
}

// With two sets: whether scales of blocks are read while the products of their own stage run, or while those of the next one do. (With SWAP_AB a thread has too
// many of them for two sets.)
static __device__ constexpr bool scales_ahead() { return !config().swap_ab; }

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
static __device__ __forceinline__ void add_stage(Accumulators& d, PartialSums& partials, BlockScales& scales,
                                                 const SharedLayout& smem, const BlockScalesAt& at, unsigned empty,
                                                 const ConsumerState& stage, bool first) {
  if constexpr (!scales_ahead()) scales = atom_scales(smem, at, stage, 0, first);
  wgmma_wait<pending>();
  release_stage(empty, stage.stage);
  promote(d, partials, scales, at, 0);
}

// With one set of narrow instructions the products take less than all else in a step. Then scales are read in front of them, to be multiplied while they run,
// and so is what the next stage's barrier is tested with; one warp group has nothing to gain by it, and wide tiles neither.
static __device__ constexpr bool scales_first() {
  return scales_blocks() && config().promotion == 1 && config().consumer_warpgroups == 2 && INSTRUCTION_N <= 64;
}

// The additions of slice `slice` do not move behind this. (Those of the step before would, in front of reads of scales, beside copies of their partial sums.)
static __device__ __forceinline__ void fence_sums(Accumulators& d, int slice) {
  float* const sums = &d[slice / N_SLICES][slice % N_SLICES * (INSTRUCTION_N / 2)];
  FENCE_ACCUMULATORS(sums);
}

// Multiplies the product's stages with one set of partial sums. The other warp group multiplies while this one adds. What passes from the last addition to the next
// instruction is lost unless the other's products last as long: in straight code of some stages the compiler tests the next stage's barrier in front of most
// additions, and no branch is behind them.
static __device__ __forceinline__ void multiply_with_one_set(Accumulators& d, const WgmmaArguments& a,
                                                             const SharedLayout& smem, unsigned empty,
                                                             const TileProduct& product, ConsumerState& state) {
  const StageDescriptors first = stage_descriptors(smem, product.row);
  const BlockScalesAt at = scales_at(product);
  PartialSums partials;
#pragma unroll
  for (int i = 0; i < INSTRUCTION_N / 2; ++i) asm volatile("" : "=f"(partials[i]));  // of any value
#pragma unroll 4
  for (int k_tile = 0; k_tile < product.k_tiles; ++k_tile) {
    wait_full(smem, state);
    BlockScales scales;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if constexpr (scales_first()) {
        fence_sums(d, (step + SLICES - 1) % SLICES);
        if (step % SLICES == 0) scales = atom_scales(smem, at, state, step / SLICES, k_tile == 0);
      }
      start_step(partials, first, state, step);
      if constexpr (scales_first()) {
        if (step == STEPS - 1) {
          ConsumerState next = state;
          next_stage(a, next);
          asm volatile("" ::"r"(smem.full_barriers + 8u * (unsigned)next.stage), "r"(next.phase) : "memory");
        }
      } else {
        if (step % SLICES == 0) scales = atom_scales(smem, at, state, step / SLICES, k_tile == 0);
      }
      wgmma_wait<0>();
      if (step == STEPS - 1) release_stage(empty, state.stage);
      promote(d, partials, scales, at, step % SLICES);
    }
    next_stage(a, state);
  }
}

// The same with two sets. Each has every second stage: its products run while those of the stage before are added. A stage has one step: of stages with more the
// compiler waits after each instruction. What the additions need (scales), and the barrier of the stage after the next, is read while products run: of
// small tiles a stage lasts as long as these latencies, one after the other.
static __device__ __forceinline__ void multiply_with_two_sets(Accumulators& d, const WgmmaArguments& a,
                                                              const SharedLayout& smem, unsigned empty,
                                                              const TileProduct& product, ConsumerState& state) {
  static_assert(config().promotion != 2 || STEPS == 1, "two sets are of whole stages");
  const int k_tiles = product.k_tiles;
  const StageDescriptors first = stage_descriptors(smem, product.row);
  const BlockScalesAt at = scales_at(product);
  PartialSums partials[2];
  BlockScales scales[2];
  wait_full(smem, state);
  start_step(partials[0], first, state, 0);
  if constexpr (scales_ahead()) scales[0] = atom_scales(smem, at, state, 0, true);
  bool full = false;
#pragma unroll 1
  for (int k_tile = 1;; k_tile += 2) {
    ConsumerState previous = state;
    next_stage(a, state);
    if (k_tile == k_tiles) {
      add_stage<0>(d, partials[0], scales[0], smem, at, empty, previous, k_tile == 1);
      break;
    }
    if (!full) wait_full(smem, state);
    start_step(partials[1], first, state, 0);
    if constexpr (scales_ahead()) full = read_ahead(scales[1], a, smem, at, state);
    add_stage<1>(d, partials[0], scales[0], smem, at, empty, previous, k_tile == 1);
    previous = state;
    next_stage(a, state);
    if (k_tile + 1 == k_tiles) {
      add_stage<0>(d, partials[1], scales[1], smem, at, empty, previous, false);
      break;
    }
    if (!full) wait_full(smem, state);
    start_step(partials[0], first, state, 0);
    if constexpr (scales_ahead()) full = read_ahead(scales[0], a, smem, at, state);
    add_stage<1>(d, partials[1], scales[1], smem, at, empty, previous, false);
  }
}

static __device__ __forceinline__ void promoted_mainloop(Accumulators& d, const WgmmaArguments& a,
                                                         const SharedLayout& smem, unsigned empty,
                                                         const TileProduct& product, ConsumerState& state) {
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) d[r][i] = 0.0f;
  }
  if constexpr (config().promotion == 1)
    multiply_with_one_set(d, a, smem, empty, product, state);
  else
    multiply_with_two_sets(d, a, smem, empty, product, state);
  end_group(a, state);
}

// ---- without promotion

// The descriptor of an operand, and what to add to it for the next 32 bytes of k: 32 bytes, or 16 rows of an MN-major one. 64 rows further
// on it is 8192 bytes in both.
template <Operand OPERAND>
static __device__ __forceinline__ unsigned long long operand_descriptor(unsigned address) {
  if constexpr (is_mn_major(OPERAND))
    return mn_major_descriptor(address);
  else
    return matrix_descriptor(address);
}
enum : unsigned {
  A_STEP = is_mn_major(Operand::a) ? 128 : 2,
  B_STEP = is_mn_major(Operand::b) ? 128 : 2,
};

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
      const unsigned long long a_at =
          operand_descriptor<Operand::a>(base + (unsigned)(i * A_ATOM_BYTES + row * ATOM_BYTES));
      const unsigned long long b_at =
          operand_descriptor<Operand::b>(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
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
