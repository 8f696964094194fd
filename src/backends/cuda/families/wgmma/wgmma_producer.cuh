// y[m, n] = sum over k of x[m, k] * w[n, k] on Hopper: D = A * B^T with A, B = x, w or, with swap_ab, w, x. One producer warp loads
// stages of A and B through TMA; one or two consumer warp groups multiply. Cooperative schedule: each warp group computes its half of
// the rows of every tile. Ping-pong schedule (ping_pong): the warp groups compute alternate tiles, so that the epilogue of one overlaps
// the mainloop of the other.
//
// Blocks of a cluster share operands through multicast (cluster_m blocks along A's rows load the same rows of B, cluster_n blocks
// along B's rows the same rows of A; each loads a part of the shared operand for all), divide k (split_k, reduced in a fixed order), or both.
//
// WgmmaConfig is what the host compiles it for. The host also defines L2_HINTS, WGMMA(d, a, b, scale_d) (one instruction: 64 x block_n / n_slices x 32
// bytes of k; adds to d unless scale_d is 0), WGMMA_FIRST(d, a, b) (sets d), and FENCE_ACCUMULATORS(d) (the compiler neither moves a use of d, the accumulators of
// an instruction, across it nor keeps a copy of d).
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"

using gemmtune::cuda::FastDivisor;
using gemmtune::cuda::WgmmaArguments;

static __device__ constexpr gemmtune::cuda::WgmmaConfig config() { return CONFIG; }
static __device__ constexpr bool scales_blocks() { return types().scales == Scales::blocks; }

enum : int {
  SWAP_AB = config().swap_ab,
  BLOCK_M = config().block_m,
  BLOCK_N = config().block_n,
  K_ATOMS = config().k_atoms,
  SPLIT_K = config().split_k,
  MULTICAST = config().multicast,
  SINGLE_TILE = config().single_tile,
  PING_PONG = config().ping_pong,
  A_ATOM_BYTES = BLOCK_M * ATOM_BYTES,
  B_ATOM_BYTES = BLOCK_N * ATOM_BYTES,
  STAGE_BYTES = K_ATOMS * (A_ATOM_BYTES + B_ATOM_BYTES),
  CONSUMER_THREADS = 128 * config().consumer_warpgroups,
  // The first warp loads operands, the second scales of blocks.
  PRODUCER_THREADS = config().producer_registers > 0 ? 128
                     : scales_blocks()               ? 64
                                                     : 32,
  WARPGROUP_M = PING_PONG ? BLOCK_M : BLOCK_M / config().consumer_warpgroups,  // rows of A for each warp group
  MMA_TILES = WARPGROUP_M / 64,                                                // of 64 rows, one instruction each
};

// warpgroup_barrier and order_barrier are the first warp group's, the second one's follow.
enum NamedBarrier { warpgroup_barrier = 1, order_barrier = 3 };

static __device__ inline int divide(int n, const FastDivisor& by) {
  return by.multiplier == 0 ? n : (int)(__umulhi((unsigned)n, by.multiplier) >> by.shift);
}

// Log2 of the cluster's dimensions along A's and B's rows.
static __device__ inline int log2_cluster_m(const WgmmaArguments& a) { return MULTICAST ? a.log2_cluster_m : 0; }
static __device__ inline int log2_cluster_n(const WgmmaArguments& a) { return MULTICAST ? a.log2_cluster_n : 0; }

// Addresses in shared memory. From a multiple of 1024 on:
//
//   pipeline      stage 0 | stage 1 | ... | stage num_stages - 1      a stage: A's K_ATOMS atoms, then B's K_ATOMS atoms
//   staging       the epilogue's staging buffers; with split-K the partial sums of the other blocks
//   scales        place 0 | ... | place scale_groups - 1              a place: rows of x, then blocks of w, 16 bytes each
//   barriers      full 0 ... | empty 0 ... | partials | scales of place 0 ...
struct SharedLayout {
  unsigned pipeline;
  unsigned staging;
  unsigned scales;         // of blocks
  unsigned full_barriers;  // one for each stage
  unsigned empty_barriers;
  unsigned scale_barriers;    // one for each place of scales of blocks: it is full
  unsigned partials_barrier;  // completes when the partial sums of the other blocks have arrived
};

struct Tile {
  int a, b;  // first rows of A and B
  int batch;
};

// Rasterization: consecutive tiles walk down group_m tiles along A's rows before they move on along B's rows, so that tiles that run
// at the same time share operands in L2.
static __device__ inline Tile tile_at(const WgmmaArguments& a, int index, int rank_m, int rank_n) {
  int batch = 0;
  if constexpr (types().batched) {
    batch = divide(index, a.batch_tiles);
    index -= batch * a.batch_tiles.divisor;
  }
  const int group = divide(index, a.group_tiles);
  const int within = index - group * a.group_tiles.divisor;
  const FastDivisor rows = group < a.full_groups ? a.group_m : a.last_group_m;
  const int across = divide(within, rows);
  Tile tile;
  tile.a = (((group * a.group_m.divisor + within - across * rows.divisor) << log2_cluster_m(a)) + rank_m) * BLOCK_M;
  tile.b = ((across << log2_cluster_n(a)) + rank_n) * BLOCK_N;
  tile.batch = batch;
  return tile;
}

// The share of the problem that a block computes.
struct BlockWork {
  int split;           // index of its part of k
  int first_rank;      // rank of the first block of the cluster with the same part of k
  int rank_m, rank_n;  // position among those blocks
  int k_begin, k_end;  // in k tiles
};

// The tile that the cluster computes in its round `round`. Consumers make it anew for each round: beside the widest accumulators there is no register for it.
// Without split-K a cluster's size is a power of two, and no division is needed (%clusterid is one).
static __device__ __forceinline__ int tile_index(const WgmmaArguments& a, int round) {
  if constexpr (SPLIT_K > 1) return round == 0 ? cluster_index() : a.tiles;
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return (block >> (log2_cluster_m(a) + log2_cluster_n(a))) +
         round * ((int)gridDim.x >> (log2_cluster_m(a) + log2_cluster_n(a)));
}

static __device__ inline BlockWork block_work(const WgmmaArguments& a) {
  const int rank = cluster_cta_rank();
  BlockWork work;
  work.split = SPLIT_K == 1 ? 0 : rank >> (log2_cluster_m(a) + log2_cluster_n(a));
  work.first_rank = work.split << (log2_cluster_m(a) + log2_cluster_n(a));
  work.rank_m = rank & ((1 << log2_cluster_m(a)) - 1);
  work.rank_n = (rank - work.first_rank) >> log2_cluster_m(a);
  // The first splits have a k tile more than the others, as in the skinny kernel: then both add partial sums of the same k.
  const int k_tiles = (int)((unsigned)a.k_tiles / SPLIT_K);
  const int larger = (int)((unsigned)a.k_tiles % SPLIT_K);
  work.k_begin = work.split * k_tiles + (work.split < larger ? work.split : larger);
  work.k_end = work.k_begin + k_tiles + (work.split < larger ? 1 : 0);
  return work;
}

// ---- producer warp

enum class Operand { a, b };
static __device__ constexpr Operand weight_operand() { return SWAP_AB ? Operand::a : Operand::b; }
static __device__ constexpr Operand x_operand() { return SWAP_AB ? Operand::b : Operand::a; }
static __device__ constexpr int rows_of(Operand operand) { return operand == Operand::a ? BLOCK_M : BLOCK_N; }
static __device__ constexpr bool is_mn_major(Operand operand) {
  return operand == Operand::a ? config().a_mn_major : config().b_mn_major;
}

// Boxes of x do not go past its end: TMA takes longer for rows that are not there than for rows that it reads. Rows of a tile that no
// box has stay as they are; each makes a row of y that is not stored.
static __device__ constexpr bool loads_boxes_of_x(Operand operand) {
  return operand == x_operand() && !is_mn_major(operand);
}

// The part of an operand that this block loads, and the blocks that receive it. Blocks that share an operand divide its rows; of an
// MN-major one they divide each atom's k.
struct OperandShare {
  int row;  // first one within the tile, with last_x of x as a multiple of a box's; of an MN-major operand first k within an atom
  unsigned multicast;  // mask of the receiving blocks; 0: this block alone
  unsigned long long policy;
};
struct ProducerShare {
  OperandShare a, b;
};

static __device__ inline ProducerShare producer_share(const WgmmaArguments& a, const BlockWork& work) {
  const unsigned long long first = evict_first();
  const unsigned long long last = evict_last();
  constexpr int a_shared = is_mn_major(Operand::a) ? ATOM_ELEMENTS : BLOCK_M;
  constexpr int b_shared = is_mn_major(Operand::b) ? ATOM_ELEMENTS : BLOCK_N;
  ProducerShare share;
  const int x_box_rows = config().last_x ? 1 : a.x_box_rows;
  share.a.row = work.rank_n * (loads_boxes_of_x(Operand::a) ? x_box_rows : a_shared >> log2_cluster_n(a));
  share.b.row = work.rank_m * (loads_boxes_of_x(Operand::b) ? x_box_rows : b_shared >> log2_cluster_m(a));
  share.a.multicast = 0;
  share.b.multicast = 0;
  if (log2_cluster_n(a) > 0) {
#pragma unroll 1
    for (int i = 0; i < 1 << log2_cluster_n(a); ++i)
      share.a.multicast |= 1u << (work.first_rank + work.rank_m + (i << log2_cluster_m(a)));
  }
  if (log2_cluster_m(a) > 0)
    share.b.multicast = ((1u << (1 << log2_cluster_m(a))) - 1u)
                        << (work.first_rank + (work.rank_n << log2_cluster_m(a)));
  share.a.policy = SWAP_AB ? first : last;
  share.b.policy = SWAP_AB ? last : first;
  return share;
}

enum : int {
  WEIGHT_ROWS = rows_of(weight_operand()),
  // 1: the block's rows fill whole tiles of the packed weight or lie in one. With multicast each block loads parts of tiles.
  WHOLE_RUNS = !MULTICAST && (WEIGHT_ROWS % 64 == 0 || 64 % WEIGHT_ROWS == 0),
  // Maximum number of packed tiles that the block's rows touch. If BLOCK_M or BLOCK_N neither divides 64 nor is a multiple of it, up to
  // 56 rows of the first tile precede the block's rows.
  MAX_RUNS = (WEIGHT_ROWS + (WEIGHT_ROWS % 64 == 0 || 64 % WEIGHT_ROWS == 0 ? 63 : 119)) / 64,
};

// The contiguous runs of one k atom of a packed weight that are loaded for a tile. The next k atom's runs follow at 64 rows.
struct WeightRuns {
  unsigned from[MAX_RUNS];   // for the first k atom, in rows of 128 bytes
  unsigned bytes[MAX_RUNS];  // 0: no such run
};

// Rows past the last tile are replaced by rows of the last tile; their products are not stored.
static __device__ inline WeightRuns weight_runs(const WgmmaArguments& a, int row, int rows) {
  WeightRuns runs;
  const int within = WHOLE_RUNS && WEIGHT_ROWS % 64 == 0 ? 0 : row % 64;
#pragma unroll
  for (int r = 0; r < MAX_RUNS; ++r) {
    int tile = row / 64 + r;
    tile = tile < a.packed.tiles ? tile : a.packed.tiles - 1;
    const int most = r == 0 ? 64 - within : 64;
    const int here = WHOLE_RUNS ? (WEIGHT_ROWS < 64 ? WEIGHT_ROWS : 64) : rows < most ? rows : most;
    runs.from[r] = (unsigned)(tile * a.packed.k_atoms) * 64u + (unsigned)(r == 0 ? within : 0);
    runs.bytes[r] = (unsigned)here * ATOM_BYTES;
    rows -= here;
  }
  return runs;
}

static __device__ inline const unsigned char* run_address(const WgmmaArguments& a, const WeightRuns& runs, int r,
                                                          int k_atom) {
  return a.packed.data + (unsigned long long)(runs.from[r] + (unsigned)k_atom * 64u) * ATOM_BYTES;
}

// The k atoms of a packed tile are contiguous in memory. In a stage they are contiguous if it holds 64 rows; one copy then loads all
// of the stage's weight.
static __device__ inline void load_runs(const WgmmaArguments& a, const WeightRuns& runs, unsigned to, int k_atom, int i,
                                        unsigned barrier, unsigned multicast, unsigned long long policy) {
  if (WHOLE_RUNS && WEIGHT_ROWS == 64) {
    if (i == 0) bulk_load(to, run_address(a, runs, 0, k_atom), K_ATOMS * runs.bytes[0], barrier, multicast, policy);
    return;
  }
#pragma unroll
  for (int r = 0; r < MAX_RUNS; ++r) {
    if (WHOLE_RUNS || runs.bytes[r] > 0)
      bulk_load(to, run_address(a, runs, r, k_atom), runs.bytes[r], barrier, multicast, policy);
    to += runs.bytes[r];
  }
}

// Whether the rows of x that come with a tile are the last ones, or none: then boxes have last_x_box_rows of them.
static __device__ __forceinline__ bool has_last_rows(const WgmmaArguments& a, const Tile& tile) {
  return config().last_x && (SWAP_AB ? tile.b : tile.a) >= a.last_x_row;
}

// Of a stage of a tile.
static __device__ __forceinline__ int loaded_bytes(const WgmmaArguments& a, const Tile& tile) {
  return has_last_rows(a, tile) ? a.last_loaded_bytes : a.loaded_bytes;
}

// The tile that is being loaded.
struct ProducerTile {
  Tile tile;
  WeightRuns runs;  // of a packed weight
};

static __device__ inline ProducerTile producer_tile(const WgmmaArguments& a, const ProducerShare& share,
                                                    const Tile& tile) {
  ProducerTile target;
  target.tile = tile;
  if constexpr (config().packed)
    target.runs = weight_runs(a, SWAP_AB ? tile.a + share.a.row : tile.b + share.b.row,
                              SWAP_AB ? BLOCK_M >> log2_cluster_n(a) : BLOCK_N >> log2_cluster_m(a));
  return target;
}

// Loads this block's k of an atom of an MN-major operand: a box for each group of 64 rows. `row`: the tile's first; `first_k`: within the
// atom; `to`: where that k is in the first group.
template <int ROWS>
static __device__ inline void load_mn_major(unsigned to, const TensorMap* map, int k_atom, int first_k, int row,
                                            unsigned barrier, unsigned multicast, unsigned long long policy) {
#pragma unroll
  for (int group = 0; group < ROWS / MN_GROUP; ++group)
    tma_load(to + (unsigned)(group * MN_GROUP_BYTES), map, row + group * MN_GROUP, k_atom * ATOM_ELEMENTS + first_k,
             barrier, multicast, policy, 0);
}

// Loads this block's share of k atom i of an operand's stage.
template <Operand OPERAND>
static __device__ inline void load_operand(const WgmmaArguments& a, const SharedLayout& smem,
                                           const ProducerShare& shares, const ProducerTile& target, int k_tile,
                                           int stage, int i) {
  constexpr bool is_a = OPERAND == Operand::a;
  const OperandShare& share = is_a ? shares.a : shares.b;
  const int atom = is_a ? i * A_ATOM_BYTES : K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES;
  const bool last = loads_boxes_of_x(OPERAND) && has_last_rows(a, target.tile);
  const bool counts_boxes = config().last_x && loads_boxes_of_x(OPERAND);
  const int within = counts_boxes ? share.row * (last ? a.last_x_box_rows : a.x_box_rows) : share.row;
  const unsigned to = smem.pipeline + (unsigned)stage * STAGE_BYTES + (unsigned)(atom + within * ATOM_BYTES);
  const int k_atom = k_tile * K_ATOMS + i;
  const unsigned barrier = smem.full_barriers + 8u * (unsigned)stage;
  const int row = is_a ? target.tile.a : target.tile.b;
  if constexpr (config().packed && OPERAND == weight_operand()) {
    load_runs(a, target.runs, to, k_atom, i, barrier, MULTICAST ? share.multicast : 0, share.policy);
  } else if constexpr (is_mn_major(OPERAND)) {
    load_mn_major<rows_of(OPERAND)>(to, is_a ? &a.a : &a.b, k_atom, share.row, row, barrier,
                                    MULTICAST ? share.multicast : 0, share.policy);
  } else {
    const TensorMap* map = last ? &a.last_x : is_a ? &a.a : &a.b;
    tma_load(to, map, k_atom * ATOM_ELEMENTS, row + within, barrier, MULTICAST ? share.multicast : 0, share.policy,
             target.tile.batch);
  }
}

// Scales of blocks come in groups of k atoms, aligned ones; with split-K the first of a block may begin in the middle.
enum : int {
  GROUP_ATOMS = 4,
  GROUP_STAGES = GROUP_ATOMS / K_ATOMS,  // 4 or 2
};
static __device__ __forceinline__ void load_group_scales(const WgmmaArguments& a, const SharedLayout& smem,
                                                         const Tile& tile, int k_atom, int group,
                                                         unsigned long long x_policy,
                                                         unsigned long long w_policy);  // wgmma_block_scales.cuh

// Whether the block's first k tile of a group is `k_tile`.
static __device__ __forceinline__ bool begins_group(const BlockWork& work, int k_tile) {
  return (unsigned)k_tile % GROUP_STAGES == 0 || (SPLIT_K > 1 && k_tile == work.k_begin);
}

// With the stage of k tile `k_tile`: scales of a group that begins there. `group`: the place of the next group.
static __device__ __forceinline__ void load_scales(const WgmmaArguments& a, const SharedLayout& smem,
                                                   const ProducerShare& share, const BlockWork& work,
                                                   const ProducerTile& target, int k_tile, int& group) {
  if constexpr (scales_blocks() && !types().e8m0) {
    if (!a.scale_maps || !begins_group(work, k_tile)) return;
    load_group_scales(a, smem, target.tile, (int)((unsigned)k_tile / GROUP_STAGES) * GROUP_ATOMS, group,
                      SWAP_AB ? share.b.policy : share.a.policy, SWAP_AB ? share.a.policy : share.b.policy);
    if (++group == a.scale_groups) group = 0;
  }
}

// Prefetches this block's part of the weight into L2, from k tile `k_tile` on.
static __device__ inline void prefetch_weight(const WgmmaArguments& a, const ProducerShare& shares,
                                              const ProducerTile& target, int k_tile, int end) {
  if (end > k_tile + a.prefetch_k_tiles) end = k_tile + a.prefetch_k_tiles;
  const OperandShare& share = SWAP_AB ? shares.a : shares.b;
  if constexpr (config().packed && WHOLE_RUNS && WEIGHT_ROWS == 64) {
    if (k_tile < end)
      bulk_prefetch(run_address(a, target.runs, 0, k_tile * K_ATOMS),
                    (unsigned)((end - k_tile) * K_ATOMS) * target.runs.bytes[0], share.policy);
    return;
  }
#pragma unroll 1
  for (int k_atom = k_tile * K_ATOMS; k_atom < end * K_ATOMS; ++k_atom) {
    const int row = SWAP_AB ? target.tile.a : target.tile.b;
    if constexpr (config().packed) {
#pragma unroll
      for (int r = 0; r < MAX_RUNS; ++r)
        if (WHOLE_RUNS || target.runs.bytes[r] > 0)
          bulk_prefetch(run_address(a, target.runs, r, k_atom), target.runs.bytes[r], share.policy);
    } else if constexpr (is_mn_major(weight_operand())) {
#pragma unroll
      for (int group = 0; group < WEIGHT_ROWS / MN_GROUP; ++group)
        tma_prefetch(SWAP_AB ? &a.a : &a.b, row + group * MN_GROUP, k_atom * ATOM_ELEMENTS + share.row, share.policy);
    } else {
      tma_prefetch(SWAP_AB ? &a.a : &a.b, k_atom * ATOM_ELEMENTS, row + share.row, share.policy, target.tile.batch);
    }
  }
}

// A dependent launch loads the weight into all stages while the previous kernel still runs; x follows after the grid dependency.
static __device__ inline int load_early(const WgmmaArguments& a, const SharedLayout& smem, const ProducerShare& share,
                                        const BlockWork& work, const ProducerTile& target, int& group) {
  const int k_tiles = work.k_end - work.k_begin;
  const int early = k_tiles < a.num_stages ? k_tiles : a.num_stages;
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
    barrier_arrive_expect_tx(smem.full_barriers + 8u * (unsigned)stage, loaded_bytes(a, target.tile));
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i)
      load_operand<weight_operand()>(a, smem, share, target, work.k_begin + stage, stage, i);
  }
  prefetch_weight(a, share, target, work.k_begin + early, work.k_end);
  grid_dependency_wait();
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i) load_operand<x_operand()>(a, smem, share, target, work.k_begin + stage, stage, i);
    load_scales(a, smem, share, work, target, work.k_begin + stage, group);
  }
  return early;
}

// The producer: loads the stages of all of the block's tiles. `target`: the first of these.
static __device__ inline void load(const WgmmaArguments& a, const SharedLayout& smem, const BlockWork& work,
                                   const ProducerShare& share, ProducerTile target) {
  int early = 0;
  int group = 0;
  if (a.dependent_launch) {
    early = load_early(a, smem, share, work, target, group);
  } else {
    prefetch_weight(a, share, target, work.k_begin, work.k_end);
    grid_dependency_wait();
  }
  PipelineState state = {early == a.num_stages ? 0 : early, early == a.num_stages ? 0u : 1u};
  int begin = work.k_begin + early;
  for (int index = tile_index(a, 0); index < a.tiles;) {
#pragma unroll 1
    for (int k_tile = begin; k_tile < work.k_end; ++k_tile) {
      barrier_wait(smem.empty_barriers + 8u * (unsigned)state.stage, state.phase);
      barrier_arrive_expect_tx(smem.full_barriers + 8u * (unsigned)state.stage, loaded_bytes(a, target.tile));
#pragma unroll
      for (int i = 0; i < K_ATOMS; ++i) {
        load_operand<Operand::a>(a, smem, share, target, k_tile, state.stage, i);
        load_operand<Operand::b>(a, smem, share, target, k_tile, state.stage, i);
      }
      load_scales(a, smem, share, work, target, k_tile, group);
      next_stage(state, a.num_stages);
    }
    begin = work.k_begin;
    index = SPLIT_K > 1 ? a.tiles : index + ((int)gridDim.x >> (log2_cluster_m(a) + log2_cluster_n(a)));
    if (index < a.tiles) target = producer_tile(a, share, tile_at(a, index, work.rank_m, work.rank_n));
  }
}
