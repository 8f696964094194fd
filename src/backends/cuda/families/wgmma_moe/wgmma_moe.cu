// The consumers of wgmma_moe, and the kernel.

#include "backends/cuda/families/hopper.cuh"
#include "backends/cuda/families/hopper_e2m1.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_fp4.cuh"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_producer.cuh"
#include "backends/gpu/families/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_sort.cuh"

typedef float Accumulators[MMA_TILES][BLOCK_TOKENS / 2];

struct PipelineState {
  int stage;
  unsigned phase;
};

static __device__ __forceinline__ void next_stage(const WgmmaMoeArguments& a, PipelineState& state) {
  if (++state.stage == a.num_stages) {
    state.stage = 0;
    state.phase ^= 1u;
  }
}

static __device__ __forceinline__ void wait_full(const SharedLayout& smem, const PipelineState& state) {
  barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
  if (GATHER) fence_async_proxy();  // the copies were ordinary writes
}

// A stage is free when the consumers of all blocks that its weight is multicast to have read it.
// `lane`: the thread's; 32: there is none to release, which is no branch between instructions of a warp group.
static __device__ __forceinline__ void release_stage(const SharedLayout& smem, int stage, int lane) {
  const unsigned barrier = smem.empty_barriers + 8u * (unsigned)stage;
#if CLUSTER > 1
  if (lane < CLUSTER) barrier_arrive_remote(remote_address(barrier, lane));
#else
  if (lane == 0) barrier_arrive(barrier);
#endif
}

#define WAIT_FOR_PRODUCTS(pending) asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")

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

#if BIAS
// Of the rows of w1 whose sums the thread has.
struct RowBiases {
  float row[MMA_TILES][2];
};

static __device__ __forceinline__ RowBiases load_biases(const WgmmaMoeArguments& a, const Work& work) {
  const float* const bias = a.bias + (long long)work.tile.expert * (INTERLEAVED ? 2 : 1) * (FP4 ? a.features : a.columns);
  RowBiases biases;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
#if FP4
    // Columns behind the last feature stay zero.
    const int feature = feature_of(work.column, i / 2, i % 2);
    float value = 0.0f;
    if (feature < a.features) asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(bias + (INTERLEAVED ? i % 2 * (long long)a.features : 0) + feature));
    biases.row[i / 2][i % 2] = value;
#else
    biases.row[i / 2][i % 2] = __ldg(bias + weight_row(a, work, i / 2, i % 2));
#endif
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
#endif

#if FP4
// WIDTH: tokens of the instructions. `next`: the scales of the tile's first 512 of k; on return those of the next tile. `at`: of the work. The last stage is released by the epilogue.
template <int WIDTH>
static __device__ __forceinline__ void multiply_tile(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem, const Work& work, PipelineState& state, ScaleWords& next, unsigned at) {
  const int lane = (int)threadIdx.x % 32;
  const ScaleRows rows = scale_rows(a, work.tile.expert, work.row, work.column);
  const unsigned own = own_weight();
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) d[r][i] = 0.0f;
  }
  unsigned fragments[BUFFERS][FRAGMENTS][4];  // of the instructions under way, and of the next ones
  ScaleWords chunk;
  bool large = false;
  int previous = -1;  // the stage before
#pragma unroll 1
  for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
    if (k_tile % 2 == 0) {
#pragma unroll
      for (int i = 0; i < MMA_TILES * 2; ++i) chunk[i / 2][i % 2] = next[i / 2][i % 2];
      if (k_tile + 2 < a.k_tiles) {
        load_scales(next, a, rows, k_tile * 8 + 16);
      } else {
        const Work of = read_work(at);
        if (!of.last) load_scales(next, a, scale_rows(a, of.next_expert, of.next_row, INTERLEAVED ? of.next_row / 2 : of.next_row), 0);
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
      for (int r = 0; r < MMA_TILES; ++r) factors[r] = factors_of(chunk[r], k_tile % 2 * 2 + half, large);
      // Large scales are rare. A branch between instructions that are under way would make the compiler wait for each of them everywhere.
      if (large) {
        WAIT_FOR_PRODUCTS(0);
        if (half == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
#pragma unroll
        for (int i = 0; i < 8 * MMA_TILES; ++i) {
          const int r = i % MMA_TILES;
          decode(fragments[0][0], raw[r], i / MMA_TILES, factors[r], true);
          start_products<WIDTH, 1>(d[r], &fragments[0][0], b, half * 8 + i / MMA_TILES);
          WAIT_FOR_PRODUCTS(0);
        }
        continue;
      }
#pragma unroll
      for (int batch = 0; batch < 8 / FRAGMENTS * MMA_TILES; ++batch) {
        const int r = batch % MMA_TILES;
        const int first = batch / MMA_TILES * FRAGMENTS;
        // The threads decode while a batch is under way: of their own, or with one buffer of the other warp groups. The stage before is free then.
        if (BUFFERS == 1) WAIT_FOR_PRODUCTS(0);
        if (BUFFERS == 1 && half == 0 && batch == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
#pragma unroll
        for (int i = 0; i < FRAGMENTS; ++i) decode(fragments[batch % BUFFERS][i], raw[r], first + i, factors[r], false);
        start_products<WIDTH, FRAGMENTS>(d[r], fragments[batch % BUFFERS], b, half * 8 + first);
        if (BUFFERS == 2) WAIT_FOR_PRODUCTS(1);
        if (BUFFERS == 2 && half == 0 && batch == 0) release_stage(smem, previous, previous >= 0 ? lane : 32);
      }
    }
    previous = state.stage;
    next_stage(a, state);
  }
  WAIT_FOR_PRODUCTS(0);
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::fence(d[r]);
}
#elif PROMOTE
typedef float PartialSums[BLOCK_TOKENS / 2];
#define STEPS (K_ATOMS * MMA_TILES)  // of a stage: an instruction's rows of a k atom each
#define THREAD_REGISTERS (CONSUMER_REGISTERS > 0 ? CONSUMER_REGISTERS : BLOCKS == 2 ? 128 : CONSUMER_WARPGROUPS == 2 ? 168 : 255)
// Whether a thread has registers for the scales of its tokens, which it then reads while products run; else it reads them one by one while it adds.
#define HOLDS_SCALES(WIDTH) ((MMA_TILES + 1) * BLOCK_TOKENS / 2 + WIDTH / 4 <= THREAD_REGISTERS - 40)

// Of a k atom: of the thread's two rows of each instruction, and of its tokens.
template <int WIDTH>
struct AtomScales {
#if SCALES == 2
  float rows[MMA_TILES][2];
  float tokens[HOLDS_SCALES(WIDTH) ? WIDTH / 8 : 1][2];
  unsigned of_tokens;  // their address
#endif
};

template <int WIDTH>
static __device__ __forceinline__ AtomScales<WIDTH> read_scales(const SharedLayout& smem, int row, int stage, int atom) {
  AtomScales<WIDTH> scales;
#if SCALES == 2
  const unsigned from = smem.scales + (unsigned)((stage * K_ATOMS + atom) * SCALE_BYTES);
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
    const unsigned rows = from + (unsigned)((BLOCK_TOKENS + (row + r * 64 + (int)(threadIdx.x % 128) / 32 * 16) / 8) * 4);
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(scales.rows[r][0]), "=f"(scales.rows[r][1]) : "r"(rows) : "memory");
  }
  scales.of_tokens = from + threadIdx.x % 4 * 8;
  if (HOLDS_SCALES(WIDTH)) {
#pragma unroll
    for (int j = 0; j < WIDTH / 8; ++j)
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(scales.tokens[j][0]), "=f"(scales.tokens[j][1]) : "r"(scales.of_tokens + (unsigned)(j * 32)) : "memory");
  }
#endif
  return scales;
}

// Starts the products of a step of the stage. All steps name the same registers: WGMMA_FIRST would let the compiler take others for each.
template <int WIDTH>
static __device__ __forceinline__ void start_step(PartialSums& partials, const SharedLayout& smem, int row, int stage, int step) {
  const unsigned base = smem.pipeline + (unsigned)stage * STAGE_BYTES;
  const int i = step / MMA_TILES;
  const unsigned long long a_at = matrix_descriptor(base + (unsigned)(i * A_ATOM_BYTES + row * ATOM_BYTES)) + 512u * (step % MMA_TILES);
  const unsigned long long b_at = matrix_descriptor(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k_block = 0; k_block < 4; ++k_block) Instruction<WIDTH>::multiply(partials, a_at + 2u * k_block, b_at + 2u * k_block, k_block > 0);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Adds a step's partial sums, whose instructions have completed, times their scales.
template <int WIDTH>
static __device__ __forceinline__ void promote(Accumulators& d, PartialSums& partials, const AtomScales<WIDTH>& scales, int step) {
  const int r = step % MMA_TILES;
  Instruction<WIDTH>::fence(partials);
#pragma unroll
  for (int j = 0; j < WIDTH / 8; ++j) {
#if SCALES == 2
    float first = scales.tokens[HOLDS_SCALES(WIDTH) ? j : 0][0];
    float second = scales.tokens[HOLDS_SCALES(WIDTH) ? j : 0][1];
    if (!HOLDS_SCALES(WIDTH)) asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(scales.of_tokens + (unsigned)(j * 32)) : "memory");
    // Without a gate a thread's two rows lie in the same 128 of the weight.
    const float low = scales.rows[r][0];
    const float high = scales.rows[r][1];
    const float of_first = low * first, of_second = low * second;
    const float factors[4] = {of_first, of_second, INTERLEAVED ? high * first : of_first, INTERLEAVED ? high * second : of_second};
#endif
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& sum = d[r][j * 4 + e];
#if SCALES == 2
      sum = fmaf(partials[j * 4 + e], factors[e], sum);
#else
      sum += partials[j * 4 + e];
#endif
      asm volatile("" : "+f"(sum)::"memory");
    }
  }
}

// Partial sums of 128 elements of k are added to d in float32, times their scales, while the other warp group multiplies. WIDTH: tokens of the instructions. The next
// stage's barrier and the scales are read while products run: what passes from the last addition to the next instruction is lost.
template <int WIDTH>
static __device__ __forceinline__ void multiply_tile(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem, const Work&, PipelineState& state) {
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
    next_stage(a, next);
    AtomScales<WIDTH> scales;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      start_step<WIDTH>(partials, smem, row, state.stage, step);
      if (step % MMA_TILES == 0) scales = read_scales<WIDTH>(smem, row, state.stage, step / MMA_TILES);
      if (step == STEPS - 1) full = barrier_completed(smem.full_barriers + 8u * (unsigned)next.stage, next.phase);
      WAIT_FOR_PRODUCTS(0);
      const bool early = HOLDS_SCALES(WIDTH) || SCALES != 2;
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
#else
template <int WIDTH>
static __device__ __forceinline__ void multiply_tile(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem, const Work& work, PipelineState& state) {
  const int row = (int)(threadIdx.x / 128) * WARPGROUP_ROWS;
  int previous = -1;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::fence(d[r]);
#pragma unroll 1
  for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
    wait_full(smem, state);
    const unsigned base = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < K_ATOMS; ++i) {
      const unsigned long long a_at = matrix_descriptor(base + (unsigned)(i * A_ATOM_BYTES + row * ATOM_BYTES));
      const unsigned long long b_at = matrix_descriptor(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
#pragma unroll
      for (int k_block = 0; k_block < 4; ++k_block) {
#pragma unroll
        for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::multiply(d[r], a_at + 2u * k_block + 512u * r, b_at + 2u * k_block, i + k_block == 0 ? k_tile : 1);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    WAIT_FOR_PRODUCTS(1);  // those of the stage before have completed: release it
    if (previous >= 0) release_stage(smem, previous, (int)threadIdx.x % 32);
    previous = state.stage;
    next_stage(a, state);
  }
  WAIT_FOR_PRODUCTS(0);
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) Instruction<WIDTH>::fence(d[r]);
  release_stage(smem, previous, (int)threadIdx.x % 32);
#if BIAS
  // Here, for each width by itself: a use of sums that narrower instructions lack makes the compiler set them between instructions, each of which then waits for the one before.
  add_biases<WIDTH>(d, load_biases(a, work));
#endif
}
#endif

// With the narrowest instructions that hold the tile's tokens. OfTile: of an MXFP4 weight the scales that its loop loads early.
template <int WIDTH, typename... OfTile>
static __device__ __forceinline__ void mainloop(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem, const Work& work, PipelineState& state, OfTile&... more) {
  if constexpr (WIDTH > MIN_WIDTH) {
    if (work.tile.count <= WIDTH - WIDTH_STEP) return mainloop<WIDTH - WIDTH_STEP>(d, a, smem, work, state, more...);
  }
  multiply_tile<WIDTH>(d, a, smem, work, state, more...);
}

#if SCALES == 1
// Multiplies d by the scales of its rows and of its tokens.
static __device__ __forceinline__ void scale_rows(Accumulators& d, const WgmmaMoeArguments& a, const Routes& routes, const Work& work) {
  float rows[MMA_TILES][2];
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i)
    rows[i / 2][i % 2] = a.w_scales[work.tile.expert * a.w_scale_matrix + weight_row(a, work, i / 2, i % 2) / a.w_scale_rows * (long long)a.w_scale_columns];
#pragma unroll
  for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = j * 8 + (int)threadIdx.x % 4 * 2 + i;
      const int position = work.tile.first + at;
      const bool there = at < work.tile.count;
      const float token = there ? a.x_scales[(long long)(GATHER ? routes.pair_of[position] / a.topk : position) * a.x_scale_step] : 0.0f;
#pragma unroll
      for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& sum = d[r][j * 4 + half * 2 + i];
          sum = (ELEMENT == 4 ? (float)__float_as_int(sum) : sum) * rows[r][half] * token;
          asm volatile("" : "+f"(sum)::"memory");
        }
      }
    }
  }
}
#endif

#if FP4
// Multiplies d by the unit of its sums.
static __device__ __forceinline__ void scale_sums(Accumulators& d) {
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_TOKENS / 2; ++i) d[r][i] *= E2M1_UNIT * TOKEN_UNIT;
  }
}
#endif

#if TOKEN_SCALES
// Of the tile's tokens, one in 32 of them a lane: loaded before the mainloop, which they would wait for otherwise.
struct TokenScales {
  float of[(BLOCK_TOKENS + 31) / 32];
};

static __device__ __forceinline__ TokenScales load_token_scales(const WgmmaMoeArguments& a, const Routes& routes, const Work& work) {
  TokenScales scales;
#pragma unroll
  for (int i = 0; i < (BLOCK_TOKENS + 31) / 32; ++i) {
    const int at = i * 32 + (int)threadIdx.x % 32;
    scales.of[i] = 0.0f;
    if (at < work.tile.count) {
      const float* const from = a.x_scales + (long long)(routes.pair_of[work.tile.first + at] / a.topk) * a.x_scale_step;
      asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scales.of[i]) : "l"(from));
    }
  }
  return scales;
}

// Multiplies d by the scales of its tokens.
static __device__ __forceinline__ void scale_tokens(Accumulators& d, const TokenScales& scales) {
#pragma unroll
  for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float scale = __shfl_sync(0xffffffffu, scales.of[j / 4], j % 4 * 8 + (int)threadIdx.x % 4 * 2 + i);
#pragma unroll
      for (int r = 0; r < MMA_TILES * 2; ++r) d[r / 2][j * 4 + r % 2 * 2 + i] *= scale;
    }
  }
}
#endif

// Of STAGED_TOKENS tokens of an instruction's rows: pairs of tokens of the thread's one or two columns.
struct Rounded {
  unsigned of[STAGED_TOKENS / 8][INTERLEAVED ? 1 : 2];
};

// `d`: the thread's accumulators of these tokens.
static __device__ __forceinline__ Rounded round_tokens(const float* d, const WgmmaMoeArguments& a, const Routes& routes, const Work& work, int first_token) {
  Rounded rounded;
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; ++j) {
    const float* v = d + j * 4;
    float factors[2] = {1.0f, 1.0f};
#if WEIGHTED
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = first_token + j * 8 + (int)threadIdx.x % 4 * 2 + i;
      if (at < work.tile.count) factors[i] = a.weights[routes.pair_of[work.tile.first + at]];
    }
#endif
#if INTERLEAVED
    rounded.of[j][0] = round_pair(activate(v[0] * factors[0], v[2] * factors[0]), activate(v[1] * factors[1], v[3] * factors[1]));
#else
#pragma unroll
    for (int i = 0; i < 2; ++i)
      rounded.of[j][i] = STAGE == 1 ? round_pair(activate(v[i * 2] * factors[0], 1.0f), activate(v[i * 2 + 1] * factors[1], 1.0f)) : round_pair(v[i * 2], v[i * 2 + 1]);
#endif
  }
  return rounded;
}

#if QUANTIZES
static __device__ __forceinline__ void sync_warpgroup() { asm volatile("bar.sync %0, 128;" ::"r"(1 + (int)threadIdx.x / 128) : "memory"); }

#define QUANTIZED_INSTRUCTIONS (INTERLEAVED ? 2 : 1)  // of a warp group, whose columns are neighbours: rows of 128 bytes, of which 16 bytes at c of row r are at c ^ (r % 8)

// Rounds and transposes STAGED_TOKENS tokens of the warp group's instructions from r on.
static __device__ __forceinline__ void stage_chunk(const Accumulators& d, int r, const WgmmaMoeArguments& a, const Routes& routes, const Work& work, int first_token, unsigned to) {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)(threadIdx.x % 128) / 32;
  // All arithmetic before the first store, so that the compiler interleaves it.
  Rounded rounded[QUANTIZED_INSTRUCTIONS];
#pragma unroll
  for (int i = 0; i < QUANTIZED_INSTRUCTIONS; ++i) rounded[i] = round_tokens(&d[r + i][first_token / 2], a, routes, work, first_token);
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; j += 2) {
    // Four matrices of 8 x 8: the columns of two instructions, or of both halves of one, of 8 tokens and of the next 8. Lanes have a row of one each.
#if INTERLEAVED
    const unsigned row = (unsigned)((j + lane / 8 % 2) * 8 + lane % 8);
    const unsigned unit = (unsigned)(lane / 16 * 4 + warp);
    const unsigned values[4] = {rounded[0].of[j][0], rounded[0].of[j + 1][0], rounded[1].of[j][0], rounded[1].of[j + 1][0]};
#else
    const unsigned row = (unsigned)((j + lane / 16) * 8 + lane % 8);
    const unsigned unit = (unsigned)(warp * 2 + lane / 8 % 2);
    const unsigned values[4] = {rounded[0].of[j][0], rounded[0].of[j][1], rounded[0].of[j + 1][0], rounded[0].of[j + 1][1]};
#endif
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + row * 128u + (unit ^ (unsigned)(lane % 8)) * 16u), "r"(values[0]),
                 "r"(values[1]), "r"(values[2]), "r"(values[3])
                 : "memory");
  }
}

static __device__ __forceinline__ unsigned fp8_pair(float first, float second) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
}
// Of four of eight bf16 values.
static __device__ __forceinline__ unsigned fp8_four(unsigned low, unsigned high, float factor) {
  return fp8_pair(__uint_as_float(low << 16) * factor, __uint_as_float(low & 0xffff0000u) * factor) |
         fp8_pair(__uint_as_float(high << 16) * factor, __uint_as_float(high & 0xffff0000u) * factor) << 16;
}
static __device__ __forceinline__ unsigned max_pair(unsigned first, unsigned second) {
  unsigned most;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(first & 0x7fff7fffu), "r"(second & 0x7fff7fffu));
  return most;
}

#define TOKENS_AT_ONCE 32  // four threads have a token's 64 columns of the warp group
#define QUANTIZED_PARTS ((BLOCK_TOKENS + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE)

// Quantizes the staged tokens as moe_quantize does: the tile's 128 columns are divided by their largest magnitude over 448. `largest`: of this tile, the magnitudes of both
// warp groups' columns.
static __device__ __forceinline__ void store_quantized(const WgmmaMoeArguments& a, const Work& work, unsigned from, float (&largest)[2][BLOCK_TOKENS]) {
  const int group = (int)threadIdx.x / 128;
  const int own = (int)threadIdx.x % 128 / 4;
  const int quarter = (int)threadIdx.x % 4;
  uint4 values[QUANTIZED_PARTS][2];
  float most[QUANTIZED_PARTS];
#pragma unroll
  for (int part = 0; part < QUANTIZED_PARTS; ++part) {
    const int token = part * TOKENS_AT_ONCE + own;
    unsigned pair = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint4& value = values[part][i];
      value = make_uint4(0u, 0u, 0u, 0u);
      if (token < work.tile.count)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                     : "r"(from + (unsigned)(token * 128 + ((quarter * 2 + i) ^ (token % 8)) * 16))
                     : "memory");
      pair = max_pair(max_pair(pair, max_pair(value.x, value.y)), max_pair(value.z, value.w));
    }
    float one = fmaxf(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    one = fmaxf(one, __shfl_xor_sync(0xffffffffu, one, 1));
    most[part] = fmaxf(one, __shfl_xor_sync(0xffffffffu, one, 2));
    if (quarter == 0 && token < work.tile.count) largest[group][token] = most[part];
  }
  asm volatile("bar.sync 3, 256;" ::: "memory");  // of both warp groups
#pragma unroll
  for (int part = 0; part < QUANTIZED_PARTS; ++part) {
    const int token = part * TOKENS_AT_ONCE + own;
    if (token >= work.tile.count) continue;
    const float scale = fmaxf(fmaxf(most[part], largest[1 - group][token]), 1e-30f) / 448.0f;
    const float factor = 1.0f / scale;
    const uint4 first = values[part][0], second = values[part][1];
    const long long position = work.tile.first + token;
    *(uint4*)((unsigned char*)a.to + position * a.columns + work.column + group * 64 + quarter * 16) =
        make_uint4(fp8_four(first.x, first.y, factor), fp8_four(first.z, first.w, factor), fp8_four(second.x, second.y, factor), fp8_four(second.z, second.w, factor));
    if (group == 0 && quarter == 0) a.to_scales[(long long)(work.column / 128) * a.pairs + position] = scale;
  }
}

// Stores the tile, staged at `to`. `parity`: of the tile's number.
static __device__ __forceinline__ void store_tile(const Accumulators& d, const WgmmaMoeArguments& a, const Routes& routes, const Work& work, unsigned to, int& parity) {
  __shared__ float largest[2][2][BLOCK_TOKENS];  // of two tiles: a warp group may be one ahead
#pragma unroll
  for (int first = 0; first < BLOCK_TOKENS; first += STAGED_TOKENS)
    if (first < work.tile.count) stage_chunk(d, 0, a, routes, work, first, to + (unsigned)(first * 128));
  sync_warpgroup();
  if (work.tile.count > 0) store_quantized(a, work, to, largest[parity]);
  parity ^= 1;
}
#endif

// Rounds and transposes STAGED_TOKENS tokens of an instruction's 16 rows to the warp's staging buffer, a row of 8 or 16 columns for each token; `d`: the thread's accumulators of them.
static __device__ __forceinline__ void stage_output(const float* d, const WgmmaMoeArguments& a, const Routes& routes, const Work& work, int first_token, unsigned to) {
  const int lane = (int)threadIdx.x % 32;
  // All arithmetic before the first store, so that the compiler interleaves it.
  const Rounded rounded = round_tokens(d, a, routes, work, first_token);
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; j += 2) {
#if INTERLEAVED
    const unsigned row = (unsigned)((j + lane / 8 % 2) * 8 + lane % 8);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to + row * STAGING_PITCH), "r"(rounded.of[j][0]), "r"(rounded.of[j + 1][0])
                 : "memory");
#else
    const unsigned row = (unsigned)((j + lane / 16) * 8 + lane % 8);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + row * STAGING_PITCH + (unsigned)((lane / 8 % 2) ^ (lane / 4 % 2)) * 16u),
                 "r"(rounded.of[j][0]), "r"(rounded.of[j][1]), "r"(rounded.of[j + 1][0]), "r"(rounded.of[j + 1][1])
                 : "memory");
#endif
  }
}

// Stores the warp's staging buffer, 16 bytes a lane. Warps do not wait for each other: the tensor core would have nothing to do meanwhile.
static __device__ __forceinline__ void store_staged(const WgmmaMoeArguments& a, const Work& work, int first_token, int column, unsigned from) {
  constexpr int units = STAGING_PITCH / 16;
#pragma unroll
  for (int i = 0; i < (STAGED_TOKENS * units + 31) / 32; ++i) {
    const int item = i * 32 + (int)threadIdx.x % 32;
    const int row = item / units;
    const int unit = item % units;
    const int own = column + unit * 8;
    if (row >= STAGED_TOKENS || first_token + row >= work.tile.count || own >= a.columns) continue;
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from + (unsigned)(row * STAGING_PITCH + (INTERLEAVED ? 0 : (unit ^ (row / 4 % 2)) * 16)))
                 : "memory");
#if FP4 && STAGE == 2
    value = make_uint4(__byte_perm(value.x, value.y, 0x5410), __byte_perm(value.z, value.w, 0x5410), __byte_perm(value.x, value.y, 0x7632),
                       __byte_perm(value.z, value.w, 0x7632));
#endif
    const int position = work.tile.first + first_token + row;
    *(uint4*)((output*)a.to + (long long)position * a.columns + own) = value;
  }
}

#define LOADS_EARLY (FP4 && CONSUMER_WARPGROUPS < 4)  // biases and scales of tokens before the mainloop; four warp groups have no registers for them

static __device__ __forceinline__ void consume(const WgmmaMoeArguments& a, const SharedLayout& smem, const Routes& routes, int work_count) {
  const int group = (int)threadIdx.x / 128;
  const int warp = (int)(threadIdx.x % 128) / 32;
#if !FP4
  const unsigned staging = smem.staging + (unsigned)(group * STAGING_BYTES + (QUANTIZES ? 0 : warp * (STAGING_BYTES / 4)));
#endif
#if QUANTIZES
  int parity = 0;
#endif
  PipelineState state = {0, 0};
#if FP4
  ScaleWords scales;  // of the next tile's first chunk
  bool loaded = false;
#endif
  int last = first_work() >= work_count;
  unsigned at = smem.work;
#pragma unroll 1
  while (!last) {
    wait_full(smem, state);
    Work work = read_work(at);
    __syncwarp();
    Accumulators d;
#if FP4
    if (!loaded) load_scales(scales, a, scale_rows(a, work.tile.expert, work.row, work.column), 0);
    loaded = true;
#if BIAS && LOADS_EARLY
    const RowBiases biases = load_biases(a, work);
#endif
#if TOKEN_SCALES && LOADS_EARLY
    const TokenScales token_scales = load_token_scales(a, routes, work);
#endif
    mainloop<BLOCK_TOKENS>(d, a, smem, work, state, scales, at);
    work = read_work(at);  // again: the mainloop has no registers for it
    // In the weight's rows of the tile's last stage, 16 of the warp group's: it has read them all when its last instruction has completed.
    const int last_stage = (state.stage > 0 ? state.stage : a.num_stages) - 1;
    const unsigned staging = smem.pipeline + (unsigned)last_stage * STAGE_BYTES +
                             (unsigned)((STAGE == 1 ? warp * (BLOCK_ROWS / 4) + group * MMA_TILES * 16 : group * WARPGROUP_ROWS + warp * 16) * ATOM_BYTES);
#else
    mainloop<BLOCK_TOKENS>(d, a, smem, work, state);
#endif
    last = work.last;
    at = at == smem.work + (ITEM_SLOTS - 1) * WORK_BYTES ? smem.work : at + WORK_BYTES;
#if SCALES == 1
    scale_rows(d, a, routes, work);
#endif
#if FP4
    scale_sums(d);
#endif
#if TOKEN_SCALES
#if !LOADS_EARLY
    const TokenScales token_scales = load_token_scales(a, routes, work);
#endif
    scale_tokens(d, token_scales);
#endif
#if BIAS && (FP4 || PROMOTE)
#if !LOADS_EARLY
    const RowBiases biases = load_biases(a, work);
#endif
    add_biases<BLOCK_TOKENS>(d, biases);
#endif
#if QUANTIZES
    sync_warpgroup();  // the tile before was read
    store_tile(d, a, routes, work, staging, parity);
#else
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
#endif
#if FP4
    fence_async_proxy();
    __syncwarp();
    release_stage(smem, last_stage, (int)threadIdx.x % 32);
#endif
  }
}

// A warp group's registers a thread from here on.
#if PRODUCER_REGISTERS
#define REGISTERS_TEXT(count) #count
#define REALLOCATE_REGISTERS(way, count) asm volatile("setmaxnreg." #way ".sync.aligned.u32 " REGISTERS_TEXT(count) ";")
#else
#define REALLOCATE_REGISTERS(way, count)
#endif

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, BLOCKS) wgmma_moe(const __grid_constant__ WgmmaMoeArguments a) {
  extern __shared__ unsigned char memory[];
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.staging = smem.pipeline + (unsigned)a.num_stages * STAGE_BYTES;
  smem.scales = smem.staging + CONSUMER_WARPGROUPS * STAGING_BYTES;
  smem.work = smem.pipeline + (unsigned)a.storage_bytes;
  smem.items = smem.work + ITEM_SLOTS * WORK_BYTES;
  smem.full_barriers = smem.items + ITEM_SLOTS * ITEM_BYTES;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, COPIES ? 1 + PRODUCER_THREADS : 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CLUSTER * CONSUMER_THREADS / 32);
    }
    if (DYNAMIC && SHARED_ITEMS) {
      for (int i = 0; i < ITEM_SLOTS; ++i) barrier_init(smem.items + (unsigned)(i * ITEM_BYTES), 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    prefetch_tensor_map(&a.w);
    if (!GATHER) prefetch_tensor_map(&a.hidden);
  }
#if CLUSTER > 1
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#else
  __syncthreads();
#endif
#if STAGE == 1
  // Operands and the tiles are of the kernels before this one.
  grid_dependency_wait();
  // After the wait: what starts from here on finds the tiles in memory.
  launch_dependents();
#else
  launch_dependents();
#endif
#if SORT
  __shared__ Sorted sorted;
  const int sorted_tiles = sort_pairs<BLOCK_TOKENS>(a.ids, a.pairs, a.experts, STAGE == 1 ? a.position_of : 0, sorted);
  const Routes routes = {sorted.pair_of, sorted.tiles, sorted.tiles_of, sorted_tiles};
#define ROUTES routes
#else
// Each role reads it again: no register holds it while registers are reallocated.
#define ROUTES \
  { a.pair_of, a.tiles, a.tiles_of, __ldcg(a.tile_count) }
#endif
  if (threadIdx.x >= CONSUMER_THREADS) {
    REALLOCATE_REGISTERS(dec, PRODUCER_REGISTERS);
    const Routes sorted_routes = ROUTES;
    if (COPIES || threadIdx.x == CONSUMER_THREADS) produce(a, smem, sorted_routes, sorted_routes.tile_count * a.column_tiles);
  } else {
    REALLOCATE_REGISTERS(inc, CONSUMER_REGISTERS);
    // The hidden layer's scales are of the kernel before this one.
    if (STAGE == 2) grid_dependency_wait();
    const Routes sorted_routes = ROUTES;
    consume(a, smem, sorted_routes, sorted_routes.tile_count * a.column_tiles);
  }
#if CLUSTER > 1
  // No block exits while another may still write to its shared memory.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#endif
}
