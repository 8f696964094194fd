// The consumer warp groups, and the kernel. wgmma_producer.cuh describes the kernel and its config.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/registers.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_block_scales.cuh"
#include "backends/cuda/families/wgmma/wgmma_epilogue.cuh"
#include "backends/cuda/families/wgmma/wgmma_mainloop.cuh"
#include "backends/cuda/families/wgmma/wgmma_producer.cuh"
#include "backends/cuda/families/wgmma/wgmma_split_k.cuh"

// After MMA_TILES and SWAP_AB.
#include "backends/cuda/families/hopper_scales.cuh"

// Reduces a tile's partial sums over the cluster.
static __device__ __forceinline__ void reduce_split_k(const Accumulators& d, const WgmmaArguments& a,
                                                      const SharedLayout& smem, const BlockWork& work, const Tile& tile,
                                                      int row, float scale) {
  send_partials(d, a, smem, work);
  const ThreadOutputs to = thread_outputs(a, tile, row);
  barrier_wait_for_cluster(smem.partials_barrier, 0);
  reduce_and_store(d, a, smem, to, work.split, scale);
}

// A consumer warp group: multiplies and stores its tiles.
static __device__ __forceinline__ void compute(const WgmmaArguments& a, const SharedLayout& smem,
                                               const BlockWork& work) {
  int group = threadIdx.x / 128;
  // The compiler then keeps what depends on it, and the descriptors of the tile's rows, in uniform registers. (Without partial sums the widest tiles
  // spill, and nothing is gained.)
  if constexpr (config().promotion > 0) group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
  const int row = PING_PONG ? 0 : group * WARPGROUP_M;
  // Before this, nothing is written, and only a dependent launch reads: the weight.
  grid_dependency_wait();
  float scale = 1.0f;
  if constexpr (types().scales == Scales::matrix) scale = *a.scales.x * *a.scales.w;
  const int k_tiles = work.k_end - work.k_begin;
  const unsigned empty = empty_barriers_to_signal(a, smem, work);
  ConsumerState state = {{0, 0}, (unsigned)work.k_begin % GROUP_STAGES, 0};
  StagingBuffers buffers;
  if constexpr (SPLIT_K == 1) buffers = staging_buffers(smem);
  for (int round = 0; tile_index(a, round) < a.tiles; ++round) {
    if constexpr (config().ping_pong) {
      if (round % 2 != group) {
        advance(a, state, k_tiles);
        continue;
      }
      if (round > 0) order_barrier_wait(group);
    }
    const Tile tile = tile_at(a, tile_index(a, round), work.rank_m, work.rank_n);
    const TileProduct product = {tile, row, work.k_begin, k_tiles};
    Accumulators d;
    RowScales scales;
    if constexpr (types().scales == Scales::rows) scales = row_scales(scaled_rows(a, product));
    if constexpr (config().promotion > 0)
      promoted_mainloop(d, a, smem, empty, product, state);
    else
      mainloop(d, a, smem, empty, product, state);
    if (SPLIT_K > 1 && !MULTICAST) cluster_wait();  // completes sync_barrier_init(), in front of what is sent
    if constexpr (config().ping_pong) {
      if (tile_index(a, round + 1) < a.tiles) order_barrier_arrive(1 - group);
    }
    if constexpr (types().scales == Scales::rows) scale_rows(d, scales);
    if constexpr (SPLIT_K > 1) {
      reduce_split_k(d, a, smem, work, tile, row, scale);
      return;  // a cluster computes one tile
    } else {
      store_tile(d, a, buffers, tile, row, scale);
    }
  }
  if constexpr (SPLIT_K == 1) tma_store_wait<0>();  // shared memory must outlive its readers
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
    if constexpr (scales_blocks()) {
#pragma unroll 1
      for (int i = warp; i < a.scale_groups; i += CONSUMER_THREADS / 32)
        barrier_init(smem.scale_barriers + 8u * (unsigned)i, a.scale_maps ? 1 : 32);
    }
    if constexpr (SPLIT_K > 1) {
      if (warp == CONSUMER_THREADS / 32 - 1) {
        barrier_init(smem.partials_barrier, 1);
        barrier_arrive_expect_tx(smem.partials_barrier, received_bytes(work.split));
      }
    }
    fence_barrier_init();
  }
  __syncwarp();
}

// Makes the barriers' initialization visible to the block and, with multicast, to the cluster.
static __device__ __forceinline__ void sync_barrier_init() {
  if (SPLIT_K > 1 || MULTICAST) cluster_arrive();
  if (MULTICAST) {
    cluster_wait();
  } else {
    __syncthreads();
  }
}

static __device__ __forceinline__ SharedLayout shared_layout(const WgmmaArguments& a, unsigned memory) {
  SharedLayout smem;
  smem.pipeline = (memory + 1023u) & ~1023u;
  smem.staging = smem.pipeline + (unsigned)a.num_stages * STAGE_BYTES;
  smem.scales = smem.pipeline + (unsigned)a.storage_bytes;
  smem.full_barriers = smem.scales + (unsigned)a.scale_groups * GROUP_SCALES_BYTES;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.partials_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  smem.scale_barriers = smem.partials_barrier + 8u;
  return smem;
}

static __device__ __forceinline__ void prefetch_tensor_maps(const WgmmaArguments& a) {
  if constexpr (!(config().packed && SWAP_AB)) prefetch_tensor_map(&a.a);
  if constexpr (!config().packed || SWAP_AB) prefetch_tensor_map(&a.b);
  if constexpr (config().last_x) prefetch_tensor_map(&a.last_x);
  if constexpr (scales_blocks()) {
    if (a.scale_maps) {
      prefetch_tensor_map(&a.x_scales);
      prefetch_tensor_map(&a.w_scales);
    }
  }
}

// Initializes the barriers. Meanwhile the producers find out what they load first: `share` and `first`.
static __device__ __forceinline__ void setup(const WgmmaArguments& a, const SharedLayout& smem, const BlockWork& work,
                                             bool is_producer, ProducerShare& share, ProducerTile& first) {
  if (is_producer) {
    if (elect_one()) prefetch_tensor_maps(a);
    share = producer_share(a, work);
    first = producer_tile(a, share, tile_at(a, tile_index(a, 0), work.rank_m, work.rank_n));
    asm volatile("" ::"r"(first.tile.a), "r"(first.tile.b), "r"(work.k_begin), "r"(work.k_end));
    __syncwarp();
  } else {
    init_barriers(a, smem, work);
  }
  sync_barrier_init();
}

// No block exits while another may still access its shared memory: all warps arrive before. (Partial sums of others have arrived before a block stores.)
static __device__ __forceinline__ void finish() {
  if (MULTICAST) cluster_wait();
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, 1)
    wgmma(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent_launch) launch_dependents();
  const SharedLayout smem = shared_layout(a, shared_address(memory));
  const BlockWork work = block_work(a);
  const bool is_producer = threadIdx.x >= CONSUMER_THREADS;
  ProducerShare share;
  ProducerTile first;
  setup(a, smem, work, is_producer, share, first);
  if (is_producer) {
    if constexpr (config().producer_registers > 0) give_registers<config().producer_registers>();
    if (threadIdx.x < CONSUMER_THREADS + 32 && elect_one()) {
      load(a, smem, work, share, first);
      if (a.use_tma_store) prefetch_tensor_map(&a.y_map);
    }
    if constexpr (scales_blocks()) {
      if (!a.scale_maps && threadIdx.x / 32 == CONSUMER_THREADS / 32 + 1) copy_scales(a, smem, work);
    }
    __syncwarp();
    if (SPLIT_K > 1 && !MULTICAST) cluster_wait();
    if (MULTICAST) cluster_arrive();
  } else {
    if constexpr (config().consumer_registers > 0) take_registers<config().consumer_registers>();
    compute(a, smem, work);
    if (MULTICAST) {
      __syncwarp();
      cluster_arrive();
    }
  }
  finish();
}
