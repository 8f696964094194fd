// One stage of a mixture of experts on Hopper: D = A * B^T with A = rows of an expert's weight and B = rows of the tokens that are routed to it (operands are
// swapped, so that a tile may have few tokens). Persistent: blocks walk over the tiles of all experts that have tokens; a weight that no token needs is not read. A
// producer warp group loads stages: A through TMA, B in stage 1 by copies that gather tokens (cp.async), in stage 2 through TMA from the sorted hidden layer.
//
// A gated w1 is loaded in groups of 16 rows, 8 of the gate and the same 8 of the up half, so that a thread's accumulators hold both factors of an element of the
// hidden layer.
//
// WgmmaMoeConfig is what the host compiles it for. The host also defines ELEMENT, OUTPUT (of `to`), SCALES (none, rows, blocks), L2_HINTS, GATED and ACTIVATION
// (moe_activation.cuh; of stage 1), and for min_width tokens and each 16 more, to block_tokens, Instruction<WIDTH>.
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/moe_sort.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/gpu/moe/moe_route_arguments.h"

using gemmtune::cuda::WeightFormat;
using gemmtune::cuda::WgmmaMoeArguments;
using gemmtune::gpu::MoeTile;

static __device__ constexpr gemmtune::cuda::WgmmaMoeConfig config() { return CONFIG; }

#include "backends/cuda/families/weight_format.cuh"

static __device__ constexpr bool scales_rows() { return types().scales == Scales::rows; }
static __device__ constexpr bool scales_blocks() { return types().scales == Scales::blocks; }

enum : int {
  STAGE = config().stage,
  BLOCK_ROWS = config().block_rows,
  BLOCK_TOKENS = config().block_tokens,
  STAGED_TOKENS = config().staged_tokens,
  MIN_WIDTH = config().min_width,
  CONSUMER_WARPGROUPS = config().consumer_warpgroups,
  K_ATOMS = config().k_atoms,
  CLUSTER = config().cluster,
  BLOCKS = config().blocks,
  SORT = config().sort,
  INTERLEAVED = STAGE == 1 && GATED,
  PERMUTED =
      STAGE == 1 && config().fp4 && !GATED,  // rows of w1 in the order of the permuted hidden layer, without a gate
  WITHIN_32 = is_int4(),                     // elements of k are permuted within 32, not within 128
  GATHER = STAGE == 1 && !(config().fp4 && !SORT),  // of a weight of 4 bits tokens come sorted unless blocks sort
  PROMOTE = types().element == Element::e4m3,       // of fp8 the tensor core keeps too few bits of long sums
  A_ATOM_BYTES = BLOCK_ROWS * ATOM_BYTES,
  A_ATOMS = config().fp4 ? 1 : K_ATOMS,  // boxes of 128 bytes of k in a stage: of an MXFP4 weight four atoms of B's k
  A_BYTES = A_ATOMS * A_ATOM_BYTES,
  B_ATOM_BYTES = BLOCK_TOKENS * ATOM_BYTES,
  SHARE_ROWS = BLOCK_ROWS / CLUSTER,  // of A that a block loads
  SCALE_ROWS = BLOCK_ROWS / 8,        // groups of rows of A that share a scale of blocks
  SCALE_BYTES = scales_blocks() ? (BLOCK_TOKENS + SCALE_ROWS) * 4 : 0,  // of a k atom
  STAGE_BYTES = A_BYTES + K_ATOMS * B_ATOM_BYTES,
  // A tile of fewer tokens than BLOCK_TOKENS runs instructions of fewer, in steps of 16, and loads no others.
  WIDTH_STEP = 16,
  FITS = MIN_WIDTH < BLOCK_TOKENS,
  BOX_TOKENS = FITS ? WIDTH_STEP : BLOCK_TOKENS,  // of the hidden layer
  CONSUMER_THREADS = 128 * CONSUMER_WARPGROUPS,
  PRODUCER_THREADS = 128,
  WARPGROUP_ROWS = BLOCK_ROWS / CONSUMER_WARPGROUPS,
  MMA_TILES = WARPGROUP_ROWS / 64,
  TILE_COLUMNS = INTERLEAVED ? BLOCK_ROWS / 2 : BLOCK_ROWS,  // of `to`
  MMA_COLUMNS = INTERLEAVED ? 32 : 64,                       // of one instruction's rows
  COPIES = GATHER || scales_blocks(),                        // the producer's threads copy too
  STAGING_PITCH = MMA_COLUMNS / 2,                           // bytes of a warp's columns
  // Of a warp group.
  STAGING_BYTES = config().fp4         ? 0
                  : config().quantizes ? BLOCK_TOKENS * 128
                                       : STAGED_TOKENS * 4 * STAGING_PITCH,
  SCALE_COPIES = (BLOCK_TOKENS + 127) / 128,  // of a thread of the producer, each k atom
  ROWS_PER_THREAD = BLOCK_TOKENS / 16,        // that a producer thread gathers, 16 bytes of each
  // The producer knows its next tile; without registers for it it waits.
  READS_AHEAD = !(scales_blocks() ? BLOCK_TOKENS > 96 : BLOCK_TOKENS > 160),
};

// warpgroup_barrier and scales_barrier are the first warp group's, those of the others follow; both_barrier is of two in a kernel that quantizes.
enum NamedBarrier { warpgroup_barrier = 1, scales_barrier = 2, both_barrier = 3 };

// Addresses in shared memory. From a multiple of 1024 on:
//
//   pipeline      stage 0 | stage 1 | ... | stage num_stages - 1      a stage: A's atoms (A_BYTES), then B's K_ATOMS atoms
//   staging       a buffer for each warp group, or a part of it for each consumer warp
//   scales        stage 0 | ... | stage num_stages - 1                of blocks; of each k atom BLOCK_TOKENS floats, then SCALE_ROWS
//   work          ITEM_SLOTS x WORK_BYTES
//   items         ITEM_SLOTS x ITEM_BYTES                             a barrier, then an index
//   barriers      full 0 ... | empty 0 ...
struct SharedLayout {
  unsigned pipeline;
  unsigned staging;  // a buffer for each consumer warp
  unsigned scales;   // num_stages x K_ATOMS x SCALE_BYTES: a float of each token, then of each 8 rows of A
  unsigned work;     // ITEM_SLOTS Works, which the producer passes to the consumers
  unsigned items;    // ITEM_SLOTS indices of work items, each behind its barrier
  unsigned full_barriers;
  unsigned empty_barriers;
};
enum : int { WORK_BYTES = 32 };

// Rank of the block in its cluster, and the first two of the work items of the cluster: others come from a counter (DYNAMIC) as blocks become free, because tiles are
// of unequal work. Blocks that sort have few, at a fixed stride.
enum : int {
  DYNAMIC = !SORT,
  ITEM_SLOTS =
      32,  // two more than stages: the producer is at most these ahead of the consumers, and a block of the other one of its cluster
  ITEM_BYTES = 16,
  SHARED_ITEMS = COPIES || CLUSTER > 1,  // several threads walk over the items
};
static __device__ __forceinline__ int rank_of_block() { return CLUSTER > 1 ? cluster_cta_rank() : 0; }
static __device__ __forceinline__ int first_work() { return CLUSTER > 1 ? cluster_index() : (int)blockIdx.x; }
static __device__ __forceinline__ int work_stride() { return CLUSTER > 1 ? cluster_count() : (int)gridDim.x; }

struct Work {
  MoeTile tile;  // the block's share of it; count may be 0 with CLUSTER
  int column;    // first one of `to`
  int row;       // first one of the weight; of an interleaved one in groups of 8 of each half
  int last;      // the block has no other one
  int next_expert,
      next_row;  // of an MXFP4 weight: of the block's next tile, whose scales are loaded early; next_expert < 0: there is none
};

// Pairs by position, and the tiles: of the kernel that sorted them in device memory, or with SORT in shared memory.
struct Routes {
  const int* pair_of;
  const MoeTile* tiles;
  const int* tiles_of;       // by expert
  const SortedTile* sorted;  // with SORT in place of both
  int tile_count;
};

// EARLY: before the grid dependency, when L1 may hold what was there before the sort.
template <bool EARLY>
static __device__ __forceinline__ MoeTile load_tile(const Routes& routes, int index) {
  if constexpr (SORT) return tile_of(routes.sorted[index]);
  if (!EARLY) return routes.tiles[index];
  const int4 bits = __ldcg((const int4*)(routes.tiles + index));
  return {bits.x, bits.y, bits.z, bits.w};
}

// Neighbouring blocks compute all tokens of an expert with the same rows of the weight, then with the next ones.
template <bool EARLY>
static __device__ __forceinline__ Work work_at(const WgmmaMoeArguments& a, const Routes& routes, int index) {
  const int any = index / a.column_tiles;
  const MoeTile one = load_tile<EARLY>(routes, any);
  const int tiles = SORT    ? routes.sorted[any].tiles
                    : EARLY ? __ldcg(routes.tiles_of + one.expert)
                            : routes.tiles_of[one.expert];
  const int first = any - one.index;
  const int local = index - first * a.column_tiles;
  const int across = local / tiles;
  Work work;
  work.tile = load_tile<EARLY>(routes, first + local - across * tiles);
  work.column = across * TILE_COLUMNS;
  work.row = across * BLOCK_ROWS;
  if constexpr (CLUSTER > 1) {
    // Equal shares, so that no block waits for the other one, in multiples of what instructions take.
    int share = (work.tile.count + CLUSTER * WIDTH_STEP - 1) / (CLUSTER * WIDTH_STEP) * WIDTH_STEP;
    if (share > BLOCK_TOKENS) share = BLOCK_TOKENS;
    const int skipped = rank_of_block() * share;
    work.tile.first += skipped;
    work.tile.count = work.tile.count > skipped ? work.tile.count - skipped : 0;
    if (work.tile.count > share) work.tile.count = share;
  }
  return work;
}

// The producer passes the work to the consumers with the first stage of its tile, the block's `number`-th.
static __device__ __forceinline__ void store_work(const SharedLayout& smem, int number, const Work& work) {
  const unsigned to = smem.work + (unsigned)(number % ITEM_SLOTS) * WORK_BYTES;
  store_shared_ints(to, work.tile.expert, work.tile.first, work.tile.count, work.column);
  store_shared_ints(to + 16u, work.row, work.last);
  if constexpr (config().fp4) store_shared_ints(to + 24u, work.next_expert, work.next_row);
}
static __device__ __forceinline__ Work read_work(unsigned from) {
  Work work;
  work.tile.index = 0;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(work.tile.expert), "=r"(work.tile.first), "=r"(work.tile.count), "=r"(work.column)
               : "r"(from)
               : "memory");
  if constexpr (config().fp4) {
    asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];"
                 : "=r"(work.next_expert), "=r"(work.next_row)
                 : "r"(from + 24u)
                 : "memory");
    work.row = INTERLEAVED ? 2 * work.column : work.column;
    work.last = work.next_expert < 0;
  } else {
    asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(work.row), "=r"(work.last) : "r"(from + 16u) : "memory");
  }
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
  if constexpr (CLUSTER > 1) {
    barrier_arrive_expect_tx(slot, 4);
    if (rank_of_block() > 0) return;
  }
  const int item = atomicAdd(a.tile_count + STAGE, 1) + 2 * work_stride();
  if constexpr (CLUSTER > 1) {
#pragma unroll
    for (int rank = 0; rank < CLUSTER; ++rank)
      store_async(remote_address(slot + 8u, rank), item, remote_address(slot, rank));
  } else {
    store_shared_int(slot + 8u, item);
    if (SHARED_ITEMS) barrier_arrive(slot);
  }
}

static __device__ __forceinline__ void advance(const SharedLayout& smem, Walk& walk, int work_count) {
  walk.index = walk.next;
  if (walk.next >= work_count) return;
  if constexpr (DYNAMIC) {
    const unsigned slot = smem.items + (unsigned)(walk.number % ITEM_SLOTS * ITEM_BYTES);
    if (SHARED_ITEMS) barrier_wait(slot, (unsigned)(walk.number / ITEM_SLOTS % 2));
    walk.next = load_shared_int(slot + 8u);
  } else {
    walk.next += work_stride();
  }
  ++walk.number;
}

// Adds to `work` what its tile's scales need to know of `next`, which may be none.
static __device__ __forceinline__ void set_next(Work& work, const Work& next) {
  work.next_expert = work.last ? -1 : next.tile.expert;
  work.next_row = next.row;
}

// Loads a box of an expert's weight from row `row` on; with CLUSTER to both blocks.
static __device__ __forceinline__ void load_rows(unsigned to, const TensorMap* map, int column, int row, int expert,
                                                 unsigned barrier) {
  if constexpr (CLUSTER > 1) {
    const unsigned short mask = (1u << CLUSTER) - 1u;
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::
            "r"(to),
        "l"(map), "r"(column), "r"(row), "r"(expert), "r"(barrier), "h"(mask)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
            "r"(to),
        "l"(map), "r"(column), "r"(row), "r"(expert), "r"(barrier)
        : "memory");
  }
}

// The same of an interleaved w1, from group `group` of 8 rows of each half on.
static __device__ __forceinline__ void load_groups(unsigned to, const TensorMap* map, int column, int group, int expert,
                                                   unsigned barrier) {
  if constexpr (CLUSTER > 1) {
    const unsigned short mask = (1u << CLUSTER) - 1u;
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::
            "r"(to),
        "l"(map), "r"(column), "r"(0), "r"(0), "r"(group), "r"(expert), "r"(barrier), "h"(mask)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::
            "r"(to),
        "l"(map), "r"(column), "r"(0), "r"(0), "r"(group), "r"(expert), "r"(barrier)
        : "memory");
  }
}

// Loads 256 of k of a weight of 4 bits. Of w1 the tile has, but for int4, 8 * W neighbouring features of each of 4 x 32, W = BLOCK_ROWS / 64, or without a gate / 32: those that lie at
// neighbouring columns of the permuted hidden layer (permuted_row()).
static __device__ __forceinline__ void load_fp4_weight(const WgmmaMoeArguments& a, unsigned to, int k_box,
                                                       const Work& work, unsigned barrier) {
  if constexpr (INTERLEAVED && WITHIN_32) {
    load_groups(to, &a.w, k_box * ATOM_BYTES, work.row / 16, work.tile.expert, barrier);
  } else if constexpr (INTERLEAVED) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      // Features are permuted within 128: 16 groups of 8.
      const int group = work.column / 128 * 16 + t * 4 + work.column % 128 / 32;
      load_groups(to + (unsigned)(t * (A_ATOM_BYTES / 4)), &a.w, k_box * ATOM_BYTES, group, work.tile.expert, barrier);
    }
  } else if constexpr (PERMUTED && !WITHIN_32) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int row = work.column / 128 * 128 + t * 32 + work.column % 128 / 4;
      load_rows(to + (unsigned)(t * (A_ATOM_BYTES / 4)), &a.w, k_box * ATOM_BYTES, row, work.tile.expert, barrier);
    }
  } else {
    load_rows(to, &a.w, k_box * ATOM_BYTES, work.row, work.tile.expert, barrier);
  }
}

// Loads the block's share of a k atom of the weight, with CLUSTER to both blocks. `to`: of the whole tile.
static __device__ __forceinline__ void load_weight(const WgmmaMoeArguments& a, unsigned to, int k_atom,
                                                   const Work& work, unsigned barrier) {
  if constexpr (config().fp4) {
    load_fp4_weight(a, to, k_atom, work, barrier);
  } else {
    const int share = rank_of_block() * SHARE_ROWS;
    to += (unsigned)(share * ATOM_BYTES);
    if constexpr (INTERLEAVED)
      load_groups(to, &a.w, k_atom * ATOM_ELEMENTS, (work.row + share) / 16, work.tile.expert, barrier);
    else
      load_rows(to, &a.w, k_atom * ATOM_ELEMENTS, work.row + share, work.tile.expert, barrier);
  }
}

// What a thread of the producer copies. Few instructions for each copy matter more than anything else here: a warp scheduler has one such warp.
struct Copies {
  unsigned rows[ROWS_PER_THREAD];  // of x, in units of 16 bytes (GATHER)
  unsigned scales[SCALE_COPIES];   // of tokens, from a k atom's first one (Scales::blocks)
  unsigned weight_scale;
};

static __device__ __forceinline__ Copies copies_of(const WgmmaMoeArguments& a, const Routes& routes, const Work& work,
                                                   int thread) {
  Copies copies;
  // Tokens that the tile lacks: the last one instead, whose products are not stored. A tile of none copies the first token of all.
  const int last = work.tile.count > 0 ? work.tile.count - 1 : 0;
  const int first = work.tile.count > 0 ? work.tile.first : 0;
  if constexpr (GATHER) {
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
      const int at = thread / 8 + i * 16;
      copies.rows[i] = (unsigned)routes.pair_of[first + (at < last ? at : last)];
    }
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i)
      copies.rows[i] = copies.rows[i] / (unsigned)a.topk * (unsigned)(a.x_row_bytes / 16);
  }
  if constexpr (scales_blocks()) {
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
  }
  return copies;
}

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
    if constexpr (config().fp4) set_next(work, work.last ? work : work_at<true>(a, routes, walk.next));
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

// Copies k tile `k_tile` of the tokens, and of scales of blocks: all threads of the producer.
static __device__ __forceinline__ void copy_stage(const WgmmaMoeArguments& a, const SharedLayout& smem,
                                                  const Copies& copies, const Work& work, int k_tile, int stage,
                                                  int thread) {
  const unsigned base = smem.pipeline + (unsigned)stage * STAGE_BYTES;
#pragma unroll
  for (int i = 0; i < K_ATOMS; ++i) {
    const int k_atom = k_tile * K_ATOMS + i;
    if constexpr (GATHER) {
      const unsigned to = base + (unsigned)(A_BYTES + i * B_ATOM_BYTES);
      const unsigned char* const from = a.x + k_atom * ATOM_BYTES;
      if ((k_atom + 1) * ATOM_BYTES <= a.k_bytes)
        copy_rows<true>(copies, from, to, thread, work.tile.count, true);
      else
        copy_rows<false>(copies, from, to, thread, work.tile.count, k_atom * ATOM_BYTES + thread % 8 * 16 < a.k_bytes);
    }
    if constexpr (scales_blocks())
      copy_scales(a, copies, k_atom, smem.scales + (unsigned)((stage * K_ATOMS + i) * SCALE_BYTES), thread);
  }
  arrive_after_copies(smem.full_barriers + 8u * (unsigned)stage);
}

// The producer: loads the stages of all of the block's tiles.
static __device__ __forceinline__ void load(const WgmmaMoeArguments& a, const SharedLayout& smem, const Routes& routes,
                                            int work_count) {
  const int thread = (int)threadIdx.x - CONSUMER_THREADS;
  int stage = 0;
  unsigned phase = 1;
  Early early = {0, 0};
  if constexpr (STAGE == 2) {
    if (thread == 0) early = load_early(a, smem, routes, work_count);
    grid_dependency_wait();
  }
  Walk walk = first_walk();
  Work next = {};
  if constexpr (READS_AHEAD) {
    if (walk.index < work_count) next = work_at<false>(a, routes, walk.index);
  }
  const int take_at =
      a.k_tiles > 3 ? a.k_tiles - 3 : 0;  // late, so that no block has items that another one could begin
#pragma unroll 1
  while (walk.index < work_count) {
    Work work;
    if constexpr (READS_AHEAD) {
      work = next;
      if (walk.next < work_count) next = work_at<false>(a, routes, walk.next);
    } else {
      work = work_at<false>(a, routes, walk.index);
    }
    work.last = walk.next >= work_count;
    if constexpr (config().fp4) set_next(work, next);
    Copies copies;
    if constexpr (COPIES) copies = copies_of(a, routes, work, thread);
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
      if constexpr (COPIES) copy_stage(a, smem, copies, work, k_tile, stage, thread);
      if (DYNAMIC && thread == 0 && k_tile == take_at && !work.last && early.taken == walk.number)
        take_item(a, smem, early.taken++);
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
    advance(smem, walk, work_count);
  }
  if constexpr (COPIES) wait_for_all_copies();
}
