// moe_decode: a whole layer of a mixture of experts for at most 8 tokens, on Hopper, in one kernel. All blocks are resident. A thread of each block streams the block's share of w1 and, without a
// pause, of w2 through the pipeline in shared memory; the consumer warps multiply by mma.sync, the weight's 16 rows by 8 columns, which are all tokens. The hidden layer goes through memory; a block
// waits for the elements that it reads.
//
// MoeDecodeConfig is what the host compiles it for. The host also defines ELEMENT (x and w; of strips what their elements become), OUTPUT, SCALES, L2_HINTS, GATED and ACTIVATION (moe_activation.cuh).

#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/registers.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/cuda/families/moe_decode/moe_decode_producer.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_products.cuh"
#include "backends/gpu/device/numbers.cuh"

static __device__ __forceinline__ void load_tokens(const MoeDecodeArguments& a, Product::Tokens& part) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < SLABS * STEPS; ++j) {
    if (!has_atom(j)) continue;
    Product::load_atom(part, j, a, warp_of_team(), lane);
  }
}

// Multiplies a unit's sums by the scales of matrices or rows.
static __device__ __forceinline__ void scale_unit(Sums& d, const MoeDecodeArguments& a, int expert, int group,
                                                  int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = lane % 4 * 2 + i % 2;
    int row = group * UNIT_FEATURES + lane / 4 + i / 2 * (GATED ? a.features : 8);
    if (!GATED && row >= a.features) row = a.features - 1;
    d[i] *= weight_scale(a.w_scales, a.w_scale_matrix, 1, expert, row, 0) *
            (token < a.tokens ? __ldcg(a.x_scales + token * a.x_scale_columns) : 0.0f);
  }
}

static __device__ __forceinline__ void first_product(const MoeDecodeArguments& a, const Shared& smem, int entries,
                                                     const Product::Tokens& part, PipelineState& state) {
  const Tables& t = *smem.tables;
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const Share units = share_of(entries * a.groups);
  const int first = units.begin + team();
  int entry = first / a.groups;
  int group = first - entry * a.groups;
  int slot = team();
  unsigned slot_phase = 0;
#pragma unroll 1
  for (int unit = first; unit < units.end; unit += TEAMS) {
    int expert = 0;
    if constexpr (has_scales()) expert = t.experts[entry];
    Sums d = {};
    Product::multiply_unit(d, a, smem, part, expert, group, state, warp, lane);
    if constexpr (has_scales() && !scales_blocks()) scale_unit(d, a, expert, group, lane);
    Product::pass_sums(d, a, smem, units, unit, entry, group, slot, slot_phase, warp, lane);
    if constexpr (TEAMS == 1) {  // apart, so that kernels without teams keep their instructions
      if (++slot == SLOTS) {
        slot = 0;
        slot_phase ^= 1u;
      }
      if (++group == a.groups) {
        group = 0;
        ++entry;
      }
    } else {
      slot += TEAMS;
      if (slot >= SLOTS) {
        slot -= SLOTS;
        slot_phase ^= 1u;
      }
      group += TEAMS;  // less than an expert has
      if (group >= a.groups) {
        group -= a.groups;
        ++entry;
      }
    }
  }
  Product::pass_last(a, smem, units, warp);
}

// The scales of the weight's rows of a stage of w2.
static __device__ __forceinline__ void load_second_scales(SecondStage& of, const MoeDecodeArguments& a, const Tables& t,
                                                          const Share& rows, int lane) {
#pragma unroll
  for (int s = 0; s < HIDDEN_STEPS; ++s) {
#pragma unroll
    for (int i = 0; i < TILES * 2; ++i) {
      int row = (rows.begin + i) * 8;
      if constexpr (types().scales == Scales::rows) row += lane / 4;
      if (row >= a.rows) row = a.rows - 1;
      of.w_scales[s][i / 2][i % 2] = weight_scale(a.w2_scales, a.w2_scale_matrix, a.w2_scale_columns,
                                                  t.experts[of.steps[s].entry], row, of.steps[s].atom);
    }
  }
}

// Adds the warps' sums of the block's tiles and stores y.
static __device__ __forceinline__ void store_tiles(const Sums (&d)[TILES], const MoeDecodeArguments& a,
                                                   const Shared& smem, const Share& rows, int tiles) {
  const Tables& t = *smem.tables;
  consumers_wait();  // those of the first product are read
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    if (tile < tiles) store_sums<WARPS>(smem, tile, (int)threadIdx.x / 32, d[tile]);
  consumers_wait();
  if constexpr (config().bias) barrier_wait(smem.bias_barrier, 0u);
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < tiles * 128; i += CONSUMER_THREADS) {
    const OutputElement element = element_at(a, rows, i);
    if (!element.there) continue;
    float sum = sum_of_warps<WARPS>(smem, i / 128, i % 16 * 8 + element.token);
    if constexpr (config().bias) sum += smem.biases[i];
    a.y[element.token * a.ldy + element.row] = round_output(t.missing >> element.token & 1u ? not_a_number() : sum);
  }
}

// The team's first w2, behind the units of the block's w1, and its stage.
static __device__ __forceinline__ int first_hidden(const MoeDecodeArguments& a, int entries, PipelineState& state) {
  if constexpr (HIDDEN_TEAMS == 1) return 0;
  const Share units = share_of(entries * a.groups);
  const int before = units.end - units.begin;
  const int first = (hidden_team() + HIDDEN_TEAMS - before % HIDDEN_TEAMS) % HIDDEN_TEAMS;
  state.phase = (unsigned)((before + first) / a.num_stages % 2);
  state.stage = (before + first) % a.num_stages;
  return first;
}

static __device__ __forceinline__ void second_product(const MoeDecodeArguments& a, const Shared& smem, int entries,
                                                      PipelineState& state) {
  constexpr bool ahead = config().hidden_ahead;
  const Tables& t = *smem.tables;
  const int lane = (int)threadIdx.x % 32;
  const Share rows = share_of((a.rows + 7) / 8);
  const int tiles = (rows.end - rows.begin + 1) / 2;
  Sums d[TILES] = {};
  uint4 next[HIDDEN_STEPS][HIDDEN_VECTORS];
  const int begin = first_hidden(a, entries, state);
  int first = begin;
  int slab = 0;
#pragma unroll 1
  while (first < entries) {
    SecondStage of;
#pragma unroll
    for (int i = 0; i < HIDDEN_STEPS; ++i) of.steps[i] = step_at(first, slab, entries, i);
    if constexpr (has_scales()) load_second_scales(of, a, t, rows, lane);
    if (first == begin && slab == 0) barrier_wait(smem.grid_barrier, 0u);
    if (!ahead || (first == begin && slab == 0)) {
#pragma unroll
      for (int i = 0; i < HIDDEN_STEPS; ++i) load_hidden(a, t, of.steps[i], next[i]);
    }
    Product::Hidden b[HIDDEN_STEPS];
#pragma unroll
    for (int s = 0; s < HIDDEN_STEPS; ++s) {
      while (!__all_sync(0xffffffffu, is_written(next[s]))) load_hidden(a, t, of.steps[s], next[s]);
      Product::convert(b[s], of.factors[s], next[s], lane);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        of.routed[s][i] = t.masks[of.steps[s].entry] >> (lane % 4 * 2 + i) & 1u;
        if constexpr (!config().weighted) of.factors[s][i] *= t.weights[of.steps[s].entry][lane % 4 * 2 + i];
        if constexpr (HAS_GLOBALS) of.factors[s][i] *= smem.globals[MAX_PAIRS + of.steps[s].entry];
      }
    }
    if (++slab == HIDDEN_SLABS) {
      slab = 0;
      first += ENTRIES * HIDDEN_TEAMS;
    }
    if (ahead && first < entries) {
#pragma unroll
      for (int i = 0; i < HIDDEN_STEPS; ++i) load_hidden(a, t, step_at(first, slab, entries, i), next[i]);
    }
    Product::multiply_tiles(d, a, smem, rows, tiles, b, of, state, lane);
  }
  store_tiles(d, a, smem, rows, tiles);
}

static __device__ __forceinline__ Shared shared_layout(const MoeDecodeArguments& a, unsigned char* memory) {
  Shared smem;
  smem.pipeline = (shared_address(memory) + 127u) & ~127u;
  unsigned char* const behind = memory + (smem.pipeline - shared_address(memory)) + a.num_stages * STAGE_BYTES;
  smem.sums = (float*)behind;
  smem.biases = (float*)(behind + SUM_BYTES);
  smem.globals = (float*)(behind + SUM_BYTES + BIAS_BYTES);
  smem.tables = (Tables*)(behind + SUM_BYTES + BIAS_BYTES + GLOBAL_BYTES);
  smem.full_barriers =
      shared_address(behind) + (unsigned)(SUM_BYTES + BIAS_BYTES + GLOBAL_BYTES + ((int)sizeof(Tables) + 15) / 16 * 16);
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.cleared_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  smem.grid_barrier = smem.cleared_barrier + 8u;
  smem.bias_barrier = smem.grid_barrier + 8u;
  smem.done_barriers = smem.bias_barrier + 8u;
  smem.added_barriers = smem.done_barriers + 8u * SLOTS;
  return smem;
}

// Initializes the barriers. The block's next synchronization makes them visible.
static __device__ __forceinline__ void setup(const MoeDecodeArguments& a, const Shared& smem) {
  if (threadIdx.x == CONSUMER_THREADS) {
#pragma unroll 1
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, WARPS);
    }
    barrier_init(smem.cleared_barrier, 1);
    barrier_init(smem.grid_barrier, 1);
    barrier_init(smem.bias_barrier, 1);
#pragma unroll
    for (int i = 0; i < SLOTS; ++i) {
      barrier_init(smem.done_barriers + 8u * (unsigned)i, TEAM_WARPS);
      barrier_init(smem.added_barriers + 8u * (unsigned)i, 1);
    }
    fence_async_proxy();
  }
}

// The consumer warps: both products.
static __device__ __forceinline__ void compute(const MoeDecodeArguments& a, const Shared& smem, const Tables& t,
                                               const Product::Tokens& part, PipelineState& state) {
  first_product(a, smem, t.count, part, state);
  second_product(a, smem, t.count, state);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) moe_decode(const __grid_constant__ MoeDecodeArguments a) {
  extern __shared__ unsigned char memory[];
  launch_dependents();
  const Shared smem = shared_layout(a, memory);
  setup(a, smem);
  grid_dependency_wait();
  const int warp = (int)threadIdx.x / 32;
  Tables& t = *smem.tables;
  Product::Tokens part;
  if (warp < WARPS) load_tokens(a, part);
  // The producer begins as soon as it knows the experts.
  if (a.tokens * a.topk <= 32) {
    if (warp == WARPS) {
      make_entries_of_few(a, t);
      arrive_named<THREADS>(entries_barrier);
    } else {
      sync_named<THREADS>(entries_barrier);
    }
  } else {
    make_entries_of_many(a, t);
    __syncthreads();
  }
  if (warp >= WARPS) {
    // Of the 96 that a thread has.
    if constexpr (GIVES_REGISTERS) give_registers<32>();
    if (warp == WARPS) {
      load(a, smem, t);
    } else if (warp == WARPS + 1) {
      if constexpr (HAS_GLOBALS) load_globals(a, smem, t.count);
      clear_hidden(a, smem, t.count);
      synchronize_grid<GRID>(a.counters);
      if (threadIdx.x % 32 == 0) barrier_arrive(smem.grid_barrier);
      if constexpr (config().bias) add_biases(a, smem, t.count);
    }
  } else {
    if constexpr (GIVES_REGISTERS) take_registers<112>();
    PipelineState state = {team(), 0u};
    compute(a, smem, t, part, state);
  }
}
