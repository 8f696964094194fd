// The consumers of wgmma_moe, and the kernel.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/registers.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_epilogue.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_fp4.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_mainloop.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_producer.cuh"

enum : int {
  QUANTIZES = config().quantizes,
  // Biases and scales of tokens are loaded before the mainloop; four warp groups have no registers for them.
  LOADS_EARLY = config().fp4 && CONSUMER_WARPGROUPS < 4,
};

// A consumer warp group: multiplies and stores its rows of the block's tiles.
static __device__ __forceinline__ void compute(const WgmmaMoeArguments& a, const SharedLayout& smem,
                                               const Routes& routes, int work_count) {
  constexpr bool adds_biases = config().bias && (config().fp4 || PROMOTE);
  const int group = (int)threadIdx.x / 128;
  const int warp = (int)(threadIdx.x % 128) / 32;
  unsigned staging;
  if constexpr (!config().fp4)
    staging = smem.staging + (unsigned)(group * STAGING_BYTES + (QUANTIZES ? 0 : warp * (STAGING_BYTES / 4)));
  int parity = 0;
  PipelineState state = {0, 0};
  ScaleWords scales;  // of an MXFP4 weight: of the next tile's first chunk
  bool loaded = false;
  int last = first_work() >= work_count;
  unsigned at = smem.work;
#pragma unroll 1
  while (!last) {
    wait_full(smem, state);
    Work work = read_work(at);
    __syncwarp();
    Accumulators d;
    RowBiases biases;
    TokenScales token_scales;
    float unit = 1.0f;
    if constexpr (config().fp4) {
      unit = sum_unit(a, work.tile.expert);
      if (!loaded) load_scales(scales, a, scale_rows(a, work.tile.expert, work.row, work.column), 0);
      loaded = true;
      if constexpr (config().bias && LOADS_EARLY) biases = load_biases(a, work);
      if constexpr (config().token_scales && LOADS_EARLY) token_scales = load_token_scales(a, routes, work);
      mainloop<BLOCK_TOKENS>(d, a, smem, work, state, scales, at);
      work = read_work(at);  // again: the mainloop has no registers for it
    } else {
      mainloop<BLOCK_TOKENS>(d, a, smem, work, state);
    }
    const int last_stage = (state.stage > 0 ? state.stage : a.num_stages) - 1;
    // Of an MXFP4 weight in the weight's rows of the tile's last stage, 16 of the warp group's: it has read them all when its last instruction has completed.
    if constexpr (config().fp4)
      staging = smem.pipeline + (unsigned)last_stage * STAGE_BYTES +
                (unsigned)((STAGE == 1 && !WITHIN_32 ? warp * (BLOCK_ROWS / 4) + group * MMA_TILES * 16
                                                     : group * WARPGROUP_ROWS + warp * 16) *
                           ATOM_BYTES);
    last = work.last;
    at = at == smem.work + (ITEM_SLOTS - 1) * WORK_BYTES ? smem.work : at + WORK_BYTES;
    if constexpr (scales_rows()) scale_rows(d, a, routes, work);
    if constexpr (has_unit()) scale_sums(d, unit);
    if constexpr (config().token_scales) {
      if constexpr (!LOADS_EARLY) token_scales = load_token_scales(a, routes, work);
      scale_tokens(d, token_scales);
    }
    if constexpr (adds_biases) {
      if constexpr (!LOADS_EARLY) biases = load_biases(a, work);
      add_biases<BLOCK_TOKENS>(d, biases);
    }
    if constexpr (config().quantizes) {
      sync_warpgroup();  // the tile before was read
      store_tile(d, a, routes, work, staging, parity);
    } else {
#pragma unroll
      for (int r = 0; r < MMA_TILES; ++r) {
        const int column = work.column + (group * MMA_TILES + r) * MMA_COLUMNS + warp * (MMA_COLUMNS / 4);
#pragma unroll
        for (int first = 0; first < BLOCK_TOKENS; first += STAGED_TOKENS) {
          if (first >= work.tile.count) continue;
          __syncwarp();  // the buffer was read
          stage_output(&d[r][first / 2], a, routes, work, first, staging);
          __syncwarp();
          store_staged(a, work, first, column, staging);
        }
      }
    }
    if constexpr (config().fp4) {
      fence_async_proxy();
      __syncwarp();
      release_stage(smem, last_stage, (int)threadIdx.x % 32);
    }
  }
}

static __device__ __forceinline__ SharedLayout shared_layout(const WgmmaMoeArguments& a, unsigned memory) {
  SharedLayout smem;
  smem.pipeline = (memory + 1023u) & ~1023u;
  smem.staging = smem.pipeline + (unsigned)a.num_stages * STAGE_BYTES;
  smem.scales = smem.staging + CONSUMER_WARPGROUPS * STAGING_BYTES;
  smem.work = smem.pipeline + (unsigned)a.storage_bytes;
  smem.items = smem.work + ITEM_SLOTS * WORK_BYTES;
  smem.full_barriers = smem.items + ITEM_SLOTS * ITEM_BYTES;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  return smem;
}

// Initializes the barriers of the block and lets the next kernel start.
static __device__ __forceinline__ void setup(const WgmmaMoeArguments& a, const SharedLayout& smem) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, COPIES ? 1 + PRODUCER_THREADS : 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CLUSTER * CONSUMER_THREADS / 32);
    }
    if (DYNAMIC && SHARED_ITEMS) {
      for (int i = 0; i < ITEM_SLOTS; ++i) barrier_init(smem.items + (unsigned)(i * ITEM_BYTES), 1);
    }
    fence_barrier_init();
    prefetch_tensor_map(&a.w);
    if (!GATHER) prefetch_tensor_map(&a.hidden);
  }
  if constexpr (CLUSTER > 1) {
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  // Of stage 1 operands and the tiles are of the kernels before this one. After the wait: what starts from here on finds the tiles in memory.
  if constexpr (STAGE == 1) grid_dependency_wait();
  launch_dependents();
}

// No block exits while another may still write to its shared memory.
static __device__ __forceinline__ void finish() {
  if constexpr (CLUSTER > 1) {
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  }
}

// `routes_of`: the routes. Each role calls it: no register holds them while registers are reallocated.
template <typename RoutesOf>
static __device__ __forceinline__ void run(const WgmmaMoeArguments& a, const SharedLayout& smem, RoutesOf routes_of) {
  if (threadIdx.x >= CONSUMER_THREADS) {
    if constexpr (config().producer_registers > 0) give_registers<config().producer_registers>();
    const Routes routes = routes_of();
    if (COPIES || threadIdx.x == CONSUMER_THREADS) load(a, smem, routes, routes.tile_count * a.column_tiles);
  } else {
    if constexpr (CONSUMER_REGISTERS > 0) take_registers<CONSUMER_REGISTERS>();
    // The hidden layer's scales are of the kernel before this one.
    if constexpr (STAGE == 2) grid_dependency_wait();
    const Routes routes = routes_of();
    compute(a, smem, routes, routes.tile_count * a.column_tiles);
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, BLOCKS)
    wgmma_moe(const __grid_constant__ WgmmaMoeArguments a) {
  extern __shared__ unsigned char memory[];
  const SharedLayout smem = shared_layout(a, shared_address(memory));
  setup(a, smem);
  if constexpr (config().sort) {
    __shared__ Sorted sorted;
    // In the stages, which hold nothing yet.
    unsigned* const scratch = (unsigned*)(memory + (smem.pipeline - shared_address(memory)));
    const int tiles =
        sort_pairs<BLOCK_TOKENS>(a.ids, a.pairs, a.experts, STAGE == 1 ? a.position_of : 0, sorted, scratch);
    run(a, smem, [&] { return Routes{sorted.pair_of, 0, 0, sorted.tiles, tiles}; });
  } else {
    run(a, smem, [&] { return Routes{a.pair_of, a.tiles, a.tiles_of, 0, __ldcg(a.tile_count)}; });
  }
  finish();
}
