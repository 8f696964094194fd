// y[m, n] = sum over k of x[m, k] * w[n, k] for few rows of x, on Hopper. The weight is read once, by the copy engine, into a ring of
// stages in shared memory; the matrix unit takes the weight as its first operand (64 rows an instruction) and x, padded
// to COLUMNS rows, as its second. A cluster of blocks divides k; each block adds up, in a fixed order, what all of them
// have for its share of the rows. Comes behind skinny_load.cuh and skinny_store.cuh.
//
// Set from outside: ROWS of the weight a block (64, 128), COLUMNS (8, 16, 32, 64), PIECES of 128 bytes of k a stage,
// ELEMENT, OUTPUT, PACKED: the weight lies in tiles.
#if ELEMENT == 3
#define SHAPE_K "32.f32.e4m3.e4m3"
#define TRANSPOSE ""
#elif ELEMENT == 2
#define SHAPE_K "16.f32.bf16.bf16"
#define TRANSPOSE ", 0, 0"
#else
#define SHAPE_K "16.f32.f16.f16"
#define TRANSPOSE ", 0, 0"
#endif

// One instruction: 64 rows x COLUMNS, 32 bytes of k, added to d.
#if COLUMNS == 8
#define MULTIPLY(d, a, b) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k" SHAPE_K " {" \
               "%0, %1, %2, %3" \
               "}, %4, %5, 1, 1, 1" TRANSPOSE ";" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
               : "l"(a), "l"(b))
#elif COLUMNS == 16
#define MULTIPLY(d, a, b) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k" SHAPE_K " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7" \
               "}, %8, %9, 1, 1, 1" TRANSPOSE ";" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) \
               : "l"(a), "l"(b))
#elif COLUMNS == 32
#define MULTIPLY(d, a, b) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k" SHAPE_K " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
               "}, %16, %17, 1, 1, 1" TRANSPOSE ";" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
               : "l"(a), "l"(b))
#elif COLUMNS == 64
#define MULTIPLY(d, a, b) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k" SHAPE_K " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
               "}, %32, %33, 1, 1, 1" TRANSPOSE ";" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
                 "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
                 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) \
               : "l"(a), "l"(b))
#endif

static __device__ inline void consume(Accumulators& d, const Arguments& a, const Layout& at, int begin, int end) {
  int stage = 0;
  unsigned parity = 0;
  unsigned previous = 0;
  const bool leader = threadIdx.x % 32 == 0;
#pragma unroll 1
  for (int step = begin; step < end; ++step) {
    const unsigned w = at.ring + (unsigned)stage * STAGE_BYTES;
    barrier_wait(at.full + 8u * (unsigned)stage, parity);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      const unsigned long long x_at = matrix_descriptor(w + PIECES * W_PIECE + (unsigned)i * X_PIECE);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
#pragma unroll
        for (int r = 0; r < ROWS / 64; ++r)
          MULTIPLY(d[r], matrix_descriptor(w + (unsigned)W_PLACE(r, i)) + 2u * part, x_at + 2u * part);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The products of the stage before are done now: its place is free.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (step != begin && leader) barrier_arrive(at.empty + 8u * previous);
    previous = (unsigned)stage;
    if (++stage == a.stages) {
      stage = 0;
      parity ^= 1u;
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  // Nothing that reads the sums moves in front of the wait: the compiler would then let each product end before the next.
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) asm volatile("" : "+f"(d[r][i])::"memory");
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32) skinny(const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent) release_dependents();
  // No divisions: they would take as long as the first bytes of the weight.
  const int blocks = a.blocks;
  const int rank = cluster_rank();
  const int row = cluster_index() * ROWS;
  const int begin = rank * a.steps + (rank < a.more ? rank : a.more);
  const int end = begin + a.steps + (rank < a.more ? 1 : 0);
  Layout at;
  at.ring = (shared_address(memory) + 1023u) & ~1023u;
  at.exchange = at.ring + (unsigned)a.stages * STAGE_BYTES;
  at.full = at.exchange + (blocks == 1 ? (unsigned)(COLUMNS * TILE_PITCH) : 4u * (unsigned)(blocks * a.most * 8 * PITCH));
  at.empty = at.full + 8u * (unsigned)a.stages;
  at.arrived = at.empty + 8u * (unsigned)a.stages;
  // Loading here already, before the others know of the barriers, costs 0.2 µs instead of gaining some.
  if (threadIdx.x == CONSUMERS) {
    if (!PACKED) prefetch_map(&a.w);
    prefetch_map(&a.x);
#pragma unroll 1
    for (int i = 0; i < a.stages; ++i) {
      barrier_init(at.full + 8u * (unsigned)i, 1);
      barrier_init(at.empty + 8u * (unsigned)i, CONSUMERS / 32);
    }
    barrier_init(at.arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    show_copy_engine();
    if (blocks > 1)
      barrier_expect(at.arrived, (unsigned)(blocks * (first_group(a, rank + 1) - first_group(a, rank)) * 8 * COLUMNS * 4));
  }
  __syncthreads();
  if (blocks > 1) cluster_arrive();

  if (threadIdx.x >= CONSUMERS) {
    if (elect_one()) fill_ring(a, at, row, begin, end);
    __syncwarp();
    // As those that multiply do, and before anything waits for them: compute-sanitizer's racecheck holds each warp here until all have come.
    if (blocks > 1) cluster_wait();
    if (elect_one()) refill_ring(a, at, row, begin, end);
    return;
  }
  // Nothing is read, but, in a dependent launch, the weight, and nothing written before the kernel before has ended.
  wait_for_predecessor();
  float scale = a.x_scale ? *a.x_scale * *a.w_scale : 1.0f;
  settle(scale);
  Way way;
  OwnWay own_way;
  if (blocks == 1) {
    own_way = own_way_of(a, at, row);
  } else {
    way = way_of(a, at, row, rank);
    cluster_wait();  // the others' barriers exist
  }
  Accumulators d = {};
  consume(d, a, at, begin, end);
  if (blocks == 1) {
    store_own(d, a, own_way, scale);
  } else {
    exchange(d, way);
    barrier_wait_for_cluster(at.arrived, 0);
    add_up(a, way, scale);
  }
}
