// One stage of a mixture of experts on Hopper: D = A * B^T with A = rows of an expert's weight and B = rows of the tokens that are routed to it (operands are
// swapped, so that a tile may have few tokens). Persistent: blocks walk over the tiles of all experts that have tokens; a weight that no token needs is not read. A
// producer warp group loads stages: A through TMA, B in stage 1 by copies that gather tokens (cp.async), in stage 2 through TMA from the sorted hidden layer.
//
// A gated w1 is loaded in groups of 16 rows, 8 of the gate and the same 8 of the up half, so that a thread's accumulators hold both factors of an element of the
// hidden layer.
//
// The host defines: STAGE (1, 2), BLOCK_ROWS (of A: 64, 128, 256), BLOCK_TOKENS (of B), CONSUMER_WARPGROUPS (1, 2), K_ATOMS (block_k in units of 128 bytes), BLOCKS
// (of a multiprocessor), CLUSTER (1; 2: blocks of a cluster compute neighbouring halves of a tile's tokens with the same rows of the weight, of which each loads a
// half for both by multicast), GATED and ACTIVATION (moe_activation.cuh; of stage 1), ELEMENT, OUTPUT (of `to`), SCALES (0: none, 1: of rows, 2: of 1 x 128 of tokens
// and 128 x 128 of the weight), PRODUCER_REGISTERS and CONSUMER_REGISTERS (of a thread; 0: as compiled), WGMMA, WGMMA_FIRST and FENCE_ACCUMULATORS (wgmma.cu) for
// BLOCK_TOKENS.
using gemmtune::cuda::WgmmaMoeArguments;
using gemmtune::gpu::MoeTile;

#define INTERLEAVED (STAGE == 1 && GATED)
#define GATHER (STAGE == 1)
#define PROMOTE (ELEMENT == 3)  // of fp8 the tensor core keeps too few bits of long sums
#define A_ATOM_BYTES (BLOCK_ROWS * ATOM_BYTES)
#define B_ATOM_BYTES (BLOCK_TOKENS * ATOM_BYTES)
#define SHARE_ROWS (BLOCK_ROWS / CLUSTER)  // of A that a block loads
#define SCALE_BYTES (SCALES == 2 ? BLOCK_TOKENS * 4 : 0)  // of a k atom
#define STAGE_BYTES (K_ATOMS * (A_ATOM_BYTES + B_ATOM_BYTES))
#define LOADED_BYTES (K_ATOMS * (A_ATOM_BYTES + (GATHER ? 0 : B_ATOM_BYTES)))  // by TMA into a stage
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
#define SCALE_COPIES ((BLOCK_TOKENS + 127) / 128)  // of a thread of the producer, each k atom
#define ROWS_PER_THREAD (BLOCK_TOKENS / 16)  // that a producer thread gathers, 16 bytes of each

// Addresses in shared memory.
struct SharedLayout {
  unsigned pipeline;
  unsigned staging;  // a buffer for each consumer warp group
  unsigned scales;   // of tokens: num_stages x K_ATOMS x BLOCK_TOKENS floats
  unsigned work;     // the Work of each stage that begins a tile
  unsigned full_barriers;
  unsigned empty_barriers;
};
#define WORK_BYTES 32

// Rank of the block in its cluster, and the first of the work items of the cluster.
static __device__ __forceinline__ int rank_of_block() { return CLUSTER > 1 ? cluster_cta_rank() : 0; }
static __device__ __forceinline__ int first_work() { return CLUSTER > 1 ? cluster_index() : (int)blockIdx.x; }
static __device__ __forceinline__ int work_stride() { return CLUSTER > 1 ? cluster_count() : (int)gridDim.x; }

struct Work {
  MoeTile tile;  // the block's share of it; count may be 0 with CLUSTER
  int column;    // first one of `to`
  int row;       // first one of the weight; of an interleaved one in groups of 8 of each half
};

// EARLY: before the grid dependency, when L1 may hold what was there before the sort.
template <bool EARLY>
static __device__ __forceinline__ MoeTile load_tile(const MoeTile* from) {
  if (!EARLY) return *from;
  const int4 bits = __ldcg((const int4*)from);
  return {bits.x, bits.y, bits.z, bits.w};
}

// Neighbouring blocks compute all tokens of an expert with the same rows of the weight, then with the next ones.
template <bool EARLY>
static __device__ __forceinline__ Work work_at(const WgmmaMoeArguments& a, int index) {
  const int any = index / a.column_tiles;
  const MoeTile one = load_tile<EARLY>(a.tiles + any);
  const int* at = a.tiles_of + one.expert;
  const int tiles = EARLY ? __ldcg(at) : *at;
  const int first = any - one.index;
  const int local = index - first * a.column_tiles;
  const int across = local / tiles;
  Work work;
  work.tile = load_tile<EARLY>(a.tiles + first + local - across * tiles);
  work.column = across * TILE_COLUMNS;
  work.row = across * BLOCK_ROWS;
#if CLUSTER > 1
  const int skipped = rank_of_block() * BLOCK_TOKENS;
  work.tile.first += skipped;
  work.tile.count = work.tile.count > skipped ? work.tile.count - skipped : 0;
  if (work.tile.count > BLOCK_TOKENS) work.tile.count = BLOCK_TOKENS;
#endif
  return work;
}

// The producer passes the work to the consumers with the first stage of its tile.
static __device__ __forceinline__ void store_work(const SharedLayout& smem, int stage, const Work& work) {
  const unsigned to = smem.work + (unsigned)stage * WORK_BYTES;
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(work.tile.expert), "r"(work.tile.first), "r"(work.tile.count), "r"(work.column) : "memory");
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(to + 16u), "r"(work.row) : "memory");
}
static __device__ __forceinline__ Work read_work(const SharedLayout& smem, int stage) {
  const unsigned from = smem.work + (unsigned)stage * WORK_BYTES;
  Work work;
  work.tile.index = 0;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(work.tile.expert), "=r"(work.tile.first), "=r"(work.tile.count), "=r"(work.column) : "r"(from) : "memory");
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(work.row) : "r"(from + 16u) : "memory");
  return work;
}

// ---- producer

#if CLUSTER > 1
#define MULTICAST ".multicast::cluster"
#define MULTICAST_MASK(operand) ", %" #operand
#else
#define MULTICAST
#define MULTICAST_MASK(operand)
#endif

// Loads the block's share of a k atom of the weight, with CLUSTER to both blocks. `to`: of the whole tile.
static __device__ __forceinline__ void load_weight(const WgmmaMoeArguments& a, unsigned to, int k_atom, const Work& work, unsigned barrier) {
  const int share = rank_of_block() * SHARE_ROWS;
  to += (unsigned)(share * ATOM_BYTES);
  const unsigned short mask = (1u << CLUSTER) - 1u;
#if INTERLEAVED
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" MULTICAST
               " [%0], [%1, {%2, %3, %4, %5, %6}], [%7]" MULTICAST_MASK(8) ";" ::"r"(to),
               "l"(&a.w), "r"(k_atom * ATOM_ELEMENTS), "r"(0), "r"(0), "r"((work.row + share) / 16), "r"(work.tile.expert), "r"(barrier), "h"(mask)
               : "memory");
#else
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" MULTICAST " [%0], [%1, {%2, %3, %4}], [%5]" MULTICAST_MASK(6) ";" ::"r"(to),
               "l"(&a.w), "r"(k_atom * ATOM_ELEMENTS), "r"(work.row + share), "r"(work.tile.expert), "r"(barrier), "h"(mask)
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

// Stage 2 starts while the kernel before it still computes the hidden layer: its weights are loaded into all stages, then it waits.
static __device__ __forceinline__ int load_early(const WgmmaMoeArguments& a, const SharedLayout& smem, int work_count) {
  int early = 0;
#pragma unroll 1
  for (int index = first_work(); index < work_count; index += work_stride()) {
    const Work work = work_at<true>(a, index);
#pragma unroll 1
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
      if (early == a.num_stages) return early;
      const unsigned full = smem.full_barriers + 8u * (unsigned)early;
      if (k_tile == 0) store_work(smem, early, work);
      barrier_arrive_expect_tx(full, LOADED_BYTES);
#pragma unroll
      for (int i = 0; i < K_ATOMS; ++i)
        load_weight(a, smem.pipeline + (unsigned)early * STAGE_BYTES + (unsigned)(i * A_ATOM_BYTES), k_tile * K_ATOMS + i, work, full);
      ++early;
    }
  }
  return early;
}

static __device__ __forceinline__ void produce(const WgmmaMoeArguments& a, const SharedLayout& smem, int work_count) {
  const int thread = (int)threadIdx.x - CONSUMER_THREADS;
  int stage = 0;
  unsigned phase = 1;
  int early = 0;  // stages that have their weight
#if STAGE == 2
  if (thread == 0) early = load_early(a, smem, work_count);
  grid_dependency_wait();
#endif
  Work next = {};
  if (first_work() < work_count) next = work_at<false>(a, first_work());
#pragma unroll 1
  for (int index = first_work(); index < work_count; index += work_stride()) {
    const Work work = next;
    if (index + work_stride() < work_count) next = work_at<false>(a, index + work_stride());
#if GATHER
    int tokens[ROWS_PER_THREAD];  // pointers would need twice the registers
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
      const int at = thread / 8 + i * 16;
      tokens[i] = at < work.tile.count ? a.pair_of[work.tile.first + at] / a.topk : 0;
    }
#endif
#if SCALES == 2
    const float* scales[SCALE_COPIES];
#pragma unroll
    for (int i = 0; i < SCALE_COPIES; ++i) {
      const int own = thread + i * 128;
      const int at = work.tile.first + own;
      scales[i] = a.x_scales + (long long)(own >= work.tile.count ? 0 : GATHER ? a.pair_of[at] / a.topk : at) * a.x_scale_step;
    }
#endif
#pragma unroll 1
    for (int k_tile = 0; k_tile < a.k_tiles; ++k_tile) {
      const unsigned base = smem.pipeline + (unsigned)stage * STAGE_BYTES;
      const unsigned full = smem.full_barriers + 8u * (unsigned)stage;
      barrier_wait(smem.empty_barriers + 8u * (unsigned)stage, phase);
      if (thread == 0) {
        const bool loaded = early > 0;
        early -= loaded;
        if (!loaded && k_tile == 0) store_work(smem, stage, work);
        if (!loaded) barrier_arrive_expect_tx(full, LOADED_BYTES);
#pragma unroll
        for (int i = 0; i < K_ATOMS; ++i) {
          if (!loaded) load_weight(a, base + (unsigned)(i * A_ATOM_BYTES), k_tile * K_ATOMS + i, work, full);
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
        const unsigned char* const from = a.x + k_atom * ATOM_BYTES + thread % 8 * 16;
        const unsigned to = base + (unsigned)(K_ATOMS * A_ATOM_BYTES + i * B_ATOM_BYTES);
#pragma unroll
        for (int r = 0; r < ROWS_PER_THREAD; ++r) {
          const int at = thread / 8 + r * 16;
          copy_unit(to + (unsigned)(at * ATOM_BYTES + ((thread % 8) ^ (at % 8)) * 16), from + tokens[r] * a.x_row_bytes, inside && at < work.tile.count);
        }
#endif
#if SCALES == 2
#pragma unroll
        for (int r = 0; r < SCALE_COPIES; ++r) {
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

// A stage is free when the consumers of all blocks that its weight is multicast to have read it.
static __device__ __forceinline__ void release_stage(const SharedLayout& smem, int stage) {
  const unsigned barrier = smem.empty_barriers + 8u * (unsigned)stage;
  const int lane = (int)threadIdx.x % 32;
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
      const int position = work.tile.first + at;
      const bool there = at < work.tile.count;
      const float token = there ? a.x_scales[(long long)(GATHER ? a.pair_of[position] / a.topk : position) * a.x_scale_step] : 0.0f;
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
        if (at < work.tile.count) factors[i] = a.weights[a.pair_of[work.tile.first + at]];
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
    const int position = work.tile.first + first_token + row;
    *(uint4*)((output*)a.to + (long long)position * a.columns + own) = value;
  }
}

static __device__ __forceinline__ void consume(const WgmmaMoeArguments& a, const SharedLayout& smem, int work_count) {
  const int group = (int)threadIdx.x / 128;
  const unsigned staging = smem.staging + (unsigned)(group * STAGING_BYTES);
  PipelineState state = {0, 0};
#pragma unroll 1
  for (int index = first_work(); index < work_count; index += work_stride()) {
    wait_full(smem, state);
    const Work work = read_work(smem, state.stage);
    __syncwarp();
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
  smem.full_barriers = smem.work + (unsigned)a.num_stages * WORK_BYTES;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, COPIES ? 1 + PRODUCER_THREADS : 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CLUSTER * CONSUMER_THREADS / 32);
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
  const int work_count = __ldcg(a.tile_count) * a.column_tiles;
  if (threadIdx.x >= CONSUMER_THREADS) {
    REALLOCATE_REGISTERS(dec, PRODUCER_REGISTERS);
    if (COPIES || threadIdx.x == CONSUMER_THREADS) produce(a, smem, work_count);
  } else {
    REALLOCATE_REGISTERS(inc, CONSUMER_REGISTERS);
    // The hidden layer's scales are of the kernel before this one.
    if (STAGE == 2) grid_dependency_wait();
    consume(a, smem, work_count);
  }
#if CLUSTER > 1
  // No block exits while another may still write to its shared memory.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#endif
}
