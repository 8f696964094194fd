// y[m, n] = sum over k of x[m, k] * w[n, k] on Hopper. D = A * B^T with A, B = x, w or, SWAP, w, x. One warp feeds a ring of stages
// through the copy engine; one or two warpgroups multiply. Either both have their half of the rows of each tile, or
// (TURNS) they take whole tiles in turn, so that one stores while the other multiplies.
//
// A cluster shares operands (`ca` blocks along A's rows have the same rows of B, `cb` along B's rows the same of A: each
// loads its part of what is shared and sends it to all), divides k into SPLIT parts and adds them up in a fixed order, or does both.
//
// Set from outside: A_ROWS, B_ROWS of a tile, WARPGROUPS (1, 2), TURNS, SWAP, SPLIT: parts of k, LONE: a block has one tile alone,
// SHARED: blocks share operands, PIECES of 128 bytes of k a stage, HINTS, BIAS, SCALED, PACKED: the weight lies in tiles, ELEMENT,
// OUTPUT, MULTIPLY(d, a, b, keep): one instruction, 64 x B_ROWS, 32 bytes of k, added to d where keep is not 0, and SETTLE(d): the
// compiler neither moves a use of d across this nor keeps a copy.
#define A_PIECE (A_ROWS * PIECE_BYTES)
#define B_PIECE (B_ROWS * PIECE_BYTES)
#define STAGE_BYTES (PIECES * (A_PIECE + B_PIECE))
#define CONSUMERS (128 * WARPGROUPS)
#define GROUP_ROWS (TURNS ? A_ROWS : A_ROWS / WARPGROUPS)  // of a warpgroup
#define BLOCKS64 (GROUP_ROWS / 64)
#define UNITS ((SWAP ? B_ROWS : A_ROWS) / 8)  // groups of 8 rows of y; what the parts of k are shared out by
#define ACROSS (SWAP ? A_ROWS : B_ROWS)       // columns of y

// Division by a number that the host knows: floor(n / divisor) for n below 2^31.
struct Divider {
  int divisor;
  unsigned multiplier;  // 0: divisor is 1
  unsigned shift;
};
static __device__ inline int divide(int n, const Divider& by) {
  return by.multiplier == 0 ? n : (int)(__umulhi((unsigned)n, by.multiplier) >> by.shift);
}

// Blocks of a cluster that share rows of B: 1 << CA_BITS; of A.
#define CA_BITS (SHARED ? a.ca_bits : 0)
#define CB_BITS (SHARED ? a.cb_bits : 0)

// What a block reads first lies together: a line of constant memory that is not there yet takes hundreds of cycles.
struct Arguments {
  int stages;
  int memory_bytes;    // of the ring and what comes behind it
  int steps;           // of all of k: PIECES pieces each; what lies past its end reads as zero
  int dependent;       // launched before the kernel before it has ended: the weight alone may be read at once
  int ca_bits;
  int cb_bits;
  int arrivals;        // that free a stage
  int called;          // steps of the weight that are called into the second-level cache before it may be read
  int tiles;           // of clusters
  int whole_bands;     // of tiles along A that are worked on together
  Divider band_tiles;  // tiles of a band
  Divider band;        // of them along A, in a whole band
  Divider last_band;   // in what comes behind
  int whole;           // the copy engine can write y: it lies at multiples of 16 bytes, and so do its rows
  int m, n;
  long long ldy;
  output* y;
  const output* bias;
  const float* x_scale;
  const float* w_scale;
  PackedWeight packed;  // PACKED: in the place of the weight's map
  TensorMap a;
  TensorMap b;
  TensorMap y_lines;  // boxes of LINE_COLUMNS columns
  TensorMap y_rest;   // boxes of the columns that are left of a tile's
};

// `blocks`: the blocks of the cluster that get it, each at the same place
// and told by its own barrier.
static __device__ inline void copy_box(unsigned to, const TensorMap* map, int column, int row, unsigned barrier, unsigned blocks,
                                       unsigned long long policy) {
  if (blocks == 0) {
    copy_box(to, map, column, row, barrier, policy);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster" CACHE_HINT
        " [%0], [%1, {%2, %3}], [%4], %5" POLICY(6) ";" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(barrier), "h"((unsigned short)blocks), "l"(policy)
        : "memory");
  }
}

struct Layout {
  unsigned ring;     // stages x STAGE_BYTES: for each piece of a stage the rows of A, then for each those of B
  unsigned scratch;  // what is on its way to y; SPLIT: what the parts of k send each other, in the place of the ring
  unsigned full;     // a barrier a stage
  unsigned empty;
  unsigned arrived;
};

struct Tile {
  int a, b;  // first rows
};

// Neighbours in order lie in a band of tiles along A, so that what is worked on at a time shares operands in the second-level
// cache.
static __device__ inline Tile tile_at(const Arguments& a, int index, int ra, int rb) {
  const int band = divide(index, a.band_tiles);
  const int within = index - band * a.band_tiles.divisor;
  const Divider height = band < a.whole_bands ? a.band : a.last_band;
  const int across = divide(within, height);
  Tile tile;
  tile.a = (((band * a.band.divisor + within - across * height.divisor) << CA_BITS) + ra) * A_ROWS;
  tile.b = ((across << CB_BITS) + rb) * B_ROWS;
  return tile;
}

// What this block does.
struct Part {
  int k;            // which of the parts of k
  int first;        // rank in the cluster of the first block with this part; they share
  int ra, rb;       // its place among them
  int unit, units;  // the cluster's tiles: unit, unit + units, …
  int begin, end;   // steps of k
};

static __device__ inline Part part_of(const Arguments& a) {
  const int rank = cluster_rank();
  Part part;
  part.unit = cluster_index();
  part.units = clusters_of_grid();
  part.k = rank >> (CA_BITS + CB_BITS);
  part.first = part.k << (CA_BITS + CB_BITS);
  part.ra = rank & ((1 << CA_BITS) - 1);
  part.rb = (rank - part.first) >> CA_BITS;
  part.begin = (int)((unsigned)a.steps * (unsigned)part.k / SPLIT);
  part.end = (int)((unsigned)a.steps * (unsigned)(part.k + 1) / SPLIT);
  return part;
}

// ---- the warp that loads

// Both operands as the loading thread sees them: its part of what the cluster shares.
struct Feed {
  int a_rows, b_rows;      // from which row of the tile this block loads
  unsigned a_blocks, b_blocks;  // that get them; 0: itself alone
  unsigned long long a_policy, b_policy;
};

static __device__ inline Feed feed_of(const Arguments& a, const Part& part) {
  unsigned long long first, last;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  Feed feed;
  feed.a_rows = part.rb * (A_ROWS >> CB_BITS);
  feed.b_rows = part.ra * (B_ROWS >> CA_BITS);
  feed.a_blocks = 0;
  feed.b_blocks = 0;
  if (CB_BITS > 0) {
#pragma unroll 1
    for (int i = 0; i < 1 << CB_BITS; ++i) feed.a_blocks |= 1u << (part.first + part.ra + (i << CA_BITS));
  }
  if (CA_BITS > 0) feed.b_blocks = ((1u << (1 << CA_BITS)) - 1u) << (part.first + (part.rb << CA_BITS));
  feed.a_policy = SWAP ? first : last;
  feed.b_policy = SWAP ? last : first;
  return feed;
}

#if PACKED
#define W_ROWS (SWAP ? A_ROWS : B_ROWS)
// Whether these rows fill tiles of the packed weight, or lie in one. Blocks that share have parts of them.
#define FILLED (!SHARED && (W_ROWS % 64 == 0 || 64 % W_ROWS == 0))
// Tiles of the packed weight that these rows lie in, at most: where they are no parts or multiples of 64, up to 56 rows of the first
// tile lie in front of them.
#define RUNS ((W_ROWS + (W_ROWS % 64 == 0 || 64 % W_ROWS == 0 ? 63 : 119)) / 64)

// The runs of a piece of a packed weight that are loaded for a tile. From one piece to the next they move on by 64 rows.
struct Runs {
  unsigned from[RUNS];   // for the first piece, in rows of 128 bytes
  unsigned bytes[RUNS];  // 0: no such run
};

// In place of rows past the last tile come rows of the last one: what they make is not stored.
static __device__ inline Runs runs_of(const Arguments& a, int row, int rows) {
  Runs runs;
  const int within = FILLED && W_ROWS % 64 == 0 ? 0 : row % 64;
#pragma unroll
  for (int r = 0; r < RUNS; ++r) {
    int tile = row / 64 + r;
    tile = tile < a.packed.tiles ? tile : a.packed.tiles - 1;
    const int most = r == 0 ? 64 - within : 64;
    const int here = FILLED ? (W_ROWS < 64 ? W_ROWS : 64) : rows < most ? rows : most;
    runs.from[r] = (unsigned)(tile * a.packed.pieces) * 64u + (unsigned)(r == 0 ? within : 0);
    runs.bytes[r] = (unsigned)here * PIECE_BYTES;
    rows -= here;
  }
  return runs;
}

static __device__ inline const unsigned char* run_at(const Arguments& a, const Runs& runs, int r, int piece) {
  return a.packed.data + (unsigned long long)(runs.from[r] + (unsigned)piece * 64u) * PIECE_BYTES;
}

// Pieces of a tile lie one behind the other, in a stage too where it holds 64 rows: then one copy gets all of a stage.
static __device__ inline void load_runs(const Arguments& a, const Runs& runs, unsigned to, int piece, int i, unsigned barrier, unsigned blocks,
                                        unsigned long long policy) {
  if (FILLED && W_ROWS == 64) {
    if (i == 0) copy_run(to, run_at(a, runs, 0, piece), PIECES * runs.bytes[0], barrier, blocks, policy);
    return;
  }
#pragma unroll
  for (int r = 0; r < RUNS; ++r) {
    if (FILLED || runs.bytes[r] > 0) copy_run(to, run_at(a, runs, r, piece), runs.bytes[r], barrier, blocks, policy);
    to += runs.bytes[r];
  }
}
#endif

// The tile that is loaded.
struct Target {
  Tile tile;
#if PACKED
  Runs runs;
#endif
};

static __device__ inline Target target_at(const Arguments& a, const Feed& feed, const Tile& tile) {
  Target target;
  target.tile = tile;
#if PACKED
  target.runs = runs_of(a, SWAP ? tile.a + feed.a_rows : tile.b + feed.b_rows, SWAP ? A_ROWS >> CB_BITS : B_ROWS >> CA_BITS);
#endif
  return target;
}

static __device__ inline void load_a(const Arguments& a, const Layout& at, const Feed& feed, const Target& target, int step, int stage, int i) {
  const unsigned to = at.ring + (unsigned)stage * STAGE_BYTES + (unsigned)(i * A_PIECE + feed.a_rows * PIECE_BYTES);
  const int piece = step * PIECES + i;
  const unsigned barrier = at.full + 8u * (unsigned)stage;
#if PACKED && SWAP
  load_runs(a, target.runs, to, piece, i, barrier, SHARED ? feed.a_blocks : 0, feed.a_policy);
#else
  copy_box(to, &a.a, piece * PIECE_ELEMENTS, target.tile.a + feed.a_rows, barrier, SHARED ? feed.a_blocks : 0, feed.a_policy);
#endif
}
static __device__ inline void load_b(const Arguments& a, const Layout& at, const Feed& feed, const Target& target, int step, int stage, int i) {
  const unsigned to = at.ring + (unsigned)stage * STAGE_BYTES + (unsigned)(PIECES * A_PIECE + i * B_PIECE + feed.b_rows * PIECE_BYTES);
  const int piece = step * PIECES + i;
  const unsigned barrier = at.full + 8u * (unsigned)stage;
#if PACKED && !SWAP
  load_runs(a, target.runs, to, piece, i, barrier, SHARED ? feed.b_blocks : 0, feed.b_policy);
#else
  copy_box(to, &a.b, piece * PIECE_ELEMENTS, target.tile.b + feed.b_rows, barrier, SHARED ? feed.b_blocks : 0, feed.b_policy);
#endif
}

// Calls this block's part of the weight, of steps from `step` on, into the second-level cache.
static __device__ inline void call_weight(const Arguments& a, const Feed& feed, const Target& target, int step, int end) {
  if (end > step + a.called) end = step + a.called;
#if PACKED
  if (FILLED && W_ROWS == 64) {
    if (step < end)
      call_run(run_at(a, target.runs, 0, step * PIECES), (unsigned)((end - step) * PIECES) * target.runs.bytes[0],
               SWAP ? feed.a_policy : feed.b_policy);
    return;
  }
#endif
#pragma unroll 1
  for (int piece = step * PIECES; piece < end * PIECES; ++piece) {
#if PACKED
#pragma unroll
    for (int r = 0; r < RUNS; ++r)
      if (FILLED || target.runs.bytes[r] > 0)
        call_run(run_at(a, target.runs, r, piece), target.runs.bytes[r], SWAP ? feed.a_policy : feed.b_policy);
#else
    call_box(SWAP ? &a.a : &a.b, piece * PIECE_ELEMENTS, SWAP ? target.tile.a + feed.a_rows : target.tile.b + feed.b_rows,
             SWAP ? feed.a_policy : feed.b_policy);
#endif
  }
}

// A dependent launch fills the whole ring with the weight while the kernel before still runs; x follows when it may.
static __device__ inline int load_early(const Arguments& a, const Layout& at, const Feed& feed, const Part& part, const Target& target) {
  const int steps = part.end - part.begin;
  const int early = steps < a.stages ? steps : a.stages;
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
    barrier_expect(at.full + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      if (SWAP) {
        load_a(a, at, feed, target, part.begin + stage, stage, i);
      } else {
        load_b(a, at, feed, target, part.begin + stage, stage, i);
      }
    }
  }
  call_weight(a, feed, target, part.begin + early, part.end);
  wait_for_predecessor();
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage) {
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      if (SWAP) {
        load_b(a, at, feed, target, part.begin + stage, stage, i);
      } else {
        load_a(a, at, feed, target, part.begin + stage, stage, i);
      }
    }
  }
  return early;
}

// `target`: the block's first.
static __device__ inline void produce(const Arguments& a, const Layout& at, const Part& part, const Feed& feed, Target target) {
  int early = 0;
  if (a.dependent) {
    early = load_early(a, at, feed, part, target);
  } else {
    call_weight(a, feed, target, part.begin, part.end);
    wait_for_predecessor();
  }
  int stage = early == a.stages ? 0 : early;
  unsigned parity = early == a.stages ? 0 : 1;
  int begin = part.begin + early;
  for (int index = part.unit; index < a.tiles;) {
#pragma unroll 1
    for (int step = begin; step < part.end; ++step) {
      barrier_wait(at.empty + 8u * (unsigned)stage, parity);
      barrier_expect(at.full + 8u * (unsigned)stage, STAGE_BYTES);
#pragma unroll
      for (int i = 0; i < PIECES; ++i) {
        load_a(a, at, feed, target, step, stage, i);
        load_b(a, at, feed, target, step, stage, i);
      }
      if (++stage == a.stages) {
        stage = 0;
        parity ^= 1u;
      }
    }
    begin = part.begin;
    index += part.units;
    if (index < a.tiles) target = target_at(a, feed, tile_at(a, index, part.ra, part.rb));
  }
}
