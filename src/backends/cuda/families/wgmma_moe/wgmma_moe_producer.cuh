// One stage of a mixture of experts on Hopper: D = A * B^T with A = rows of an expert's weight and B = rows of the tokens that are routed to it (operands are
// swapped, so that a tile may have few tokens). Persistent: blocks walk over the tiles of all experts that have tokens; a weight that no token needs is not read. A
// producer warp group loads stages: A through TMA, B in stage 1 by copies that gather tokens (cp.async), in stage 2 through TMA from the sorted hidden layer.
//
// A gated w1 is loaded in groups of 16 rows, 8 of the gate and the same 8 of the up half, so that a thread's accumulators hold both factors of an element of the
// hidden layer.
//
// The host defines: STAGE (1, 2), BLOCK_ROWS (of A: 64, 128, 256), BLOCK_TOKENS (of B), CONSUMER_WARPGROUPS (1, 2), K_ATOMS (block_k in units of 128 bytes), BLOCKS
// (of a multiprocessor), CLUSTER (1; 2: blocks of a cluster compute neighbouring halves of a tile's tokens with the same rows of the weight, of which each loads a
// half for both by multicast), GATED and ACTIVATION (moe_activation.cuh; of stage 1), WEIGHTED (1: stage 1 multiplies gate and up by routing weights), ELEMENT, OUTPUT (of `to`), SCALES (Scales: none, rows, blocks), SORT (1: each block sorts the pairs itself; at most 256), FP4 (1: an MXFP4 weight, which is decoded to bf16 between shared memory and registers; stages of 256 of k), PRODUCER_REGISTERS and CONSUMER_REGISTERS (of a thread; 0: as compiled), STAGED_TOKENS (at once in the epilogue), QUANTIZES (1: stage 1 stores fp8 and its scales, tiles being of 128 columns), MIN_WIDTH (tokens of the narrowest
// instructions) and for it and each 16 tokens more, to BLOCK_TOKENS, Instruction<WIDTH>.
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"

using gemmtune::cuda::WgmmaMoeArguments;
using gemmtune::gpu::MoeTile;

#define INTERLEAVED (STAGE == 1 && GATED)
#define PERMUTED (STAGE == 1 && FP4 && !GATED)  // rows of w1 in the order of the permuted hidden layer, without a gate
#define GATHER (STAGE == 1 && !(FP4 && !SORT))  // of an MXFP4 weight tokens come sorted unless blocks sort
#define PROMOTE (ELEMENT == 3)                  // of fp8 the tensor core keeps too few bits of long sums
#define A_ATOM_BYTES (BLOCK_ROWS * ATOM_BYTES)
#define A_ATOMS (FP4 ? 1 : K_ATOMS)  // boxes of 128 bytes of k in a stage: of an MXFP4 weight four atoms of B's k
#define A_BYTES (A_ATOMS * A_ATOM_BYTES)
#define B_ATOM_BYTES (BLOCK_TOKENS * ATOM_BYTES)
#define SHARE_ROWS (BLOCK_ROWS / CLUSTER)  // of A that a block loads
#define SCALE_ROWS (BLOCK_ROWS / 8)        // groups of rows of A that share a scale of blocks
#define SCALE_BYTES (SCALES == 3 ? (BLOCK_TOKENS + SCALE_ROWS) * 4 : 0)  // of a k atom
#define STAGE_BYTES (A_BYTES + K_ATOMS * B_ATOM_BYTES)
// A tile of fewer tokens than BLOCK_TOKENS runs instructions of fewer, in steps of 16, and loads no others.
#define WIDTH_STEP 16
#define FITS (MIN_WIDTH < BLOCK_TOKENS)
#define BOX_TOKENS (FITS ? WIDTH_STEP : BLOCK_TOKENS)  // of the hidden layer
#define CONSUMER_THREADS (128 * CONSUMER_WARPGROUPS)
#define PRODUCER_THREADS 128
#define WARPGROUP_ROWS (BLOCK_ROWS / CONSUMER_WARPGROUPS)
#define MMA_TILES (WARPGROUP_ROWS / 64)
#define TILE_COLUMNS (INTERLEAVED ? BLOCK_ROWS / 2 : BLOCK_ROWS)  // of `to`
#define MMA_COLUMNS (INTERLEAVED ? 32 : 64)                       // of one instruction's rows
#define COPIES (GATHER || SCALES == 3)                            // the producer's threads copy too
#define STAGING_PITCH (MMA_COLUMNS / 2)                           // bytes of a warp's columns
#define STAGING_BYTES (FP4 ? 0 : QUANTIZES ? BLOCK_TOKENS * 128 : STAGED_TOKENS * 4 * STAGING_PITCH)  // of a warp group
#define SCALE_COPIES ((BLOCK_TOKENS + 127) / 128)  // of a thread of the producer, each k atom
#define ROWS_PER_THREAD (BLOCK_TOKENS / 16)        // that a producer thread gathers, 16 bytes of each
#define READS_AHEAD                 \
  !(SCALES == 3 ? BLOCK_TOKENS > 96 \
                : BLOCK_TOKENS > 160)  // the producer knows its next tile; without registers for it it waits

// warpgroup_barrier and scales_barrier are the first warp group's, those of the others follow; both_barrier is of two in a kernel that quantizes.
enum NamedBarrier { warpgroup_barrier = 1, scales_barrier = 2, both_barrier = 3 };

// Addresses in shared memory.
struct SharedLayout {
  unsigned pipeline;
  unsigned staging;  // a buffer for each consumer warp
  unsigned scales;   // num_stages x K_ATOMS x SCALE_BYTES: a float of each token, then of each 8 rows of A
  unsigned work;     // ITEM_SLOTS Works, which the producer passes to the consumers
  unsigned items;    // ITEM_SLOTS indices of work items, each behind its barrier
  unsigned full_barriers;
  unsigned empty_barriers;
};
#define WORK_BYTES 32

// Rank of the block in its cluster, and the first two of the work items of the cluster: others come from a counter (DYNAMIC) as blocks become free, because tiles are
// of unequal work. Blocks that sort have few, at a fixed stride.
#define DYNAMIC !SORT
#define ITEM_SLOTS \
  32  // two more than stages: the producer is at most these ahead of the consumers, and a block of the other one of its cluster
#define ITEM_BYTES 16
#define SHARED_ITEMS (COPIES || CLUSTER > 1)  // several threads walk over the items
static __device__ __forceinline__ int rank_of_block() { return CLUSTER > 1 ? cluster_cta_rank() : 0; }
static __device__ __forceinline__ int first_work() { return CLUSTER > 1 ? cluster_index() : (int)blockIdx.x; }
static __device__ __forceinline__ int work_stride() { return CLUSTER > 1 ? cluster_count() : (int)gridDim.x; }

struct Work {
  MoeTile tile;  // the block's share of it; count may be 0 with CLUSTER
  int column;    // first one of `to`
  int row;       // first one of the weight; of an interleaved one in groups of 8 of each half
  int last;      // the block has no other one
#if FP4
  int next_expert, next_row;  // of the block's next tile, whose scales are loaded early; next_expert < 0: there is none
#endif
};

// Pairs by position, and the tiles: of the kernel that sorted them in device memory, or with SORT in shared memory.
struct Routes {
  const int* pair_of;
  const MoeTile* tiles;
  const int* tiles_of;  // by expert; with SORT by tile
  int tile_count;
};

// EARLY: before the grid dependency, when L1 may hold what was there before the sort.
template <bool EARLY>
static __device__ __forceinline__ MoeTile load_tile(const MoeTile* from) {
  if (SORT || !EARLY) return *from;
  const int4 bits = __ldcg((const int4*)from);
  return {bits.x, bits.y, bits.z, bits.w};
}

// Neighbouring blocks compute all tokens of an expert with the same rows of the weight, then with the next ones.
template <bool EARLY>
static __device__ __forceinline__ Work work_at(const WgmmaMoeArguments& a, const Routes& routes, int index) {
  const int any = index / a.column_tiles;
  const MoeTile one = load_tile<EARLY>(routes.tiles + any);
  const int* at = routes.tiles_of + (SORT ? any : one.expert);
  const int tiles = EARLY && !SORT ? __ldcg(at) : *at;
  const int first = any - one.index;
  const int local = index - first * a.column_tiles;
  const int across = local / tiles;
  Work work;
  work.tile = load_tile<EARLY>(routes.tiles + first + local - across * tiles);
  work.column = across * TILE_COLUMNS;
  work.row = across * BLOCK_ROWS;
#if CLUSTER > 1
  // Equal shares, so that no block waits for the other one, in multiples of what instructions take.
  int share = (work.tile.count + CLUSTER * WIDTH_STEP - 1) / (CLUSTER * WIDTH_STEP) * WIDTH_STEP;
  if (share > BLOCK_TOKENS) share = BLOCK_TOKENS;
  const int skipped = rank_of_block() * share;
  work.tile.first += skipped;
  work.tile.count = work.tile.count > skipped ? work.tile.count - skipped : 0;
  if (work.tile.count > share) work.tile.count = share;
#endif
  return work;
}

// The producer passes the work to the consumers with the first stage of its tile, the block's `number`-th.
static __device__ __forceinline__ void store_work(const SharedLayout& smem, int number, const Work& work) {
  const unsigned to = smem.work + (unsigned)(number % ITEM_SLOTS) * WORK_BYTES;
  store_shared_ints(to, work.tile.expert, work.tile.first, work.tile.count, work.column);
  store_shared_ints(to + 16u, work.row, work.last);
#if FP4
  store_shared_ints(to + 24u, work.next_expert, work.next_row);
#endif
}
static __device__ __forceinline__ Work read_work(unsigned from) {
  Work work;
  work.tile.index = 0;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(work.tile.expert), "=r"(work.tile.first), "=r"(work.tile.count), "=r"(work.column)
               : "r"(from)
               : "memory");
#if FP4
  asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];"
               : "=r"(work.next_expert), "=r"(work.next_row)
               : "r"(from + 24u)
               : "memory");
  work.row = INTERLEAVED ? 2 * work.column : work.column;
  work.last = work.next_expert < 0;
#else
  asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(work.row), "=r"(work.last) : "r"(from + 16u) : "memory");
#endif
  return work;
}

// Boxes of the hidden layer that a stage of the tile has, and its bytes that come by TMA.
static __device__ __forceinline__ int boxes_of(const Work& work) {
  return FITS ? (work.tile.count + WIDTH_STEP - 1) / WIDTH_STEP : 1;
}
static __device__ __forceinline__ unsigned loaded_bytes(const Work& work) {
  return (unsigned)(A_BYTES + (GATHER ? 0 : K_ATOMS * boxes_of(work) * (BOX_TOKENS * ATOM_BYTES)));
}

// ---- producer

// The walk of a block, or of a cluster's, over its items.
struct Walk {
  int index;
  int next;    // not less than the number of all: there is none
  int number;  // of the item at `index` among the block's
};
static __device__ __forceinline__ Walk first_walk() { return {first_work(), first_work() + work_stride(), 0}; }

// Takes the item behind the next one of the block's item `number`. One thread of each block, once for each number; it may do so before others advance.
static __device__ __forceinline__ void take_item(const WgmmaMoeArguments& a, const SharedLayout& smem, int number) {
  const unsigned slot = smem.items + (unsigned)(number % ITEM_SLOTS * ITEM_BYTES);
#if CLUSTER > 1
  barrier_arrive_expect_tx(slot, 4);
  if (rank_of_block() > 0) return;
#endif
  const int item = atomicAdd(a.tile_count + STAGE, 1) + 2 * work_stride();
#if CLUSTER > 1
#pragma unroll
  for (int rank = 0; rank < CLUSTER; ++rank)
    store_async(remote_address(slot + 8u, rank), item, remote_address(slot, rank));
#else
  store_shared_int(slot + 8u, item);
  if (SHARED_ITEMS) barrier_arrive(slot);
#endif
}

static __device__ __forceinline__ void advance(const SharedLayout& smem, Walk& walk, int work_count) {
  walk.index = walk.next;
  if (walk.next >= work_count) return;
#if DYNAMIC
  const unsigned slot = smem.items + (unsigned)(walk.number % ITEM_SLOTS * ITEM_BYTES);
  if (SHARED_ITEMS) barrier_wait(slot, (unsigned)(walk.number / ITEM_SLOTS % 2));
  walk.next = load_shared_int(slot + 8u);
#else
  walk.next += work_stride();
#endif
  ++walk.number;
}

#if CLUSTER > 1
#define MULTICAST ".multicast::cluster"
#define MULTICAST_MASK(operand) ", %" #operand
#else
#define MULTICAST
#define MULTICAST_MASK(operand)
#endif

#if FP4
// Adds to `work` what its tile's scales need to know of `next`, which may be none.
static __device__ __forceinline__ void set_next(Work& work, const Work& next) {
  work.next_expert = work.last ? -1 : next.tile.expert;
  work.next_row = next.row;
}

// Loads 256 of k of the weight. Of w1 the tile has 8 * W neighbouring features of each of 4 x 32, W = BLOCK_ROWS / 64, or without a gate / 32: those that lie at
// neighbouring columns of the permuted hidden layer (permuted_row()).
static __device__ __forceinline__ void load_weight(const WgmmaMoeArguments& a, unsigned to, int k_box, const Work& work,
                                                   unsigned barrier) {
#if INTERLEAVED
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    // Features are permuted within 128: 16 groups of 8.
    const int group = work.column / 128 * 16 + t * 4 + work.column % 128 / 32;
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::
            "r"(to + (unsigned)(t * (A_ATOM_BYTES / 4))),
        "l"(&a.w), "r"(k_box * ATOM_BYTES), "r"(0), "r"(0), "r"(group), "r"(work.tile.expert), "r"(barrier)
        : "memory");
  }
#elif PERMUTED
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const int row = work.column / 128 * 128 + t * 32 + work.column % 128 / 4;
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
            "r"(to + (unsigned)(t * (A_ATOM_BYTES / 4))),
        "l"(&a.w), "r"(k_box * ATOM_BYTES), "r"(row), "r"(work.tile.expert), "r"(barrier)
        : "memory");
  }
#else
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(&a.w), "r"(k_box * ATOM_BYTES), "r"(work.row), "r"(work.tile.expert), "r"(barrier)
      : "memory");
#endif
}
#else
// Loads the block's share of a k atom of the weight, with CLUSTER to both blocks. `to`: of the whole tile.
static __device__ __forceinline__ void load_weight(const WgmmaMoeArguments& a, unsigned to, int k_atom,
                                                   const Work& work, unsigned barrier) {
  const int share = rank_of_block() * SHARE_ROWS;
  to += (unsigned)(share * ATOM_BYTES);
  const unsigned short mask = (1u << CLUSTER) - 1u;
#if INTERLEAVED
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" MULTICAST
               " [%0], [%1, {%2, %3, %4, %5, %6}], [%7]" MULTICAST_MASK(8) ";" ::"r"(to),
               "l"(&a.w), "r"(k_atom * ATOM_ELEMENTS), "r"(0), "r"(0), "r"((work.row + share) / 16),
               "r"(work.tile.expert), "r"(barrier), "h"(mask)
               : "memory");
#else
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" MULTICAST
               " [%0], [%1, {%2, %3, %4}], [%5]" MULTICAST_MASK(6) ";" ::"r"(to),
               "l"(&a.w), "r"(k_atom * ATOM_ELEMENTS), "r"(work.row + share), "r"(work.tile.expert), "r"(barrier),
               "h"(mask)
               : "memory");
#endif
}
#endif

// What a thread of the producer copies. Few instructions for each copy matter more than anything else here: a warp scheduler has one such warp.
struct Copies {
#if GATHER
  unsigned rows[ROWS_PER_THREAD];  // of x, in units of 16 bytes
#endif
#if SCALES == 3
  unsigned scales[SCALE_COPIES];  // of tokens, from a k atom's first one
  unsigned weight_scale;
#endif
};

static __device__ __forceinline__ Copies copies_of(const WgmmaMoeArguments& a, const Routes& routes, const Work& work,
                                                   int thread) {
  Copies copies;
  // Tokens that the tile lacks: the last one instead, whose products are not stored. A tile of none copies the first token of all.
  const int last = work.tile.count > 0 ? work.tile.count - 1 : 0;
  const int first = work.tile.count > 0 ? work.tile.first : 0;
#if GATHER
#pragma unroll
  for (int i = 0; i < ROWS_PER_THREAD; ++i) {
    const int at = thread / 8 + i * 16;
    copies.rows[i] = (unsigned)routes.pair_of[first + (at < last ? at : last)];
  }
#pragma unroll
  for (int i = 0; i < ROWS_PER_THREAD; ++i)
    copies.rows[i] = copies.rows[i] / (unsigned)a.topk * (unsigned)(a.x_row_bytes / 16);
#endif
#if SCALES == 3
#pragma unroll
  for (int i = 0; i < SCALE_COPIES; ++i) {
    const int own = thread + i * 128;
    const int at = first + (own < last ? own : last);
    copies.scales[i] = (unsigned)(GATHER ? routes.pair_of[at] / a.topk : at) * (unsigned)a.x_scale_step;
  }
  // Rows past the last one have its scales: their products are not stored.
  int row = INTERLEAVED ? work.column + thread / 2 * 8 : work.row + thread * 8;
  if (row >= a.columns) row = a.columns - 1;
  if (INTERLEAVED) row += thread % 2 * a.columns;
  copies.weight_scale = (unsigned)(work.tile.expert * a.w_scale_matrix) + (unsigned)(row / 128 * a.w_scale_columns);
#endif
  return copies;
}

#if GATHER
// Copies the rows' 128 bytes of k at `from`; `to`: the atom. WHOLE: all of them are in the row, else zeros.
template <bool WHOLE>
static __device__ __forceinline__ void copy_rows(const Copies& copies, const unsigned char* from, unsigned to,
                                                 int thread, int count, bool inside) {
  from += thread % 8 * 16;
  to += (unsigned)(thread / 8 * ATOM_BYTES + ((thread % 8) ^ (thread / 8 % 8)) * 16);
#pragma unroll
  for (int r = 0; r < ROWS_PER_THREAD; ++r) {
    if (FITS && r * 16 >= count) continue;
    const unsigned char* const row = from + (unsigned long long)copies.rows[r] * 16u;
    if (WHOLE)
      copy_unit(to + (unsigned)(r * 16 * ATOM_BYTES), row);
    else
      copy_unit(to + (unsigned)(r * 16 * ATOM_BYTES), inside ? row : from, inside ? 16 : 0);
  }
}
#endif
#if SCALES == 3
static __device__ __forceinline__ void copy_scales(const WgmmaMoeArguments& a, const Copies& copies, int k_atom,
                                                   unsigned to, int thread) {
  if (k_atom * ATOM_BYTES >= a.k_bytes) {
    // Products with zeros behind the end of k: scales need to be finite.
    for (int at = thread; at < SCALE_BYTES / 4; at += PRODUCER_THREADS) store_shared_int(to + (unsigned)(at * 4), 0);
    return;
  }
  const float* const from = a.x_scales + k_atom * a.x_scale_k_step;
#pragma unroll
  for (int r = 0; r < SCALE_COPIES; ++r)
    if (thread + r * 128 < BLOCK_TOKENS) copy_float(to + (unsigned)((thread + r * 128) * 4), from + copies.scales[r]);
  if (thread < SCALE_ROWS)
    copy_float(to + (unsigned)((BLOCK_TOKENS + thread) * 4), a.w_scales + k_atom + copies.weight_scale);
}
#endif

// What was done before the hidden layer was there.
struct Early {
  int stages;  // that have their weight
  int taken;   // items from the counter
};

// Stage 2 starts while the kernel before it still computes the hidden layer: its weights are loaded into all stages, then it waits.
static __device__ __forceinline__ Early load_early(const WgmmaMoeArguments& a, const SharedLayout& smem,
                                                   const Routes& routes, int work_count) {
  Early early = {0, 0};
  Walk walk = first_walk();
#pragma unroll 1
  while (walk.index < work_count) {
    Work work = work_at<true>(a, routes, walk.index);
    work.last = walk.next >= work_count;
#if FP4
    set_next(work, work.last ? work : work_at<true>(a, routes, walk.next));
#endif
#pragma unroll 1
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
      if (early.stages == a.num_stages) return early;
      const unsigned full = smem.full_barriers + 8u * (unsigned)early.stages;
      if (k_tile == 0) store_work(smem, walk.number, work);
      barrier_arrive_expect_tx(full, loaded_bytes(work));
#pragma unroll
      for (int i = 0; i < A_ATOMS; ++i)
        load_weight(a, smem.pipeline + (unsigned)early.stages * STAGE_BYTES + (unsigned)(i * A_ATOM_BYTES),
                    k_tile * A_ATOMS + i, work, full);
      ++early.stages;
    }
    if (DYNAMIC && !work.last) take_item(a, smem, early.taken++);
    advance(smem, walk, work_count);
  }
  return early;
}

static __device__ __forceinline__ void produce(const WgmmaMoeArguments& a, const SharedLayout& smem,
                                               const Routes& routes, int work_count) {
  const int thread = (int)threadIdx.x - CONSUMER_THREADS;
  int stage = 0;
  unsigned phase = 1;
  Early early = {0, 0};
#if STAGE == 2
  if (thread == 0) early = load_early(a, smem, routes, work_count);
  grid_dependency_wait();
#endif
  Walk walk = first_walk();
#if READS_AHEAD
  Work next = {};
  if (walk.index < work_count) next = work_at<false>(a, routes, walk.index);
#endif
  const int take_at =
      a.k_tiles > 3 ? a.k_tiles - 3 : 0;  // late, so that no block has items that another one could begin
#pragma unroll 1
  while (walk.index < work_count) {
#if READS_AHEAD
    Work work = next;
    if (walk.next < work_count) next = work_at<false>(a, routes, walk.next);
#else
    Work work = work_at<false>(a, routes, walk.index);
#endif
    work.last = walk.next >= work_count;
#if FP4
    set_next(work, next);
#endif
#if COPIES
    const Copies copies = copies_of(a, routes, work, thread);
#endif
#pragma unroll 1
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
      const unsigned base = smem.pipeline + (unsigned)stage * STAGE_BYTES;
      const unsigned full = smem.full_barriers + 8u * (unsigned)stage;
      barrier_wait(smem.empty_barriers + 8u * (unsigned)stage, phase);
      if (thread == 0) {
        const bool loaded = early.stages > 0;
        early.stages -= loaded;
        if (!loaded && k_tile == 0) store_work(smem, walk.number, work);
        if (!loaded) barrier_arrive_expect_tx(full, loaded_bytes(work));
#pragma unroll
        for (int i = 0; i < K_ATOMS; ++i) {
          if (!loaded && i < A_ATOMS)
            load_weight(a, base + (unsigned)(i * A_ATOM_BYTES), k_tile * A_ATOMS + i, work, full);
          if (!GATHER) {
#pragma unroll 1
            for (int box = 0; box < boxes_of(work); ++box)
              tma_load(base + (unsigned)(A_BYTES + i * B_ATOM_BYTES + box * BOX_TOKENS * ATOM_BYTES), &a.hidden,
                       (k_tile * K_ATOMS + i) * ATOM_ELEMENTS, work.tile.first + box * BOX_TOKENS, full, 0ull);
          }
        }
      }
#if COPIES
#pragma unroll
      for (int i = 0; i < K_ATOMS; ++i) {
        const int k_atom = k_tile * K_ATOMS + i;
#if GATHER
        const unsigned to = base + (unsigned)(A_BYTES + i * B_ATOM_BYTES);
        const unsigned char* const from = a.x + k_atom * ATOM_BYTES;
        if ((k_atom + 1) * ATOM_BYTES <= a.k_bytes)
          copy_rows<true>(copies, from, to, thread, work.tile.count, true);
        else
          copy_rows<false>(copies, from, to, thread, work.tile.count,
                           k_atom * ATOM_BYTES + thread % 8 * 16 < a.k_bytes);
#endif
#if SCALES == 3
        copy_scales(a, copies, k_atom, smem.scales + (unsigned)((stage * K_ATOMS + i) * SCALE_BYTES), thread);
#endif
      }
      arrive_after_copies(full);
#endif
      if (DYNAMIC && thread == 0 && k_tile == take_at && !work.last && early.taken == walk.number)
        take_item(a, smem, early.taken++);
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
    advance(smem, walk, work_count);
  }
#if COPIES
  wait_for_all_copies();
#endif
}
