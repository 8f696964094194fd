// What skinny is told of a problem, where things lie in shared memory, and the thread that fills the ring.
#define GROUPS (ROWS / 8)
#define W_PIECE (ROWS * PIECE_BYTES)
#define X_PIECE (COLUMNS * PIECE_BYTES)
#define STAGE_BYTES (PIECES * (W_PIECE + X_PIECE))
#define CONSUMERS 128

struct Arguments {
  TensorMap w;
  TensorMap x;
  const output* bias;
  const float* x_scale;
  const float* w_scale;
  output* y;
  long long ldy;
  int m, n;
  int stages;
  int blocks;       // of a cluster
  int steps, more;  // of k a block: PIECES pieces each, what lies past the end of k reads as zero; `more` blocks have one more
  int most;         // groups of 8 rows that a block adds up
  int dependent;    // launched before the kernel before it has ended: the weight alone may be read at once
  int ahead;        // steps that are called into the second-level cache while the kernel before runs,
  int ahead_blocks; // by the first blocks of the grid, which start at once
  unsigned long long groups;  // 5 bits a block: the first group that it adds up
  PackedWeight packed;        // PACKED: in the place of w
};

static __device__ inline int first_group(const Arguments& a, int block) { return (int)(a.groups >> (5 * block)) & 31; }

struct Layout {
  unsigned ring;      // stages x STAGE_BYTES: for each piece of a stage the weight, then for each x
  unsigned exchange;  // float [blocks][groups][8 rows][PITCH], or, where one block has all of k, a tile of y
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

#if PACKED
// Pieces of 64 rows lie one behind the other, in a stage as in memory: one copy for all of them. In place of rows past the last tile
// come rows of the last one: what they make is not stored.
#define W_PLACE(r, i) (((r)*PIECES + (i)) * (64 * PIECE_BYTES))
static __device__ inline const unsigned char* packed_pieces(const Arguments& a, int row, int step, int r) {
  int tile = row / 64 + r;
  if (ROWS > 64 && tile >= a.packed.tiles) tile = a.packed.tiles - 1;
  return a.packed.data + ((long long)tile * a.packed.pieces + step * PIECES) * (64 * PIECE_BYTES);
}
#else
#define W_PLACE(r, i) ((i)*W_PIECE + (r) * (64 * PIECE_BYTES))
#endif

// What a stage takes of the weight and of x.
static __device__ inline void load_weight(const Arguments& a, const Layout& at, const Policies& policies, int row, int step, int stage, int i) {
  const unsigned to = at.ring + (unsigned)stage * STAGE_BYTES;
  const unsigned barrier = at.full + 8u * (unsigned)stage;
#if PACKED
  if (i > 0) return;
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r)
    copy_run(to + W_PLACE(r, 0), packed_pieces(a, row, step, r), PIECES * 64 * PIECE_BYTES, barrier, 0, policies.w);
#else
  copy_box(to + W_PLACE(0, i), &a.w, (step * PIECES + i) * PIECE_ELEMENTS, row, barrier, policies.w);
#endif
}
static __device__ inline void load_x(const Arguments& a, const Layout& at, const Policies& policies, int step, int stage, int i) {
  copy_box(at.ring + (unsigned)stage * STAGE_BYTES + PIECES * W_PIECE + (unsigned)i * X_PIECE, &a.x,
           (step * PIECES + i) * PIECE_ELEMENTS, 0, at.full + 8u * (unsigned)stage, policies.x);
}

static __device__ inline void load_stage(const Arguments& a, const Layout& at, const Policies& policies, int row, int step, int stage) {
  barrier_expect(at.full + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    load_weight(a, at, policies, row, step, stage, i);
    load_x(a, at, policies, step, stage, i);
  }
}

// Calls a step's weight into the second-level cache.
static __device__ inline void call_weight(const Arguments& a, const Policies& policies, int row, int step) {
#if PACKED
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r)
    call_run(packed_pieces(a, row, step, r), PIECES * 64 * PIECE_BYTES, policies.w);
#else
#pragma unroll
  for (int i = 0; i < PIECES; ++i)
    call_box(&a.w, (step * PIECES + i) * PIECE_ELEMENTS, row, policies.w);
#endif
}
static __device__ inline void call_ahead(const Arguments& a, const Policies& policies, int row, int begin, int end) {
  if ((int)blockIdx.x >= a.ahead_blocks) return;
  if (end > begin + a.ahead) end = begin + a.ahead;
#pragma unroll 1
  for (int step = begin; step < end; ++step) call_weight(a, policies, row, step);
}

// The first round through the ring, whose places are all free: x right behind each piece of the weight, so that the first product
// need not wait for the whole first burst of weights. A dependent launch loads the weight of the whole round while the kernel
// before still runs; x follows when it may.
static __device__ inline void fill_ring(const Arguments& a, const Layout& at, int row, int begin, int end) {
  const Policies policies = make_policies();
  const int first = end - begin < a.stages ? end - begin : a.stages;
  if (!a.dependent) {
    call_ahead(a, policies, row, begin, end);
    wait_for_predecessor();
#pragma unroll 1
    for (int stage = 0; stage < first; ++stage) load_stage(a, at, policies, row, begin + stage, stage);
    return;
  }
#pragma unroll 1
  for (int stage = 0; stage < first; ++stage) {
    barrier_expect(at.full + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) load_weight(a, at, policies, row, begin + stage, stage, i);
  }
  call_ahead(a, policies, row, begin + first, end);
  wait_for_predecessor();
#pragma unroll 1
  for (int stage = 0; stage < first; ++stage) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) load_x(a, at, policies, begin + stage, stage, i);
  }
}

// The rounds behind the first: a place is filled when it was read.
static __device__ inline void refill_ring(const Arguments& a, const Layout& at, int row, int begin, int end) {
  const Policies policies = make_policies();
  int stage = 0;
  unsigned parity = 0;
#pragma unroll 1
  for (int step = begin + a.stages; step < end; ++step) {
    barrier_wait(at.empty + 8u * (unsigned)stage, parity);
    load_stage(a, at, policies, row, step, stage);
    if (++stage == a.stages) {
      stage = 0;
      parity ^= 1u;
    }
  }
}
