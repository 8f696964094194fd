// y[m, n] = sum over k of x[m, k] * w[n, k] on Hopper: D = A * B^T with A, B = x, w or, with SWAP_AB, w, x. One producer warp loads
// stages of A and B through TMA; one or two consumer warp groups multiply. Cooperative schedule: each warp group computes its half of
// the rows of every tile. Ping-pong schedule (PING_PONG): the warp groups compute alternate tiles, so that the epilogue of one overlaps
// the mainloop of the other.
//
// Blocks of a cluster share operands through multicast (cluster_m blocks along A's rows load the same rows of B, cluster_n blocks
// along B's rows the same rows of A; each loads a part of the shared operand for all), divide k (SPLIT_K, reduced in a fixed order), or both.
//
// The host defines: BLOCK_M, BLOCK_N, CONSUMER_WARPGROUPS (1, 2), PING_PONG, SWAP_AB, SPLIT_K (blocks that divide k), SINGLE_TILE (1: each
// block computes one tile, the kernel is not persistent), STAGING_BUFFERS (1 or 2: of each warp, for results), MULTICAST (1: blocks share operands), K_ATOMS (BLOCK_K in units of 128 bytes),
// L2_HINTS, BIAS, SCALES, PACKED (1: the weight has the layout tile64x128), A_MN_MAJOR, B_MN_MAJOR (1: the operand is column-major in
// global memory and MN-major in shared memory; two-byte elements, BLOCK_N a multiple of 64 for B), ELEMENT, OUTPUT,
// PROMOTION (sets of partial sums that are added to float32 registers after every 128 of k; 0: the tensor core accumulates over all of k),
// BATCHED (1: x, w and y are batches of matrices, of which each tile is one's), PRODUCER_REGISTERS, CONSUMER_REGISTERS (registers a thread after a reallocation, for which the producer is a warp group; 0: none),
// N_SLICES (instructions along BLOCK_N: 1; with PROMOTION 1: 1 or 2), WGMMA(d, a, b, scale_d) (one instruction: 64 x BLOCK_N / N_SLICES x 32
// bytes of k; adds to d unless scale_d is 0), FENCE_ACCUMULATORS(d) (the compiler neither moves a use of d, the accumulators of an instruction,
// across it nor keeps a copy of d).
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

#define A_ATOM_BYTES (BLOCK_M * ATOM_BYTES)
#define B_ATOM_BYTES (BLOCK_N * ATOM_BYTES)
#define STAGE_BYTES (K_ATOMS * (A_ATOM_BYTES + B_ATOM_BYTES))
#define CONSUMER_THREADS (128 * CONSUMER_WARPGROUPS)
#define PRODUCER_THREADS \
  (PRODUCER_REGISTERS ? 128 : SCALES == 3 ? 64 : 32)  // the first warp loads operands, the second scales of blocks
#define WARPGROUP_M (PING_PONG ? BLOCK_M : BLOCK_M / CONSUMER_WARPGROUPS)  // rows of A for each warp group
#define MMA_TILES (WARPGROUP_M / 64)                                       // of 64 rows, one instruction each

// warpgroup_barrier and order_barrier are the first warp group's, the second one's follow.
enum NamedBarrier { warpgroup_barrier = 1, order_barrier = 3 };

static __device__ inline int divide(int n, const FastDivisor& by) {
  return by.multiplier == 0 ? n : (int)(__umulhi((unsigned)n, by.multiplier) >> by.shift);
}

// Log2 of the cluster's dimensions along A's and B's rows.
#define LOG2_CLUSTER_M (MULTICAST ? a.log2_cluster_m : 0)
#define LOG2_CLUSTER_N (MULTICAST ? a.log2_cluster_n : 0)

// Addresses in shared memory.
struct SharedLayout {
  unsigned pipeline;       // num_stages x STAGE_BYTES; a stage holds K_ATOMS atoms of A, then K_ATOMS atoms of B
  unsigned staging;        // the epilogue's staging buffers; with SPLIT_K the partial sums of the other blocks
  unsigned scales;         // of blocks: scale_groups places
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
  const int batch = BATCHED ? divide(index, a.batch_tiles) : 0;
  index -= BATCHED ? batch * a.batch_tiles.divisor : 0;
  const int group = divide(index, a.group_tiles);
  const int within = index - group * a.group_tiles.divisor;
  const FastDivisor rows = group < a.full_groups ? a.group_m : a.last_group_m;
  const int across = divide(within, rows);
  Tile tile;
  tile.a = (((group * a.group_m.divisor + within - across * rows.divisor) << LOG2_CLUSTER_M) + rank_m) * BLOCK_M;
  tile.b = ((across << LOG2_CLUSTER_N) + rank_n) * BLOCK_N;
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
#if SPLIT_K == 1
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return (block >> (LOG2_CLUSTER_M + LOG2_CLUSTER_N)) + round * ((int)gridDim.x >> (LOG2_CLUSTER_M + LOG2_CLUSTER_N));
#else
  return round == 0 ? cluster_index() : a.tiles;
#endif
}

static __device__ inline BlockWork block_work(const WgmmaArguments& a) {
  const int rank = cluster_cta_rank();
  BlockWork work;
  work.split = SPLIT_K == 1 ? 0 : rank >> (LOG2_CLUSTER_M + LOG2_CLUSTER_N);
  work.first_rank = work.split << (LOG2_CLUSTER_M + LOG2_CLUSTER_N);
  work.rank_m = rank & ((1 << LOG2_CLUSTER_M) - 1);
  work.rank_n = (rank - work.first_rank) >> LOG2_CLUSTER_M;
  work.k_begin = (int)((unsigned)a.k_tiles * (unsigned)work.split / SPLIT_K);
  work.k_end = (int)((unsigned)a.k_tiles * (unsigned)(work.split + 1) / SPLIT_K);
  return work;
}

// ---- producer warp

// The part of each operand that this block loads, and the blocks that receive it. Blocks that share an operand divide its rows; of an
// MN-major one they divide each atom's k.
struct ProducerShare {
  int a_row, b_row;                   // first row within the tile; of an MN-major operand first k within an atom
  unsigned a_multicast, b_multicast;  // masks of the receiving blocks; 0: this block alone
  unsigned long long a_policy, b_policy;
};

static __device__ inline ProducerShare producer_share(const WgmmaArguments& a, const BlockWork& work) {
  const unsigned long long first = evict_first();
  const unsigned long long last = evict_last();
  ProducerShare share;
  share.a_row = work.rank_n * ((A_MN_MAJOR ? ATOM_ELEMENTS : BLOCK_M) >> LOG2_CLUSTER_N);
  share.b_row = work.rank_m * ((B_MN_MAJOR ? ATOM_ELEMENTS : BLOCK_N) >> LOG2_CLUSTER_M);
  share.a_multicast = 0;
  share.b_multicast = 0;
  if (LOG2_CLUSTER_N > 0) {
#pragma unroll 1
    for (int i = 0; i < 1 << LOG2_CLUSTER_N; ++i)
      share.a_multicast |= 1u << (work.first_rank + work.rank_m + (i << LOG2_CLUSTER_M));
  }
  if (LOG2_CLUSTER_M > 0)
    share.b_multicast = ((1u << (1 << LOG2_CLUSTER_M)) - 1u) << (work.first_rank + (work.rank_n << LOG2_CLUSTER_M));
  share.a_policy = SWAP_AB ? first : last;
  share.b_policy = SWAP_AB ? last : first;
  return share;
}

#if PACKED
#define WEIGHT_ROWS (SWAP_AB ? BLOCK_M : BLOCK_N)
// 1: the block's rows fill whole tiles of the packed weight or lie in one. With multicast each block loads parts of tiles.
#define WHOLE_RUNS (!MULTICAST && (WEIGHT_ROWS % 64 == 0 || 64 % WEIGHT_ROWS == 0))
// Maximum number of packed tiles that the block's rows touch. If BLOCK_M or BLOCK_N neither divides 64 nor is a multiple of it, up to
// 56 rows of the first tile precede the block's rows.
#define MAX_RUNS ((WEIGHT_ROWS + (WEIGHT_ROWS % 64 == 0 || 64 % WEIGHT_ROWS == 0 ? 63 : 119)) / 64)

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
#endif

// The tile that is being loaded.
struct ProducerTile {
  Tile tile;
#if PACKED
  WeightRuns runs;
#endif
};

static __device__ inline ProducerTile producer_tile(const WgmmaArguments& a, const ProducerShare& share,
                                                    const Tile& tile) {
  ProducerTile target;
  target.tile = tile;
#if PACKED
  target.runs = weight_runs(a, SWAP_AB ? tile.a + share.a_row : tile.b + share.b_row,
                            SWAP_AB ? BLOCK_M >> LOG2_CLUSTER_N : BLOCK_N >> LOG2_CLUSTER_M);
#endif
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

static __device__ inline void load_a(const WgmmaArguments& a, const SharedLayout& smem, const ProducerShare& share,
                                     const ProducerTile& target, int k_tile, int stage, int i) {
  const unsigned to =
      smem.pipeline + (unsigned)stage * STAGE_BYTES + (unsigned)(i * A_ATOM_BYTES + share.a_row * ATOM_BYTES);
  const int k_atom = k_tile * K_ATOMS + i;
  const unsigned barrier = smem.full_barriers + 8u * (unsigned)stage;
#if PACKED && SWAP_AB
  load_runs(a, target.runs, to, k_atom, i, barrier, MULTICAST ? share.a_multicast : 0, share.a_policy);
#elif A_MN_MAJOR
  load_mn_major<BLOCK_M>(to, &a.a, k_atom, share.a_row, target.tile.a, barrier, MULTICAST ? share.a_multicast : 0,
                         share.a_policy);
#else
  tma_load(to, &a.a, k_atom * ATOM_ELEMENTS, target.tile.a + share.a_row, barrier, MULTICAST ? share.a_multicast : 0,
           share.a_policy, target.tile.batch);
#endif
}
static __device__ inline void load_b(const WgmmaArguments& a, const SharedLayout& smem, const ProducerShare& share,
                                     const ProducerTile& target, int k_tile, int stage, int i) {
  const unsigned to = smem.pipeline + (unsigned)stage * STAGE_BYTES +
                      (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES + share.b_row * ATOM_BYTES);
  const int k_atom = k_tile * K_ATOMS + i;
  const unsigned barrier = smem.full_barriers + 8u * (unsigned)stage;
#if PACKED && !SWAP_AB
  load_runs(a, target.runs, to, k_atom, i, barrier, MULTICAST ? share.b_multicast : 0, share.b_policy);
#elif B_MN_MAJOR
  load_mn_major<BLOCK_N>(to, &a.b, k_atom, share.b_row, target.tile.b, barrier, MULTICAST ? share.b_multicast : 0,
                         share.b_policy);
#else
  tma_load(to, &a.b, k_atom * ATOM_ELEMENTS, target.tile.b + share.b_row, barrier, MULTICAST ? share.b_multicast : 0,
           share.b_policy, target.tile.batch);
#endif
}

// Scales of blocks come in groups of k atoms, aligned ones; with split-K the first of a block may begin in the middle.
#define GROUP_ATOMS 4
#define GROUP_STAGES (GROUP_ATOMS / K_ATOMS)  // 4 or 2
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
#if SCALES == 3 && !E8M0
  if (!a.scale_maps || !begins_group(work, k_tile)) return;
  load_group_scales(a, smem, target.tile, (int)((unsigned)k_tile / GROUP_STAGES) * GROUP_ATOMS, group,
                    SWAP_AB ? share.b_policy : share.a_policy, SWAP_AB ? share.a_policy : share.b_policy);
  if (++group == a.scale_groups) group = 0;
#endif
}

#define WEIGHT_MN_MAJOR (SWAP_AB ? A_MN_MAJOR : B_MN_MAJOR)

// Prefetches this block's part of the weight into L2, from k tile `k_tile` on.
static __device__ inline void prefetch_weight(const WgmmaArguments& a, const ProducerShare& share,
                                              const ProducerTile& target, int k_tile, int end) {
  if (end > k_tile + a.prefetch_k_tiles) end = k_tile + a.prefetch_k_tiles;
#if PACKED
  if (WHOLE_RUNS && WEIGHT_ROWS == 64) {
    if (k_tile < end)
      bulk_prefetch(run_address(a, target.runs, 0, k_tile * K_ATOMS),
                    (unsigned)((end - k_tile) * K_ATOMS) * target.runs.bytes[0],
                    SWAP_AB ? share.a_policy : share.b_policy);
    return;
  }
#endif
#pragma unroll 1
  for (int k_atom = k_tile * K_ATOMS; k_atom < end * K_ATOMS; ++k_atom) {
#if PACKED
#pragma unroll
    for (int r = 0; r < MAX_RUNS; ++r)
      if (WHOLE_RUNS || target.runs.bytes[r] > 0)
        bulk_prefetch(run_address(a, target.runs, r, k_atom), target.runs.bytes[r],
                      SWAP_AB ? share.a_policy : share.b_policy);
#elif WEIGHT_MN_MAJOR
#pragma unroll
    for (int group = 0; group < (SWAP_AB ? BLOCK_M : BLOCK_N) / MN_GROUP; ++group)
      tma_prefetch(SWAP_AB ? &a.a : &a.b, (SWAP_AB ? target.tile.a : target.tile.b) + group * MN_GROUP,
                   k_atom * ATOM_ELEMENTS + (SWAP_AB ? share.a_row : share.b_row),
                   SWAP_AB ? share.a_policy : share.b_policy);
#else
    tma_prefetch(SWAP_AB ? &a.a : &a.b, k_atom * ATOM_ELEMENTS,
                 SWAP_AB ? target.tile.a + share.a_row : target.tile.b + share.b_row,
                 SWAP_AB ? share.a_policy : share.b_policy, target.tile.batch);
#endif
  }
}

// A dependent launch loads the weight into all stages while the previous kernel still runs; x follows after the grid dependency.
static __device__ inline int load_early(const WgmmaArguments& a, const SharedLayout& smem, const ProducerShare& share,
                                        const BlockWork& work, const ProducerTile& target, int& group) {
  const int k_tiles = work.k_end - work.k_begin;
  const int early = k_tiles < a.num_stages ? k_tiles : a.num_stages;
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
    barrier_arrive_expect_tx(smem.full_barriers + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i) {
      if (SWAP_AB) {
        load_a(a, smem, share, target, work.k_begin + stage, stage, i);
      } else {
        load_b(a, smem, share, target, work.k_begin + stage, stage, i);
      }
    }
  }
  prefetch_weight(a, share, target, work.k_begin + early, work.k_end);
  grid_dependency_wait();
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i) {
      if (SWAP_AB) {
        load_b(a, smem, share, target, work.k_begin + stage, stage, i);
      } else {
        load_a(a, smem, share, target, work.k_begin + stage, stage, i);
      }
    }
    load_scales(a, smem, share, work, target, work.k_begin + stage, group);
  }
  return early;
}

// The producer's loop over tiles. `target`: the block's first tile.
static __device__ inline void produce(const WgmmaArguments& a, const SharedLayout& smem, const BlockWork& work,
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
      barrier_arrive_expect_tx(smem.full_barriers + 8u * (unsigned)state.stage, STAGE_BYTES);
#pragma unroll
      for (int i = 0; i < K_ATOMS; ++i) {
        load_a(a, smem, share, target, k_tile, state.stage, i);
        load_b(a, smem, share, target, k_tile, state.stage, i);
      }
      load_scales(a, smem, share, work, target, k_tile, group);
      next_stage(state, a.num_stages);
    }
    begin = work.k_begin;
    index = SPLIT_K == 1 ? index + ((int)gridDim.x >> (LOG2_CLUSTER_M + LOG2_CLUSTER_N)) : a.tiles;
    if (index < a.tiles) target = producer_tile(a, share, tile_at(a, index, work.rank_m, work.rank_n));
  }
}
