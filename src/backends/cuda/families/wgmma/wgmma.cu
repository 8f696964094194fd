// The warpgroups that multiply, and the kernel; what it does and what is set from outside: wgmma_load.cuh, which comes in front of
// this, as wgmma_store.cuh and wgmma_parts.cuh do.

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

// Where the block that this thread tells of stages that were read keeps its barriers; 0: this thread tells nobody. Each warp tells its
// own block, or where blocks share, one thread of each warpgroup every block that it gets rows from. (Products are of a whole
// warpgroup: what has ended for one warp has for all.)
static __device__ inline unsigned told(const Arguments& a, const Layout& at, const Part& part) {
  const int lane = threadIdx.x % 32;
  const int ca = 1 << CA_BITS;
  const int cb = 1 << CB_BITS;
  if (!SHARED) return lane == 0 ? at.empty : 0;
  const int number = (int)(threadIdx.x % 128) / 32 + lane * 4;  // the four warps take turns
  if (number >= ca + cb - 1) return 0;
  const int other = number - ca;
  const int ra = number < ca ? number : part.ra;
  const int rb = number < ca ? part.rb : other + (other >= part.rb);
  return remote_address(at.empty, part.first + ra + (rb << CA_BITS));
}

// The stage was read: whoever writes into it may. `empty`: of told().
static __device__ __forceinline__ void release(unsigned empty, int stage) {
  if (empty == 0) return;
  if (!SHARED) {
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
    if (previous >= 0) release(empty, previous);
    previous = place.stage;
    if (++place.stage == a.stages) {
      place.stage = 0;
      place.parity ^= 1u;
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) SETTLE(d[r]);
  if (previous >= 0) release(empty, previous);
}

// ---- the kernel

#if SPLIT > 1
// All consumers of this block are through with its ring, or have kept their sums.
static __device__ __forceinline__ void meet_consumers() { asm volatile("bar.sync 5, %0;" ::"r"(CONSUMERS) : "memory"); }

// The parts of k of a tile, one a cluster, are added up. Where all blocks are through with their rings, sums take the place.
static __device__ __forceinline__ void add_parts(const Accumulators& d, const Arguments& a, const Layout& at, const Part& part, const Tile& tile,
                                                 int row, float scale) {
  if (!SHARED) cluster_wait();  // which began at the start
  cluster_arrive();
  meet_consumers();
  keep_sums(d, at, row);
  meet_consumers();
  cluster_wait();
  send_sums(a, at, part);
  barrier_wait(at.arrived, 0);
  cluster_arrive();  // what others sent is here, so that they may end
  add_and_store(a, at, tile, part.k, scale);
}
#endif

static __device__ __forceinline__ void consume(const Arguments& a, const Layout& at, const Part& part) {
  const int group = threadIdx.x / 128;
  const int row = TURNS ? 0 : group * GROUP_ROWS;
  // Nothing is read, but, in a dependent launch, the weight, and nothing written before the kernel before has ended.
  wait_for_predecessor();
  const float scale = SCALED ? *a.x_scale * *a.w_scale : 1.0f;
  const int steps = part.end - part.begin;
  const unsigned empty = told(a, at, part);
  Place place = {0, 0};
#if SPLIT == 1
  Outbox box = outbox(at);
#endif
#if TURNS
  int turn = -1;
#endif
  for (int index = part.unit; index < a.tiles; index += part.units) {
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
    if (index + part.units < a.tiles) pass_turn(1 - group);
#endif
#if SPLIT > 1
    add_parts(d, a, at, part, tile, row, scale);
    return;  // one tile a cluster
#else
    store_tile(d, a, box, tile, row, scale);
#endif
  }
#if SPLIT == 1
  WAIT_FOR_COPIES(0);  // or the memory would be another block's
#endif
}

// The warps that multiply share the stages out: each barrier takes its thread a while.
static __device__ __forceinline__ void make_barriers(const Arguments& a, const Layout& at, const Part& part) {
  if (elect_one()) {
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int i = warp; i < a.stages; i += CONSUMERS / 32) {
      barrier_init(at.full + 8u * (unsigned)i, 1);
      barrier_init(at.empty + 8u * (unsigned)i, (unsigned)a.arrivals);
    }
#if SPLIT > 1
    if (warp == CONSUMERS / 32 - 1) {
      barrier_init(at.arrived, 1);
      barrier_expect(at.arrived, sent_bytes(part.k));
    }
#endif
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
}

// The barriers are made; where blocks share, those of the others too.
static __device__ __forceinline__ void begin_together() {
  if (SPLIT > 1 || SHARED) cluster_arrive();
  if (SHARED) {
    cluster_wait();
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32, 1) wgmma(const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent) release_dependents();
  Layout at;
  at.ring = (shared_address(memory) + 1023u) & ~1023u;
  at.scratch = SPLIT > 1 ? at.ring : at.ring + (unsigned)a.stages * STAGE_BYTES;
  at.full = at.ring + (unsigned)a.memory_bytes;
  at.empty = at.full + 8u * (unsigned)a.stages;
  at.arrived = at.empty + 8u * (unsigned)a.stages;
  const Part part = part_of(a);
  const bool loads = threadIdx.x >= CONSUMERS;
  Feed feed;
  Target first;
  if (loads) {
    if (elect_one()) {
      if (!(PACKED && SWAP)) prefetch_map(&a.a);
      if (!PACKED || SWAP) prefetch_map(&a.b);
    }
    // What comes before the first load is worked out while the others make barriers.
    feed = feed_of(a, part);
    first = target_at(a, feed, tile_at(a, part.unit, part.ra, part.rb));
    asm volatile("" ::"r"(first.tile.a), "r"(first.tile.b), "r"(part.begin), "r"(part.end));
    __syncwarp();
  } else {
    make_barriers(a, at, part);
  }
  begin_together();
  if (loads) {
    if (elect_one()) {
      produce(a, at, part, feed, first);
      if (a.whole) prefetch_map(&a.y_lines);
    }
    __syncwarp();
    if (SPLIT > 1) {
      if (!SHARED) cluster_wait();
      cluster_arrive();
      cluster_wait();
    }
    if (SPLIT > 1 || SHARED) cluster_arrive();
  } else {
    consume(a, at, part);
    if (SPLIT == 1 && SHARED) {
      __syncwarp();
      cluster_arrive();
    }
  }
  // No block ends while another may still write into its shared memory, or read it.
  if (SPLIT > 1 || SHARED) cluster_wait();
}
