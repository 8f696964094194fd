// The warpgroups that multiply, and the kernel; what it does and what is set from outside: wgmma_load.cuh, which comes in front of
// this, as wgmma_store.cuh does.

#if TURNS
// A warpgroup begins with its tile when the other has met all stages of the tile before. Without that it would look at a stage
// that is a whole ring behind, where the parity of the phase is the same as of the one it waits for.
static __device__ inline void wait_for_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 3) : "memory"); }
static __device__ inline void pass_turn(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(group + 3) : "memory"); }
#endif

// ---- the warpgroups that multiply

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

// How many say of a stage that they have read it, to each block that writes into it: each warp, or where blocks share, one
// thread of each warpgroup for every block that it gets rows from. (Products are of a whole warpgroup: what has ended for one warp
// has for all.)
static __device__ inline unsigned arrivals(const Arguments& a) {
  return a.ca * a.cb == 1 ? WARPS_A_STAGE : (unsigned)(WARPS_A_STAGE / 4 * (a.ca + a.cb - 1));
}

// Where the block that this thread tells so keeps its barriers; 0: this thread tells nobody.
static __device__ inline unsigned told(const Arguments& a, const Layout& at, const Part& part) {
  const int lane = threadIdx.x % 32;
  if (a.ca * a.cb == 1) return lane == 0 ? at.empty : 0;
  const int number = (int)(threadIdx.x % 128) / 32 + lane * 4;  // the four warps take turns
  if (number >= a.ca + a.cb - 1) return 0;
  const int other = number - a.ca;
  const int ra = number < a.ca ? number : part.ra;
  const int rb = number < a.ca ? part.rb : other + (other >= part.rb);
  return remote_address(at.empty, part.first + ra + a.ca * rb);
}

// The stage was read: whoever writes into it may. `empty`: of told().
static __device__ __forceinline__ void release(const Arguments& a, unsigned empty, int stage) {
  if (empty == 0) return;
  if (a.ca * a.cb == 1) {
    barrier_arrive(empty + 8u * (unsigned)stage);
  } else {
    barrier_arrive_at(empty + 8u * (unsigned)stage);
  }
}

// `row`: of the tile, where this warpgroup's begin.
static __device__ __forceinline__ void multiply(Accumulators& d, const Arguments& a, const Layout& at, unsigned empty, int row, int steps,
                                                Place& place) {
  int previous = -1;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) SETTLE(d[r]);
#pragma unroll 1
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
        for (int r = 0; r < BLOCKS64; ++r) MULTIPLY(d[r], a_at + 2u * part + 512u * r, b_at + 2u * part, i + part == 0 ? step : 1);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The products of the stage before are done now: its place is free.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (previous >= 0) release(a, empty, previous);
    previous = place.stage;
    if (++place.stage == a.stages) {
      place.stage = 0;
      place.parity ^= 1u;
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) SETTLE(d[r]);
  if (previous >= 0) release(a, empty, previous);
}

// ---- the kernel

#if SPLIT
// Ends once all threads of the cluster are here.
static __device__ __forceinline__ void meet_others(const Arguments& a) {
  if (a.ca * a.cb == 1) cluster_wait();  // which began where barriers were made
  cluster_arrive();
  cluster_wait();
}
#endif

static __device__ __forceinline__ void consume(const Arguments& a, const Layout& at, const Part& part, const float* sums) {
  const int group = threadIdx.x / 128;
  const int row = TURNS ? 0 : group * GROUP_ROWS;
  // Nothing but the weight is read, and nothing written, before the kernel before has ended.
  if (a.dependent) wait_for_predecessor();
  const float scale = a.x_scale ? *a.x_scale * *a.w_scale : 1.0f;
  const int steps = part.end - part.begin;
  const unsigned empty = told(a, at, part);
#if !SPLIT
  Outbox box = outbox(at);
#endif
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
    Accumulators d;
    multiply(d, a, at, empty, row, steps, place);
#if TURNS
    if (index + part.units < tiles) pass_turn(1 - group);
#endif
#if SPLIT
    // One tile a cluster. Where all of its blocks are through with their rings, their sums take the place.
    meet_others(a);
    send(d, a, at, row, part);
    barrier_wait_for_cluster(at.arrived, 0);
    add_and_store(a, sums, tile, part.k, scale);
    return;
#else
    store_tile(d, a, box, tile, row, scale);
#endif
  }
#if !SPLIT
  WAIT_FOR_COPIES(0);  // or the memory would be another block's
#endif
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32, 1) wgmma(const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent) release_dependents();
  const Part part = part_of(a);
  const unsigned base = shared_address(memory);
  Layout at;
  at.ring = (base + 1023u) & ~1023u;
  at.scratch = SPLIT ? at.ring : at.ring + (unsigned)a.stages * STAGE_BYTES;
  at.full = at.ring + (unsigned)a.memory_bytes;
  at.empty = at.full + 8u * (unsigned)a.stages;
  at.arrived = at.empty + 8u * (unsigned)a.stages;
  const int sharing = a.ca * a.cb;
  if (threadIdx.x == CONSUMERS) {
    if (!(PACKED && SWAP)) prefetch_map(&a.a);
    if (!PACKED || SWAP) prefetch_map(&a.b);
    if (a.whole) prefetch_map(&a.y_lines);
#pragma unroll 1
    for (int i = 0; i < a.stages; ++i) {
      barrier_init(at.full + 8u * (unsigned)i, 1);
      barrier_init(at.empty + 8u * (unsigned)i, arrivals(a));
    }
    barrier_init(at.arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#if SPLIT
    const int own = first_unit(part.k + 1, a.split) - first_unit(part.k, a.split);
    barrier_expect(at.arrived, (unsigned)(a.split * own * 8 * ACROSS * 4));
#endif
  }
  __syncthreads();
  if (SPLIT || sharing > 1) cluster_arrive();
  if (sharing > 1) cluster_wait();

  if (threadIdx.x >= CONSUMERS) {
    if (elect_one()) produce(a, at, part);
    __syncwarp();
#if SPLIT
    meet_others(a);
#endif
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
