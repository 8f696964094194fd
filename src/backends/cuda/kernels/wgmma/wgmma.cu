// The warpgroups that multiply, their results, and the kernel; what it does and what is set from outside: wgmma_load.cuh, which comes
// in front of this.
static __device__ inline void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

#if TURNS
// A warpgroup begins with its tile when the other has met all stages of the tile before. Without that it would look at a stage
// that is a whole ring behind, where the parity of the phase is the same as of the one it waits for.
static __device__ inline void wait_for_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 3) : "memory"); }
static __device__ inline void pass_turn(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(group + 3) : "memory"); }
#endif

// ---- the warpgroups that multiply

typedef float Accumulators[BLOCKS64][B_ROWS / 2];

// Where a warpgroup stands in the ring.
struct Place {
  int stage;
  unsigned parity;
};

static __device__ inline void skip(Place& place, int steps, int stages) {
  const int there = place.stage + steps;
  place.stage = there % stages;
  place.parity ^= (unsigned)(there / stages) & 1u;
}

// This warp has read the stage: whoever writes into it may.
static __device__ __forceinline__ void release(const Arguments& a, const Layout& at, int stage) {
  const int sharing = a.ca * a.cb;
  const int lane = threadIdx.x % 32;
  if (sharing == 1) {
    if (lane == 0) barrier_arrive(at.empty + 8u * (unsigned)stage);
  } else if (lane < sharing) {
    barrier_arrive_at(at.empty + 8u * (unsigned)stage, lane);
  }
}

// `row`: of the tile, where this warpgroup's begin.
static __device__ __forceinline__ void multiply(Accumulators& d, const Arguments& a, const Layout& at, int row, int steps, Place& place) {
  int previous = -1;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) SETTLE(d[r]);
  for (int step = 0; step < steps; ++step) {
    const unsigned base = at.ring + (unsigned)place.stage * STAGE_BYTES;
    barrier_wait(at.full + 8u * (unsigned)place.stage, place.parity);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      const unsigned long long a_at = matrix_descriptor(base + (unsigned)(i * A_PIECE + row * PIECE_BYTES));
      const unsigned long long b_at = matrix_descriptor(base + (unsigned)(PIECES * A_PIECE + i * B_PIECE));
#pragma unroll
      for (int part = 0; part < 4; ++part) {
#pragma unroll
        for (int r = 0; r < BLOCKS64; ++r) MULTIPLY(d[r], a_at + 2u * part + 512u * r, b_at + 2u * part);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The products of the stage before are done now: its place is free.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (previous >= 0) release(a, at, previous);
    previous = place.stage;
    if (++place.stage == a.stages) {
      place.stage = 0;
      place.parity ^= 1u;
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) SETTLE(d[r]);
  if (previous >= 0) release(a, at, previous);
}

// ---- results

#if BIAS
static __device__ inline float bias_at(const Arguments& a, long long n) { return n < a.n ? read_output(a.bias[n]) : 0.0f; }
#else
static __device__ inline float bias_at(const Arguments&, long long) { return 0.0f; }
#endif

// Two neighbours of a row, the first at `to`, in shared memory.
static __device__ __forceinline__ void keep_pair(unsigned to, float first, float second) {
#if OUTPUT == 0
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
#else
  unsigned both;
#if OUTPUT == 1
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#endif
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(both) : "memory");
#endif
}
static __device__ __forceinline__ void keep_one(unsigned to, float value) {
#if OUTPUT == 0
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
#else
  const output rounded = round_output(value);
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(rounded) : "memory");
#endif
}

#define CHUNK_BYTES 16
#define CHUNK_ELEMENTS (CHUNK_BYTES / (int)sizeof(output))

// 16 bytes of a row of y out of shared memory.
static __device__ __forceinline__ void store_whole_chunk(unsigned from, output* to) {
  uint4 chunk;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w) : "r"(from) : "memory");
  *(uint4*)to = chunk;
}
// The same, element by element where y's rows are not aligned or end inside.
static __device__ __forceinline__ void store_chunk(const Arguments& a, unsigned from, long long m, long long n, bool aligned) {
  if (m >= a.m || n >= a.n) return;
  output* to = a.y + m * a.ldy + n;
  if (aligned && n + CHUNK_ELEMENTS <= a.n) {
    store_whole_chunk(from, to);
    return;
  }
  const int count = a.n - n < CHUNK_ELEMENTS ? (int)(a.n - n) : CHUNK_ELEMENTS;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
#if OUTPUT == 0
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(to[i]) : "r"(from + 4u * i) : "memory");
#else
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(to[i]) : "r"(from + 2u * i) : "memory");
#endif
  }
}

#if SPLIT
// Results leave through add_and_store.
#elif SWAP
// Rows of D are columns of y: a warpgroup turns 64 of them over, so many rows of y at a time.
#define KEPT_ROWS (B_ROWS < 32 ? B_ROWS : 32)
#define KEPT_PITCH (64 * (int)sizeof(output) + 16)
#define KEPT_CHUNKS (64 / CHUNK_ELEMENTS)

static __device__ __forceinline__ void store_tile(const Accumulators& d, const Arguments& a, const Layout& at, const Tile& tile, int row, float scale,
                                         bool aligned) {
  const int thread = threadIdx.x % 128;
  const int group = threadIdx.x / 128;
  const int lane = thread % 32;
  const unsigned kept = at.scratch + (unsigned)(group * KEPT_ROWS * KEPT_PITCH);
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
    const int local = thread / 32 * 16 + lane / 4;
    const long long n = tile.a + row + r * 64;
    const float low = bias_at(a, n + local);
    const float high = bias_at(a, n + local + 8);
#pragma unroll
    for (int first = 0; first < B_ROWS; first += KEPT_ROWS) {
#pragma unroll
      for (int j = 0; j < KEPT_ROWS / 8; ++j) {
        const float* values = &d[r][(first / 8 + j) * 4];
        const unsigned to = kept + (unsigned)((j * 8 + lane % 4 * 2) * KEPT_PITCH + local * (int)sizeof(output));
        keep_one(to, values[0] * scale + low);
        keep_one(to + KEPT_PITCH, values[1] * scale + low);
        keep_one(to + 8 * (unsigned)sizeof(output), values[2] * scale + high);
        keep_one(to + KEPT_PITCH + 8 * (unsigned)sizeof(output), values[3] * scale + high);
      }
      group_sync(group);
#pragma unroll 1
      for (int item = 0; item < KEPT_ROWS * KEPT_CHUNKS; item += 128) {
        const int one = item + thread;
        const int m = one / KEPT_CHUNKS;
        const int chunk = one % KEPT_CHUNKS;
        if (m < KEPT_ROWS)
          store_chunk(a, kept + (unsigned)(m * KEPT_PITCH + chunk * CHUNK_BYTES), tile.b + first + m, n + chunk * CHUNK_ELEMENTS, aligned);
      }
      group_sync(group);
    }
  }
}
#else
// A warp has 16 rows of y to itself: no other warp waits for it.
#define KEPT_COLUMNS (B_ROWS % 64 == 0 ? 64 : B_ROWS % 32 == 0 ? 32 : B_ROWS % 16 == 0 ? 16 : 8)
#define KEPT_PITCH (KEPT_COLUMNS * (int)sizeof(output) + (OUTPUT == 0 ? 32 : 16))
#define KEPT_CHUNKS (KEPT_COLUMNS / CHUNK_ELEMENTS)

static __device__ __forceinline__ void store_tile(const Accumulators& d, const Arguments& a, const Layout& at, const Tile& tile, int row, float scale,
                                         bool aligned) {
  const int lane = threadIdx.x % 32;
  const unsigned kept = at.scratch + (unsigned)((int)(threadIdx.x / 32) * 16 * KEPT_PITCH);
  const bool inside = aligned && tile.a + row + GROUP_ROWS <= a.m && tile.b + B_ROWS <= a.n;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
    const long long m = tile.a + row + r * 64 + (int)(threadIdx.x % 128) / 32 * 16;
#pragma unroll
    for (int first = 0; first < B_ROWS; first += KEPT_COLUMNS) {
      const long long n = tile.b + first;
#pragma unroll
      for (int j = 0; j < KEPT_COLUMNS / 8; ++j) {
        const float* values = &d[r][(first / 8 + j) * 4];
        const int column = j * 8 + lane % 4 * 2;
        const float left = bias_at(a, n + column);
        const float right = bias_at(a, n + column + 1);
        const unsigned to = kept + (unsigned)(lane / 4 * KEPT_PITCH + column * (int)sizeof(output));
        keep_pair(to, values[0] * scale + left, values[1] * scale + right);
        keep_pair(to + 8 * KEPT_PITCH, values[2] * scale + left, values[3] * scale + right);
      }
      __syncwarp();
      if (inside) {
        output* to = a.y + (m + lane / KEPT_CHUNKS) * a.ldy + n + lane % KEPT_CHUNKS * CHUNK_ELEMENTS;
        const unsigned from = kept + (unsigned)(lane / KEPT_CHUNKS * KEPT_PITCH + lane % KEPT_CHUNKS * CHUNK_BYTES);
#pragma unroll
        for (int local = 0; local < 16; local += 32 / KEPT_CHUNKS)
          store_whole_chunk(from + (unsigned)(local * KEPT_PITCH), to + local * a.ldy);
      } else {
#pragma unroll 1
        for (int item = lane; item < 16 * KEPT_CHUNKS; item += 32) {
          const int local = item / KEPT_CHUNKS;
          const int chunk = item % KEPT_CHUNKS;
          store_chunk(a, kept + (unsigned)(local * KEPT_PITCH + chunk * CHUNK_BYTES), m + local, n + chunk * CHUNK_ELEMENTS, aligned);
        }
      }
      __syncwarp();
    }
  }
}
#endif

// ---- parts of k

#if SPLIT
static __device__ inline int first_unit(int block, int blocks) { return (block * UNITS + blocks - 1) / blocks; }

// Floats from row to row of what a block gets from another.
static __device__ inline int exchange_pitch(int most) { return SWAP ? most * 8 + 2 : B_ROWS + 8; }

// Each eight rows of y go to the block that adds them up, two neighbours at a time.
static __device__ __forceinline__ void send(const Accumulators& d, const Layout& at, int row, int rank, int blocks) {
  const int lane = threadIdx.x % 32;
  const int most = (UNITS + blocks - 1) / blocks;
  const int pitch = exchange_pitch(most);
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + r * 64 + (int)(threadIdx.x % 128) / 32 * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int j = 0; j < B_ROWS / 8; ++j) {
        const int unit = SWAP ? j : i / 8;
        const int owner = unit * blocks / UNITS;
        const int slot = unit - first_unit(owner, blocks);
        const int there = SWAP ? (rank * A_ROWS + i) * pitch + slot * 8 : (rank * most * 8 + slot * 8 + i % 8) * pitch + j * 8;
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                         remote_address(at.scratch + 4u * (unsigned)(there + lane % 4 * 2), owner)),
                     "f"(d[r][4 * j + 2 * half]), "f"(d[r][4 * j + 2 * half + 1]), "r"(remote_address(at.arrived, owner))
                     : "memory");
      }
    }
  }
}

static __device__ inline void add_and_store(const Arguments& a, const float* sums, const Tile& tile, int rank, float scale) {
  const int blocks = a.split;
  const int most = (UNITS + blocks - 1) / blocks;
  const int pitch = exchange_pitch(most);
  const int first = first_unit(rank, blocks);
  const int rows = (first_unit(rank + 1, blocks) - first) * 8;
  const bool aligned = (a.ldy % 2 == 0) && (((unsigned long long)a.y) % (2 * sizeof(output)) == 0);
  for (int item = threadIdx.x; item < rows * (ACROSS / 2); item += CONSUMERS) {
    const int local = item / (ACROSS / 2);
    const int column = item % (ACROSS / 2) * 2;
    const long long m = (SWAP ? tile.b : tile.a) + first * 8 + local;
    const long long n = (SWAP ? tile.a : tile.b) + column;
    if (m >= a.m || n >= a.n) continue;
    float left = 0.0f;
    float right = 0.0f;
    for (int block = 0; block < blocks; ++block) {
      const float* at = SWAP ? sums + (block * A_ROWS + column) * pitch + local : sums + (block * most * 8 + local) * pitch + column;
      left += at[0];
      right += at[SWAP ? pitch : 1];
    }
    left = left * scale + bias_at(a, n);
    right = right * scale + bias_at(a, n + 1);
    output* to = a.y + m * a.ldy + n;
    struct alignas(2 * sizeof(output)) Pair {
      output first, second;
    };
    if (aligned && n + 1 < a.n) {
      *(Pair*)to = Pair{round_output(left), round_output(right)};
    } else {
      to[0] = round_output(left);
      if (n + 1 < a.n) to[1] = round_output(right);
    }
  }
}

#endif

// ---- the kernel

static __device__ __forceinline__ void consume(const Arguments& a, const Layout& at, const Part& part, const float* sums) {
  const int group = threadIdx.x / 128;
  const int row = TURNS ? 0 : group * GROUP_ROWS;
  // Nothing but the weight is read, and nothing written, before the kernel before has ended.
  if (a.dependent) wait_for_predecessor();
  const float scale = a.x_scale ? *a.x_scale * *a.w_scale : 1.0f;
  const bool aligned = (a.ldy % CHUNK_ELEMENTS == 0) && (((unsigned long long)a.y) % CHUNK_BYTES == 0);
  const int steps = part.end - part.begin;
  Place place = {0, 0};
  const int tiles = a.tiles_a * a.tiles_b;
#if TURNS
  int turn = -1;
#endif
  for (int index = part.unit; index < tiles; index += part.units) {
#if TURNS
    if (++turn % 2 != group) {
      skip(place, steps, a.stages);
      continue;
    }
    if (turn > 0) wait_for_turn(group);
#endif
    const Tile tile = tile_at(a, index, part.ra, part.rb);
    Accumulators d = {};
    multiply(d, a, at, row, steps, place);
#if TURNS
    if (index + part.units < tiles) pass_turn(1 - group);
#endif
#if SPLIT
    // One tile a cluster. The others' barriers exist from here on.
    cluster_wait();
    send(d, at, row, part.rank, a.split);
    barrier_wait_for_cluster(at.arrived, 0);
    add_and_store(a, sums, tile, part.rank, scale);
    return;
#else
    store_tile(d, a, at, tile, row, scale, aligned);
#endif
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32, 1) wgmma(const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent) release_dependents();
  const Part part = part_of(a);
  const unsigned base = shared_address(memory);
  Layout at;
  at.ring = (base + 1023u) & ~1023u;
  at.full = at.ring + (unsigned)a.stages * STAGE_BYTES;
  at.empty = at.full + 8u * (unsigned)a.stages;
  at.arrived = at.empty + 8u * (unsigned)a.stages;
  at.scratch = (at.arrived + 8u + 15u) & ~15u;
  const int sharing = a.ca * a.cb;
  if (threadIdx.x == CONSUMERS) {
    if (!(PACKED && SWAP)) prefetch_map(&a.a);
    if (!PACKED || SWAP) prefetch_map(&a.b);
    for (int i = 0; i < a.stages; ++i) {
      barrier_init(at.full + 8u * (unsigned)i, 1);
      barrier_init(at.empty + 8u * (unsigned)i, (unsigned)(WARPS_A_STAGE * sharing));
    }
    barrier_init(at.arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#if SPLIT
    const int own = first_unit(part.rank + 1, a.split) - first_unit(part.rank, a.split);
    barrier_expect(at.arrived, (unsigned)(a.split * own * 8 * ACROSS * 4));
#endif
  }
  __syncthreads();
  if (SPLIT || sharing > 1) cluster_arrive();
  if (sharing > 1) cluster_wait();

  if (threadIdx.x >= CONSUMERS) {
    if (threadIdx.x == CONSUMERS) produce(a, at, part);
    __syncwarp();
    if (SPLIT) cluster_wait();
  } else {
    consume(a, at, part, (const float*)(memory + (at.scratch - base)));
  }
  // No block ends while another may still write into its shared memory.
  if (sharing > 1) {
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  }
}
