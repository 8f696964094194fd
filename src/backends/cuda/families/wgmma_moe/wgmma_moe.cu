// One stage of a mixture of experts on Hopper: D = A * B^T with A = rows of an expert's weight and B = rows of the tokens that are routed to it (operands are
// swapped, so that a tile may have few tokens). Persistent: blocks walk over the tiles of all experts that have tokens; a weight that no token needs is not read. A
// producer warp group loads stages: A through TMA, B in stage 1 by copies that gather tokens (cp.async), in stage 2 through TMA from the sorted hidden layer.
//
// A gated w1 is loaded in groups of 16 rows, 8 of the gate and the same 8 of the up half, so that a thread's accumulators hold both factors of an element of the
// hidden layer.
//
// The host defines: STAGE (1, 2), BLOCK_ROWS (of A: 64, 128, 256), BLOCK_TOKENS (of B), CONSUMER_WARPGROUPS (1, 2), K_ATOMS (block_k in units of 128 bytes), BLOCKS
// (of a multiprocessor), GATED and ACTIVATION (moe_activation.cuh; of stage 1), ELEMENT, OUTPUT (of `to`), SCALES (0: none, 1: of rows, 2: of 1 x 128 of tokens and 128 x
// 128 of the weight), WGMMA, WGMMA_FIRST and FENCE_ACCUMULATORS (wgmma.cu) for BLOCK_TOKENS.
using gemmtune::cuda::WgmmaMoeArguments;
using gemmtune::gpu::MoeTile;

#define INTERLEAVED (STAGE == 1 && GATED)
#define GATHER (STAGE == 1)
#define PROMOTE (ELEMENT == 3)  // of fp8 the tensor core keeps too few bits of long sums
#define A_ATOM_BYTES (BLOCK_ROWS * ATOM_BYTES)
#define B_ATOM_BYTES (BLOCK_TOKENS * ATOM_BYTES)
#define SCALE_BYTES (SCALES == 2 ? BLOCK_TOKENS * 4 : 0)  // of a k atom
#define STAGE_BYTES (K_ATOMS * (A_ATOM_BYTES + B_ATOM_BYTES))
#define CONSUMER_THREADS (128 * CONSUMER_WARPGROUPS)
#define PRODUCER_THREADS 128
#define WARPGROUP_ROWS (BLOCK_ROWS / CONSUMER_WARPGROUPS)
#define MMA_TILES (WARPGROUP_ROWS / 64)
#define TILE_COLUMNS (INTERLEAVED ? BLOCK_ROWS / 2 : BLOCK_ROWS)  // of `to`
#define MMA_COLUMNS (INTERLEAVED ? 32 : 64)                      // of one instruction's rows
#define COPIES (GATHER || SCALES == 2)                           // the producer's threads copy too
#define STAGED_TOKENS (BLOCK_TOKENS % 32 == 0 ? 32 : 16)
#define STAGING_PITCH (MMA_COLUMNS * 2 + 16)
#define STAGING_BYTES (STAGED_TOKENS * STAGING_PITCH)
#define ROWS_PER_THREAD (BLOCK_TOKENS / 16)  // that a producer thread gathers, 16 bytes of each

// Addresses in shared memory.
struct SharedLayout {
  unsigned pipeline;
  unsigned staging;  // a buffer for each consumer warp group
  unsigned scales;   // of tokens: num_stages x K_ATOMS x BLOCK_TOKENS floats
  unsigned full_barriers;
  unsigned empty_barriers;
};

struct Work {
  MoeTile tile;
  int column;  // first one of `to`
  int row;     // first one of the weight; of an interleaved one in groups of 8 of each half
};

// Neighbouring blocks compute all tokens of an expert with the same rows of the weight, then with the next ones.
static __device__ __forceinline__ Work work_at(const WgmmaMoeArguments& a, int index) {
  const int any = index / a.column_tiles;
  const MoeTile one = a.tiles[any];
  const int tiles = a.tiles_of[one.expert];
  const int first = any - one.index;
  const int local = index - first * a.column_tiles;
  const int across = local / tiles;
  Work work;
  work.tile = a.tiles[first + local - across * tiles];
  work.column = across * TILE_COLUMNS;
  work.row = across * BLOCK_ROWS;
  return work;
}

// ---- producer

static __device__ __forceinline__ void load_weight(const WgmmaMoeArguments& a, unsigned to, int k_atom, const Work& work, unsigned barrier) {
#if INTERLEAVED
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to), "l"(&a.w),
               "r"(k_atom * ATOM_ELEMENTS), "r"(0), "r"(0), "r"(work.row / 16), "r"(work.tile.expert), "r"(barrier)
               : "memory");
#else
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(&a.w),
               "r"(k_atom * ATOM_ELEMENTS), "r"(work.row), "r"(work.tile.expert), "r"(barrier)
               : "memory");
#endif
}

// Copies 16 bytes; zeros where `there` is false.
static __device__ __forceinline__ void copy_unit(unsigned to, const unsigned char* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
static __device__ __forceinline__ void copy_float(unsigned to, const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
// Arrives on the barrier when this thread's copies have been written.
static __device__ __forceinline__ void arrive_after_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void produce(const WgmmaMoeArguments& a, const SharedLayout& smem, int work_count) {
  const int thread = (int)threadIdx.x - CONSUMER_THREADS;
  int stage = 0;
  unsigned phase = 1;
#pragma unroll 1
  for (int index = (int)blockIdx.x; index < work_count; index += (int)gridDim.x) {
    const Work work = work_at(a, index);
#if GATHER
    const unsigned char* rows[ROWS_PER_THREAD];
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
      const int at = thread / 8 + i * 16;
      const int token = a.pair_of[work.tile.first + (at < work.tile.count ? at : 0)] / a.topk;
      rows[i] = a.x + token * a.x_row_bytes + thread % 8 * 16;
    }
#endif
#if SCALES == 2
    const float* scales[(BLOCK_TOKENS + 127) / 128];
#pragma unroll
    for (int i = 0; i < (BLOCK_TOKENS + 127) / 128; ++i) {
      const int at = work.tile.first + (thread + i * 128 < work.tile.count ? thread + i * 128 : 0);
      scales[i] = a.x_scales + (long long)(GATHER ? a.pair_of[at] / a.topk : at) * a.x_scale_step;
    }
#endif
#pragma unroll 1
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
      const unsigned base = smem.pipeline + (unsigned)stage * STAGE_BYTES;
      const unsigned full = smem.full_barriers + 8u * (unsigned)stage;
      barrier_wait(smem.empty_barriers + 8u * (unsigned)stage, phase);
      if (thread == 0) {
        barrier_arrive_expect_tx(full, K_ATOMS * (A_ATOM_BYTES + (GATHER ? 0 : B_ATOM_BYTES)));
#pragma unroll
        for (int i = 0; i < K_ATOMS; ++i) {
          load_weight(a, base + (unsigned)(i * A_ATOM_BYTES), k_tile * K_ATOMS + i, work, full);
          if (!GATHER)
            tma_load(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES), &a.hidden, (k_tile * K_ATOMS + i) * ATOM_ELEMENTS, work.tile.first, full, 0ull);
        }
      }
#if COPIES
#pragma unroll
      for (int i = 0; i < K_ATOMS; ++i) {
        const int k_atom = k_tile * K_ATOMS + i;
#if GATHER
        const bool inside = k_atom * ATOM_BYTES + thread % 8 * 16 < a.k_bytes;
        const unsigned to = base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES);
#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; ++r) {
          const int at = thread / 8 + r * 16;
          copy_unit(to + (unsigned)(at * ATOM_BYTES + ((thread % 8) ^ (at % 8)) * 16), rows[r] + k_atom * ATOM_BYTES, inside && at < work.tile.count);
        }
#endif
#if SCALES == 2
#pragma unroll
        for (int r = 0; r < (BLOCK_TOKENS + 127) / 128; ++r) {
          if (thread + r * 128 < BLOCK_TOKENS)
            copy_float(smem.scales + (unsigned)((stage * K_ATOMS + i) * SCALE_BYTES + (thread + r * 128) * 4), scales[r] + k_atom * a.x_scale_k_step,
                       thread + r * 128 < work.tile.count && k_atom * ATOM_BYTES < a.k_bytes);
        }
#endif
      }
      arrive_after_copies(full);
#endif
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
  }
#if COPIES
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// ---- consumer warp groups

typedef float Accumulators[MMA_TILES][BLOCK_TOKENS / 2];

static __device__ __forceinline__ void warpgroup_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

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

static __device__ __forceinline__ void release_stage(const SharedLayout& smem, int stage) {
  if (threadIdx.x % 32 == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)stage);
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

#if PROMOTE
typedef float PartialSums[BLOCK_TOKENS / 2];

// Partial sums of 128 elements of k are added to d in float32, times their scales.
static __device__ __forceinline__ void mainloop(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem, const Work& work, PipelineState& state) {
  const int row = (int)(threadIdx.x / 128) * WARPGROUP_ROWS;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_TOKENS / 2; ++i) d[r][i] = 0.0f;
  }
#if SCALES == 2
  const float* w_scales = a.w_scales + work.tile.expert * a.w_scale_matrix;
  int w_at[MMA_TILES][2];
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) w_at[r][half] = weight_row(a, work, r, half) / a.w_scale_rows * a.w_scale_columns;
  }
#endif
  PartialSums partials;
#pragma unroll 1
  for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
    wait_full(smem, state);
    const unsigned base = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
#pragma unroll
    for (int step = 0; step < K_ATOMS * MMA_TILES; ++step) {
      const int i = step / MMA_TILES;
      const int r = step % MMA_TILES;
      const unsigned long long a_at = matrix_descriptor(base + (unsigned)(i * A_ATOM_BYTES + (row + r * 64) * ATOM_BYTES));
      const unsigned long long b_at = matrix_descriptor(base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES));
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      WGMMA_FIRST(partials, a_at, b_at);
#pragma unroll
      for (int k_block = 1; k_block < 4; ++k_block) WGMMA(partials, a_at + 2u * k_block, b_at + 2u * k_block, 1);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#if SCALES == 2
      const int wanted = k_tile * K_ATOMS + i;
      const int k_atom = wanted < a.w_scale_columns ? wanted : a.w_scale_columns - 1;
      const float low = w_scales[w_at[r][0] + k_atom];
      const float high = w_scales[w_at[r][1] + k_atom];
      const unsigned scales = smem.scales + (unsigned)((state.stage * K_ATOMS + i) * SCALE_BYTES + (int)threadIdx.x % 4 * 8);
#endif
      WAIT_FOR_PRODUCTS(0);
      FENCE_ACCUMULATORS(partials);
#pragma unroll
      for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
#if SCALES == 2
        float first, second;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "r"(scales + (unsigned)(j * 32)) : "memory");
        const float factors[4] = {low * first, low * second, high * first, high * second};
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
    __syncwarp();  // all lanes have read the scales
    release_stage(smem, state.stage);
    next_stage(a, state);
  }
}
#else
static __device__ __forceinline__ void mainloop(Accumulators& d, const WgmmaMoeArguments& a, const SharedLayout& smem, const Work&, PipelineState& state) {
  const int row = (int)(threadIdx.x / 128) * WARPGROUP_ROWS;
  int previous = -1;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) FENCE_ACCUMULATORS(d[r]);
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
        for (int r = 0; r < MMA_TILES; ++r) WGMMA(d[r], a_at + 2u * k_block + 512u * r, b_at + 2u * k_block, i + k_block == 0 ? k_tile : 1);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    WAIT_FOR_PRODUCTS(1);  // those of the stage before have completed: release it
    if (previous >= 0) release_stage(smem, previous);
    previous = state.stage;
    next_stage(a, state);
  }
  WAIT_FOR_PRODUCTS(0);
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) FENCE_ACCUMULATORS(d[r]);
  release_stage(smem, previous);
}
#endif

#if SCALES == 1
// Multiplies d by the scales of its rows and of its tokens.
static __device__ __forceinline__ void scale_rows(Accumulators& d, const WgmmaMoeArguments& a, const Work& work) {
  float rows[MMA_TILES][2];
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i)
    rows[i / 2][i % 2] = a.w_scales[work.tile.expert * a.w_scale_matrix + weight_row(a, work, i / 2, i % 2) / a.w_scale_rows * (long long)a.w_scale_columns];
#pragma unroll
  for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = j * 8 + (int)threadIdx.x % 4 * 2 + i;
      const int position = work.tile.first + (at < work.tile.count ? at : 0);
      const float token = a.x_scales[(long long)(GATHER ? a.pair_of[position] / a.topk : position) * a.x_scale_step];
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

// Rounds and transposes STAGED_TOKENS tokens of an instruction's rows to the staging buffer; `d`: the thread's accumulators of them.
static __device__ __forceinline__ void stage_output(const float* d, const WgmmaMoeArguments& a, const Work& work, int first_token, unsigned to) {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)(threadIdx.x % 128) / 32;
#pragma unroll
  for (int j = 0; j < STAGED_TOKENS / 8; j += 2) {
    const float* v = d + j * 4;
#if STAGE == 1
    float factors[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (a.weights) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = first_token + (j + i / 2) * 8 + lane % 4 * 2 + i % 2;
        factors[i] = a.weights[a.pair_of[work.tile.first + (at < work.tile.count ? at : 0)]];
      }
    }
#endif
#if INTERLEAVED
    unsigned matrices[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float one = activate(v[i * 4] * factors[i * 2], v[i * 4 + 2] * factors[i * 2]);
      const float two = activate(v[i * 4 + 1] * factors[i * 2 + 1], v[i * 4 + 3] * factors[i * 2 + 1]);
      matrices[i] = round_pair(one, two);
    }
    const unsigned row = (unsigned)((j + lane / 8 % 2) * 8 + lane % 8);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to + row * STAGING_PITCH + (unsigned)(warp * 16)), "r"(matrices[0]), "r"(matrices[1])
                 : "memory");
#else
    unsigned matrices[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float one = v[i * 2];
      float two = v[i * 2 + 1];
#if STAGE == 1
      one = activate(one * factors[i / 2 * 2], 1.0f);
      two = activate(two * factors[i / 2 * 2 + 1], 1.0f);
#endif
      matrices[i] = round_pair(one, two);
    }
    const unsigned row = (unsigned)((j + lane / 16) * 8 + lane % 8);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + row * STAGING_PITCH + (unsigned)(warp * 32 + lane / 8 % 2 * 16)),
                 "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
#endif
  }
}

// Stores the staging buffer's rows: units of 16 bytes, neighbouring threads store neighbouring units.
static __device__ __forceinline__ void store_staged(const WgmmaMoeArguments& a, const Work& work, int first_token, int column, unsigned from) {
  constexpr int units = MMA_COLUMNS / 8;
#pragma unroll
  for (int item = (int)threadIdx.x % 128; item < STAGED_TOKENS * units; item += 128) {
    const int row = item / units;
    const int own = column + item % units * 8;
    if (first_token + row >= work.tile.count || own >= a.columns) continue;
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(from + (unsigned)(row * STAGING_PITCH + item % units * 16))
                 : "memory");
    *(uint4*)((output*)a.to + (long long)(work.tile.first + first_token + row) * a.columns + own) = value;
  }
}

static __device__ __forceinline__ void consume(const WgmmaMoeArguments& a, const SharedLayout& smem, int work_count) {
  const int group = (int)threadIdx.x / 128;
  const unsigned staging = smem.staging + (unsigned)(group * STAGING_BYTES);
  PipelineState state = {0, 0};
#pragma unroll 1
  for (int index = (int)blockIdx.x; index < work_count; index += (int)gridDim.x) {
    const Work work = work_at(a, index);
    Accumulators d;
    mainloop(d, a, smem, work, state);
#if SCALES == 1
    scale_rows(d, a, work);
#endif
#pragma unroll
    for (int r = 0; r < MMA_TILES; ++r) {
      const int column = work.column + (group * MMA_TILES + r) * MMA_COLUMNS;
#pragma unroll
      for (int first = 0; first < BLOCK_TOKENS; first += STAGED_TOKENS) {
        if (first >= work.tile.count) continue;
        warpgroup_sync(group);  // the buffer was read
        stage_output(&d[r][first / 2], a, work, first, staging);
        warpgroup_sync(group);
        store_staged(a, work, first, column, staging);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, BLOCKS) wgmma_moe(const __grid_constant__ WgmmaMoeArguments a) {
  extern __shared__ unsigned char memory[];
  launch_dependents();
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.staging = smem.pipeline + (unsigned)a.num_stages * STAGE_BYTES;
  smem.scales = smem.staging + CONSUMER_WARPGROUPS * STAGING_BYTES;
  smem.full_barriers = smem.pipeline + (unsigned)a.storage_bytes;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, COPIES ? 1 + PRODUCER_THREADS : 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CONSUMER_THREADS / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    prefetch_tensor_map(&a.w);
    if (!GATHER) prefetch_tensor_map(&a.hidden);
  }
  __syncthreads();
  // Tiles, operands and the workspace are of the kernels before this one.
  grid_dependency_wait();
  const int work_count = *a.tile_count * a.column_tiles;
  if (threadIdx.x >= CONSUMER_THREADS) {
#if CONSUMER_REGISTERS
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
#endif
    if (COPIES || threadIdx.x == CONSUMER_THREADS) produce(a, smem, work_count);
  } else {
#if CONSUMER_REGISTERS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
#endif
    consume(a, smem, work_count);
  }
}
