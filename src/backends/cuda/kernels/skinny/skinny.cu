// y[m, n] = sum over k of x[m, k] * w[n, k] for few rows of x, on Hopper. The weight is read once, by the copy engine, into a ring of
// stages in shared memory; the matrix unit takes the weight as its first operand (64 rows an instruction) and x, padded
// to COLUMNS rows, as its second. A cluster of blocks divides k; each block adds up, in a fixed order, what all of them
// have for its share of the rows.
//
// Set from outside: ROWS of the weight a block (64, 128), COLUMNS (8, 16, 32, 64), PIECES of 128 bytes of k a stage,
// ELEMENT, OUTPUT, PACKED: the weight lies in tiles.
#define GROUPS (ROWS / 8)
#define PITCH (COLUMNS + 2)  // floats; even, so that pairs are aligned, and no multiple of the banks
#define W_PIECE (ROWS * PIECE_BYTES)
#define X_PIECE (COLUMNS * PIECE_BYTES)
#define STAGE_BYTES (PIECES * (W_PIECE + X_PIECE))
#define CONSUMERS 128

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

struct Arguments {
  TensorMap w;
  TensorMap x;
  const output* bias;
  const float* x_scale;
  const float* w_scale;
  output* y;
  long long ldy;
  int m, n;
  int steps;   // of all of k: PIECES pieces each; what lies past its end reads as zero
  int stages;
  int blocks;  // of a cluster
  int dependent;  // launched before the kernel before it has ended: the weight alone may be read at once
  PackedWeight packed;  // PACKED: in the place of w
};

static __device__ inline int first_group(int block, int blocks) { return (block * GROUPS + blocks - 1) / blocks; }

struct Layout {
  unsigned ring;      // stages x STAGE_BYTES: for each piece of a stage the weight, then for each x
  unsigned exchange;  // float [blocks][own groups][8 rows][PITCH]
  unsigned full;      // a barrier a stage
  unsigned empty;
  unsigned arrived;
};

// The weight is read once: it goes first; x is read by every block: it stays.
struct Policies {
  unsigned long long w, x;
};
static __device__ inline Policies make_policies() {
  Policies policies;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policies.w));
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policies.x));
  return policies;
}

// What a stage takes of the weight and of x.
static __device__ inline void load_weight(const Arguments& a, const Layout& at, const Policies& policies, int row, int step, int stage, int i) {
  const unsigned to = at.ring + (unsigned)stage * STAGE_BYTES + (unsigned)i * W_PIECE;
  const unsigned barrier = at.full + 8u * (unsigned)stage;
#if PACKED
  copy_packed(to, a.packed, ROWS, step * PIECES + i, row, barrier, 0, policies.w);
#else
  copy_box(to, &a.w, (step * PIECES + i) * PIECE_ELEMENTS, row, barrier, policies.w);
#endif
}
static __device__ inline void load_x(const Arguments& a, const Layout& at, const Policies& policies, int step, int stage, int i) {
  copy_box(at.ring + (unsigned)stage * STAGE_BYTES + PIECES * W_PIECE + (unsigned)i * X_PIECE, &a.x,
           (step * PIECES + i) * PIECE_ELEMENTS, 0, at.full + 8u * (unsigned)stage, policies.x);
}

// A dependent launch fills the whole ring with the weight while the kernel before still runs; x follows when it may.
static __device__ inline int load_early(const Arguments& a, const Layout& at, const Policies& policies, int row, int begin, int end) {
  const int early = end - begin < a.stages ? end - begin : a.stages;
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
    barrier_expect(at.full + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) load_weight(a, at, policies, row, begin + stage, stage, i);
  }
  wait_for_predecessor();
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) load_x(a, at, policies, begin + stage, stage, i);
  }
  return early;
}

// One thread fills the ring: x right behind each piece of the weight, so that the first product need not wait for
// the whole first burst of weights.
static __device__ inline void produce(const Arguments& a, const Layout& at, int row, int begin, int end) {
  const Policies policies = make_policies();
  const int early = a.dependent ? load_early(a, at, policies, row, begin, end) : 0;
  int stage = early == a.stages ? 0 : early;
  unsigned parity = early == a.stages ? 0 : 1;
#pragma unroll 1
  for (int step = begin + early; step < end; ++step) {
    barrier_wait(at.empty + 8u * (unsigned)stage, parity);
    barrier_expect(at.full + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      load_weight(a, at, policies, row, step, stage, i);
      load_x(a, at, policies, step, stage, i);
    }
    if (++stage == a.stages) {
      stage = 0;
      parity ^= 1u;
    }
  }
}

static __device__ inline void consume(float (&d)[ROWS / 64][COLUMNS / 2], const Arguments& a, const Layout& at, int begin, int end) {
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
      const unsigned long long w_at = matrix_descriptor(w + (unsigned)i * W_PIECE);
      const unsigned long long x_at = matrix_descriptor(w + PIECES * W_PIECE + (unsigned)i * X_PIECE);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
#pragma unroll
        for (int r = 0; r < ROWS / 64; ++r) MULTIPLY(d[r], w_at + 2u * part + 512u * r, x_at + 2u * part);
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
}

// Each row of the product goes to the block that adds up this row, two neighbouring columns at a time.
static __device__ inline void exchange(const float (&d)[ROWS / 64][COLUMNS / 2], const Layout& at, int rank, int blocks) {
  const int lane = threadIdx.x % 32;
  const int most = (GROUPS + blocks - 1) / blocks;
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int group = r * 8 + (int)(threadIdx.x / 32) * 2 + half;
      const int owner = group * blocks / GROUPS;
      const int slot = group - first_group(owner, blocks);
      const unsigned row = at.exchange + 4u * (unsigned)((((rank * most + slot) * 8) + lane / 4) * PITCH + 2 * (lane % 4));
      if (blocks == 1) {
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j)
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(row + 32u * j), "f"(d[r][4 * j + 2 * half]),
                       "f"(d[r][4 * j + 2 * half + 1])
                       : "memory");
      } else {
        const unsigned to = remote_address(row, owner);
        const unsigned arrived = remote_address(at.arrived, owner);
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j)
          asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to + 32u * j),
                       "f"(d[r][4 * j + 2 * half]), "f"(d[r][4 * j + 2 * half + 1]), "r"(arrived)
                       : "memory");
      }
    }
  }
}

static __device__ inline void store(const Arguments& a, int m, long long n, float first, float second, float scale) {
  if (n >= a.n) return;
  output* to = a.y + m * a.ldy + n;
  first = first * scale + (a.bias ? read_output(a.bias[n]) : 0.0f);
  to[0] = round_output(first);
  if (n + 1 >= a.n) return;
  second = second * scale + (a.bias ? read_output(a.bias[n + 1]) : 0.0f);
  to[1] = round_output(second);
}

// As store, two elements at once; n is even and the pair lies in y.
static __device__ inline void store_pair(const Arguments& a, int m, long long n, float first, float second, float scale) {
  struct alignas(2 * sizeof(output)) Pair {
    output first, second;
  };
  if (a.bias) {
    first = first * scale + read_output(a.bias[n]);
    second = second * scale + read_output(a.bias[n + 1]);
  } else {
    first *= scale;
    second *= scale;
  }
  *(Pair*)(a.y + m * a.ldy + n) = Pair{round_output(first), round_output(second)};
}

// What of y a thread adds up: pairs of columns, of one row of x after the other. Divisions take long; this is worked out while the
// weight is on its way.
struct Share {
  int first;            // row of the block's, where this block's share begins
  int pairs;            // of a row of y
  int m, pair;          // this thread's first
  int step_m, step_pair;  // to its next
};
static __device__ inline Share share_of(int rank, int blocks) {
  Share share;
  share.first = first_group(rank, blocks) * 8;
  share.pairs = first_group(rank + 1, blocks) * 4 - share.first / 2;
  share.m = (int)threadIdx.x / share.pairs;
  share.pair = (int)threadIdx.x % share.pairs;
  share.step_m = CONSUMERS / share.pairs;
  share.step_pair = CONSUMERS % share.pairs;
  return share;
}

static __device__ inline void finish(const Arguments& a, const float* sums, const Share& share, long long row, int blocks, float scale) {
  const int most = (GROUPS + blocks - 1) / blocks;
  const bool aligned = (a.ldy % 2 == 0) && (((unsigned long long)a.y) % (2 * sizeof(output)) == 0);
  int pair = share.pair;
#pragma unroll 1
  for (int m = share.m; m < a.m; m += share.step_m) {
    const int local = pair * 2;
    float parts[8][2];  // all are under way at once
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      const float* at = sums + ((block * most * 8) + local) * PITCH + m;
      parts[block][0] = block < blocks ? at[0] : 0.0f;
      parts[block][1] = block < blocks ? at[PITCH] : 0.0f;
    }
    float left = 0.0f;
    float right = 0.0f;
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      left += parts[block][0];
      right += parts[block][1];
    }
    const long long n = row + share.first + local;
    if (aligned && n + 1 < a.n) {
      store_pair(a, m, n, left, right, scale);
    } else {
      store(a, m, n, left, right, scale);
    }
    pair += share.step_pair;
    if (pair >= share.pairs) {
      pair -= share.pairs;
      ++m;
    }
  }
}

// One block has all of k, and y so few rows that what a thread has goes straight to it.
#define DIRECT (COLUMNS <= 16)
static __device__ inline void store_one(const Arguments& a, int m, long long n, float value, float bias, float scale) {
  if (m < a.m && n < a.n) a.y[m * a.ldy + n] = round_output(value * scale + bias);
}
static __device__ inline void store_directly(const float (&d)[ROWS / 64][COLUMNS / 2], const Arguments& a, long long row, float scale) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long n = row + r * 64 + (int)(threadIdx.x / 32) * 16 + half * 8 + lane / 4;
      const float bias = a.bias && n < a.n ? read_output(a.bias[n]) : 0.0f;
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) {
        store_one(a, j * 8 + lane % 4 * 2, n, d[r][4 * j + 2 * half], bias, scale);
        store_one(a, j * 8 + lane % 4 * 2 + 1, n, d[r][4 * j + 2 * half + 1], bias, scale);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32) skinny(const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent) release_dependents();
  const int blocks = a.blocks;
  const int rank = (int)(blockIdx.x % (unsigned)blocks);
  const int most = (GROUPS + blocks - 1) / blocks;
  const unsigned base = shared_address(memory);
  Layout at;
  at.ring = (base + 1023u) & ~1023u;
  at.exchange = at.ring + (unsigned)a.stages * STAGE_BYTES;
  at.full = at.exchange + 4u * (unsigned)(blocks * most * 8 * PITCH);
  at.empty = at.full + 8u * (unsigned)a.stages;
  at.arrived = at.empty + 8u * (unsigned)a.stages;
  const long long row = (long long)(blockIdx.x / (unsigned)blocks) * ROWS;
  const int begin = (int)((long long)a.steps * rank / blocks);
  const int end = (int)((long long)a.steps * (rank + 1) / blocks);
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
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const int own = first_group(rank + 1, blocks) - first_group(rank, blocks);
    if (blocks > 1) barrier_expect(at.arrived, (unsigned)(blocks * own * 8 * COLUMNS * 4));
  }
  __syncthreads();
  if (blocks > 1) cluster_arrive();

  if (threadIdx.x >= CONSUMERS) {
    if (elect_one()) produce(a, at, (int)row, begin, end);
    __syncwarp();
    if (blocks > 1) cluster_wait();
    return;
  }
  // Nothing but the weight is read, and nothing written, before the kernel before has ended.
  if (a.dependent) wait_for_predecessor();
  const float scale = a.x_scale ? *a.x_scale * *a.w_scale : 1.0f;
  const Share share = share_of(rank, blocks);
  float d[ROWS / 64][COLUMNS / 2] = {};
  consume(d, a, at, begin, end);
  if (DIRECT && blocks == 1) {
    store_directly(d, a, row, scale);
    return;
  }
  // The others' barriers exist from here on.
  if (blocks > 1) cluster_wait();
  exchange(d, at, rank, blocks);
  if (blocks == 1) {
    asm volatile("bar.sync 1, 128;" ::: "memory");
  } else {
    barrier_wait_for_cluster(at.arrived, 0);
  }
  finish(a, (const float*)(memory + (at.exchange - base)), share, row, blocks, scale);
}
