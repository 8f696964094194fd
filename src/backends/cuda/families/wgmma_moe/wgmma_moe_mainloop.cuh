// The products of a tile of wgmma_moe: how a consumer's warp group waits for stages, multiplies them, and adds what it has per atom of k.
#pragma once

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_fp4.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_producer.cuh"

typedef float Accumulators[MMA_TILES][BLOCK_TOKENS / 2];

static __device__ __forceinline__ void wait_full(const SharedLayout& smem, const PipelineState& state) {
  barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
  if (GATHER) fence_async_proxy();  // the copies were ordinary writes
}

// A stage is free when the consumers of all blocks that its weight is multicast to have read it.
// `lane`: the thread's; 32: there is none to release, which is no branch between instructions of a warp group.
static __device__ __forceinline__ void release_stage(const SharedLayout& smem, int stage, int lane) {
  const unsigned barrier = smem.empty_barriers + 8u * (unsigned)stage;
  if constexpr (CLUSTER > 1) {
    if (lane < CLUSTER) barrier_arrive_remote(remote_address(barrier, lane));
  } else {
    if (lane == 0) barrier_arrive(barrier);
  }
}

// The weight's row of accumulator row `half` (0, 1) of instruction r.
static __device__ __forceinline__ int weight_row(const WgmmaMoeArguments& a, const Work& work, int r, int half) {
  const int warp = (int)(threadIdx.x % 128) / 32;
  const int row = (int)(threadIdx.x / 128) * WARPGROUP_ROWS + r * 64 + warp * 16;
  const int lane = (int)threadIdx.x % 32 / 4;
  const int limit = a.columns - 1;
  if (INTERLEAVED) {
    const int feature = work.column + row / 2 + lane;
    return half * a.columns + (feature < limit ? feature : limit);
  }
  const int own = work.row + row + half * 8 + lane;
  return own < limit ? own : limit;
}

// Of the rows of w1 whose sums the thread has.
struct RowBiases {
  float row[MMA_TILES][2];
};

static __device__ __forceinline__ RowBiases load_biases(const WgmmaMoeArguments& a, const Work& work) {
  const float* const bias =
      a.bias + (long long)work.tile.expert * (INTERLEAVED ? 2 : 1) * (config().fp4 ? a.features : a.columns);
  RowBiases biases;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    if constexpr (config().fp4) {
      // Columns behind the last feature stay zero.
      const int feature = feature_of(work.column, i / 2, i % 2);
      float value = 0.0f;
      if (feature < a.features)
        asm volatile("ld.global.nc.f32 %0, [%1];"
                     : "=f"(value)
                     : "l"(bias + (INTERLEAVED ? i % 2 * (long long)a.features : 0) + feature));
      biases.row[i / 2][i % 2] = value;
    } else {
      biases.row[i / 2][i % 2] = __ldg(bias + weight_row(a, work, i / 2, i % 2));
    }
  }
  return biases;
}

// WIDTH: tokens that have sums.
template <int WIDTH>
static __device__ __forceinline__ void add_biases(Accumulators& d, const RowBiases& biases) {
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) d[r][i] += biases.row[r][i % 4 / 2];
  }
}

// ---- a weight of 4 bits

// Batches of 16 of k of a group of int4, whose sums are added when they have completed.
enum : int { GROUP_FRAGMENTS = STEPS_PER_SCALE < FRAGMENTS ? STEPS_PER_SCALE : FRAGMENTS };

// Adds the sums of group `group` of 128 of k, times its scales, and clears them.
template <int WIDTH, typename Words>
static __device__ __forceinline__ void add_group(Accumulators& d, Accumulators& sums, const Words (&factors)[MMA_TILES],
                                                 int group) {
  wgmma_wait<0>();
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
    Instruction<WIDTH>::fence(sums[r]);
    const float scales[2] = {group_scale(factors[r], group, 0), group_scale(factors[r], group, 1)};
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) {
      d[r][i] = fmaf(sums[r][i], scales[i % 4 / 2], d[r][i]);
      sums[r][i] = 0.0f;
    }
    Instruction<WIDTH>::fence(sums[r]);
  }
}

// 128 of k, half `half` of a stage, of int4. `sums`: of a group, zeros; the threads decode the next group's first batch before they wait for it. release(): the stage before
// is free.
template <int WIDTH, typename Words, typename Release>
static __device__ __forceinline__ void multiply_int4_half(Accumulators& d, Accumulators& sums, const RawWeight& raw,
                                                          const Words (&factors)[MMA_TILES], unsigned b, int half,
                                                          const Release& release) {
  constexpr int per_group = STEPS_PER_SCALE / GROUP_FRAGMENTS * MMA_TILES;
  unsigned fragments[BUFFERS][GROUP_FRAGMENTS][4];
#pragma unroll
  for (int batch = 0; batch < 8 / GROUP_FRAGMENTS * MMA_TILES; ++batch) {
    const int r = batch % MMA_TILES;
    const int first = batch / MMA_TILES * GROUP_FRAGMENTS;
    if (BUFFERS == 1) wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < GROUP_FRAGMENTS; ++i)
      decode(fragments[batch % BUFFERS][i], raw[r], first + i, factors[r], false);
    if (batch > 0 && batch % per_group == 0) add_group<WIDTH>(d, sums, factors, batch / per_group - 1);
    start_products<WIDTH, GROUP_FRAGMENTS>(sums[r], fragments[batch % BUFFERS], b, half * 8 + first);
    if (BUFFERS == 2) wgmma_wait<1>();
    if (batch == 0) release();
  }
  add_group<WIDTH>(d, sums, factors, 8 / STEPS_PER_SCALE - 1);
}

// WIDTH: tokens of the instructions. `next`: the scales of the tile's first 512 of k; on return those of the next tile. `at`: of the work. The last stage is released by the epilogue.
template <int WIDTH>
static __device__ __forceinline__ void multiply_fp4_tile(Accumulators& d, const WgmmaMoeArguments& a,
                                                         const SharedLayout& smem, const Work& work,
                                                         PipelineState& state, ScaleWords& next, unsigned at) {
  const int lane = (int)threadIdx.x % 32;
  const ScaleRows rows = scale_rows(a, work.tile.expert, work.row, work.column);
  const unsigned own = own_weight();
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) d[r][i] = 0.0f;
  }
  Accumulators sums;  // of a group of int4
  if constexpr (adds_groups()) {
#pragma unroll
    for (int i = 0; i < MMA_TILES * WIDTH / 2; ++i) sums[i / (WIDTH / 2)][i % (WIDTH / 2)] = 0.0f;
  }
  unsigned fragments[BUFFERS][FRAGMENTS][4];  // of the instructions under way, and of the next ones
  ScaleWords chunk;
  bool large = false;
  int previous = -1;  // the stage before
#pragma unroll 1
  for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
    if (k_tile % 2 == 0) {
#pragma unroll
      for (int i = 0; i < MMA_TILES * 2 * WORDS; ++i)
        chunk[i / WORDS / 2][i / WORDS % 2][i % WORDS] = next[i / WORDS / 2][i / WORDS % 2][i % WORDS];
      if (k_tile + 2 < a.k_tiles) {
        load_scales(next, a, rows, (k_tile + 2) * 2 * UNIT_SCALE_BYTES);
      } else {
        const Work of = read_work(at);
        if (!of.last)
          load_scales(next, a, scale_rows(a, of.next_expert, of.next_row, INTERLEAVED ? of.next_row / 2 : of.next_row),
                      0);
      }
      large = has_large_scales(chunk);
    }
    wait_full(smem, state);
    const unsigned base = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    const unsigned b = __shfl_sync(0xffffffffu, descriptor_word(base + (unsigned)A_BYTES), 0);  // in uniform registers
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half > 0 && k_tile * 2 + 1 >= a.k_units) continue;
      RawWeight raw;
      load_half(raw, base, own, half);
      Factors factors[MMA_TILES];
#pragma unroll
      for (int r = 0; r < MMA_TILES; ++r) set_factors(factors[r], chunk[r], k_tile % 2 * 2 + half, large);
      if constexpr (adds_groups()) {
        multiply_int4_half<WIDTH>(d, sums, raw, factors, b, half, [&] {
          if (half == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
        });
        continue;
      }
      // Large scales are rare. A branch between instructions that are under way would make the compiler wait for each of them everywhere.
      if (large) {
        wgmma_wait<0>();
        if (half == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
#pragma unroll
        for (int i = 0; i < 8 * MMA_TILES; ++i) {
          const int r = i % MMA_TILES;
          decode(fragments[0][0], raw[r], i / MMA_TILES, factors[r], true);
          start_products<WIDTH, 1>(d[r], &fragments[0][0], b, half * 8 + i / MMA_TILES);
          wgmma_wait<0>();
        }
        continue;
      }
#pragma unroll
      for (int batch = 0; batch < 8 / FRAGMENTS * MMA_TILES; ++batch) {
        const int r = batch % MMA_TILES;
        const int first = batch / MMA_TILES * FRAGMENTS;
        // The threads decode while a batch is under way: of their own, or with one buffer of the other warp groups. The stage before is free then.
        if (BUFFERS == 1) wgmma_wait<0>();
        if (BUFFERS == 1 && half == 0 && batch == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
#pragma unroll
        for (int i = 0; i < FRAGMENTS; ++i) decode(fragments[batch % BUFFERS][i], raw[r], first + i, factors[r], false);
        start_products<WIDTH, FRAGMENTS>(d[r], fragments[batch % BUFFERS], b, half * 8 + first);
        if (BUFFERS == 2) wgmma_wait<1>();
        if (BUFFERS == 2 && half == 0 && batch == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
      }
    }
    previous = state.stage;
    next_stage(state, a.num_stages);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::fence(d[r]);
}

// ---- fp8: promotion

typedef float PartialSums[BLOCK_TOKENS / 2];
enum : int {
  STEPS = K_ATOMS * MMA_TILES,  // of a stage: an instruction's rows of a k atom each
  CONSUMER_REGISTERS = config().consumer_registers,
  THREAD_REGISTERS = CONSUMER_REGISTERS > 0     ? CONSUMER_REGISTERS
                     : BLOCKS == 2              ? 128
                     : CONSUMER_WARPGROUPS == 2 ? 168
                                                : 255,
};
// Whether a thread has registers for the scales of its tokens, which it then reads while products run; else it reads them one by one while it adds.
static __device__ constexpr bool holds_scales(int width) {
  return (MMA_TILES + 1) * BLOCK_TOKENS / 2 + width / 4 <= THREAD_REGISTERS - 40;
}

// Of a k atom: of the thread's two rows of each instruction, and of its tokens.
template <int WIDTH>
struct AtomScales {
  float rows[MMA_TILES][2];
  float tokens[holds_scales(WIDTH) ? WIDTH / 8 : 1][2];
  unsigned of_tokens;  // their address
};

template <int WIDTH>
static __device__ __forceinline__ AtomScales<WIDTH> read_scales(const SharedLayout& smem, int row, int stage,
                                                                int atom) {
  AtomScales<WIDTH> scales;
  if constexpr (scales_blocks()) {
    const unsigned from = smem.scales + (unsigned)((stage * K_ATOMS + atom) * SCALE_BYTES);
#pragma unroll
    for (int r = 0; r < MMA_TILES; ++r) {
      const unsigned rows =
          from + (unsigned)((BLOCK_TOKENS + (row + r * 64 + (int)(threadIdx.x % 128) / 32 * 16) / 8) * 4);
      load_shared_floats(rows, scales.rows[r]);
    }
    scales.of_tokens = from + threadIdx.x % 4 * 8;
    if constexpr (holds_scales(WIDTH)) {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; ++j) load_shared_floats(scales.of_tokens + (unsigned)(j * 32), scales.tokens[j]);
    }
  }
  return scales;
}

// Starts the products of a step of the stage. All steps name the same registers: WGMMA_FIRST would let the compiler take others for each.
template <int WIDTH>
static __device__ __forceinline__ void start_step(PartialSums& partials, const SharedLayout& smem, int row, int stage,
                                                  int step) {
  const unsigned base = smem.pipeline + (unsigned)stage * STAGE_BYTES;
  const int i = step / MMA_TILES;
  const unsigned long long a_at =
      matrix_descriptor(base + (unsigned)(i * A_ATOM_BYTES + row * ATOM_BYTES)) + 512u * (step % MMA_TILES);
  const unsigned long long b_at = matrix_descriptor(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
  wgmma_fence();
#pragma unroll
  for (int k_block = 0; k_block < 4; ++k_block)
    Instruction<WIDTH>::multiply(partials, a_at + 2u * k_block, b_at + 2u * k_block, k_block > 0);
  wgmma_commit();
}

// The scales of four sums of instruction r: of the thread's two rows by the j-th two of its tokens.
template <int WIDTH>
static __device__ __forceinline__ void token_factors(float (&factors)[4], const AtomScales<WIDTH>& scales, int r,
                                                     int j) {
  float first = scales.tokens[holds_scales(WIDTH) ? j : 0][0];
  float second = scales.tokens[holds_scales(WIDTH) ? j : 0][1];
  if constexpr (!holds_scales(WIDTH))
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(first), "=f"(second)
                 : "r"(scales.of_tokens + (unsigned)(j * 32))
                 : "memory");
  // Without a gate a thread's two rows lie in the same 128 of the weight.
  const float low = scales.rows[r][0];
  const float high = scales.rows[r][1];
  factors[0] = low * first;
  factors[1] = low * second;
  factors[2] = INTERLEAVED ? high * first : factors[0];
  factors[3] = INTERLEAVED ? high * second : factors[1];
}

// Adds a step's partial sums, whose instructions have completed, times their scales.
template <int WIDTH>
static __device__ __forceinline__ void promote(Accumulators& d, PartialSums& partials, const AtomScales<WIDTH>& scales,
                                               int step) {
  const int r = step % MMA_TILES;
  Instruction<WIDTH>::fence(partials);
#pragma unroll
  for (int j = 0; j < WIDTH / 8; ++j) {
    float factors[4];
    if constexpr (scales_blocks()) token_factors<WIDTH>(factors, scales, r, j);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& sum = d[r][j * 4 + e];
      if constexpr (scales_blocks())
        sum = fmaf(partials[j * 4 + e], factors[e], sum);
      else
        sum += partials[j * 4 + e];
      asm volatile("" : "+f"(sum)::"memory");
    }
  }
}

// Partial sums of 128 elements of k are added to d in float32, times their scales, while the other warp group multiplies. WIDTH: tokens of the instructions. The next
// stage's barrier and the scales are read while products run: what passes from the last addition to the next instruction is lost.
template <int WIDTH>
static __device__ __forceinline__ void multiply_promoted_tile(Accumulators& d, const WgmmaMoeArguments& a,
                                                              const SharedLayout& smem, const Work&,
                                                              PipelineState& state) {
  // Of the same value in all lanes, as the compiler then knows: descriptors stay in uniform registers.
  const int row = __shfl_sync(0xffffffffu, (int)(threadIdx.x / 128), 0) * WARPGROUP_ROWS;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) d[r][i] = 0.0f;
  }
  PartialSums partials;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; ++i) asm volatile("" : "=f"(partials[i]));  // of any value
  bool full = false;
#pragma unroll 1
  for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
    if (!full) barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
    if (GATHER) fence_async_proxy();  // the copies were ordinary writes
    PipelineState next = state;
    next_stage(next, a.num_stages);
    AtomScales<WIDTH> scales;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      start_step<WIDTH>(partials, smem, row, state.stage, step);
      if (step % MMA_TILES == 0) scales = read_scales<WIDTH>(smem, row, state.stage, step / MMA_TILES);
      if (step == STEPS - 1) full = barrier_completed(smem.full_barriers + 8u * (unsigned)next.stage, next.phase);
      wgmma_wait<0>();
      constexpr bool early = holds_scales(WIDTH) || !scales_blocks();
      if (step == STEPS - 1 && early) {
        __syncwarp();  // all lanes have read the scales
        release_stage(smem, state.stage, (int)threadIdx.x % 32);
      }
      promote<WIDTH>(d, partials, scales, step);
      if (step == STEPS - 1 && !early) {
        __syncwarp();
        release_stage(smem, state.stage, (int)threadIdx.x % 32);
      }
    }
    state = next;
  }
}

// ---- other elements

template <int WIDTH>
static __device__ __forceinline__ void multiply_tile(Accumulators& d, const WgmmaMoeArguments& a,
                                                     const SharedLayout& smem, const Work& work, PipelineState& state) {
  const int row = (int)(threadIdx.x / 128) * WARPGROUP_ROWS;
  int previous = -1;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::fence(d[r]);
#pragma unroll 1
  for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
    wait_full(smem, state);
    const unsigned base = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i) {
      const unsigned long long a_at = matrix_descriptor(base + (unsigned)(i * A_ATOM_BYTES + row * ATOM_BYTES));
      const unsigned long long b_at = matrix_descriptor(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
#pragma unroll
      for (int k_block = 0; k_block < 4; ++k_block) {
#pragma unroll
        for (int r = 0; r < MMA_TILES; ++r)
          Instruction<WIDTH>::multiply(d[r], a_at + 2u * k_block + 512u * r, b_at + 2u * k_block,
                                       i + k_block == 0 ? k_tile : 1);
      }
    }
    wgmma_commit();
    wgmma_wait<1>();  // those of the stage before have completed: release it
    if (previous >= 0) release_stage(smem, previous, (int)threadIdx.x % 32);
    previous = state.stage;
    next_stage(state, a.num_stages);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::fence(d[r]);
  release_stage(smem, previous, (int)threadIdx.x % 32);
  // Here, for each width by itself: a use of sums that narrower instructions lack makes the compiler set them between instructions, each of which then waits for the one before.
  if constexpr (config().bias) add_biases<WIDTH>(d, load_biases(a, work));
}

// With the narrowest instructions that hold the tile's tokens. OfTile: of an MXFP4 weight the scales that its loop loads early.
template <int WIDTH, typename... OfTile>
static __device__ __forceinline__ void mainloop(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem,
                                                const Work& work, PipelineState& state, OfTile&... more) {
  if constexpr (WIDTH > MIN_WIDTH) {
    if (work.tile.count <= WIDTH - WIDTH_STEP) return mainloop<WIDTH - WIDTH_STEP>(d, a, smem, work, state, more...);
  }
  if constexpr (config().fp4)
    multiply_fp4_tile<WIDTH>(d, a, smem, work, state, more...);
  else if constexpr (PROMOTE)
    multiply_promoted_tile<WIDTH>(d, a, smem, work, state);
  else
    multiply_tile<WIDTH>(d, a, smem, work, state);
}
