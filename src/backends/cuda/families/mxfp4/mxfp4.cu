// y[m, n] = sum over k of x[m, k] * w[n, k] with bf16 x and an MXFP4 weight, on Hopper. Other activations were made bf16 (mxfp4_activations.cu). The weight stays 4 bits wide up to the registers: A and B are
// swapped, so that it is wgmma's first operand, which may come from registers. TMA loads stages of the weight and of x; a consumer warp group reads
// its 64 rows of the weight from shared memory, makes bf16 of them and multiplies by x in shared memory. While the tensor core works on 32 of k the
// threads decode the next 32. The blocks of a cluster divide k. Follows hopper.cuh.
//
// The host defines: WARPGROUPS (consumers: 1, 2, 3), TILES (of 64 rows of the weight, of a warp group: 1, 2), BLOCK_N (rows of x), K_ATOMS (BLOCK_K in
// units of 64 elements: 2, 4, 8), PACKED (1: the weight has the layout fragment64), WIDE (1: two warp groups of consumers take registers from the
// producer, which is a warp group then), MMA (1: the instructions of a warp, for few rows of x; 0: those of a warp group), SEND (1: blocks of a
// cluster send each other their partial sums), ROW_SCALES (1: rows of x have scales), ROWS_PER_Y (rows of x whose sums make a row of y: 2 where an fp16
// row became two of bf16), PERSISTENT (1: no split of k, and a block computes several tiles), TMA_STORE (1: these leave through TMA, from two
// buffers of a warp group), L2_HINTS, OUTPUT, and WGMMA(d, a, b): d += 64 x BLOCK_N products of 16 of k.
using gemmtune::cuda::Mxfp4Arguments;

#define BLOCK_M (64 * WARPGROUPS * TILES)
#define CONSUMER_THREADS (128 * WARPGROUPS)
#define PRODUCER_THREADS (WIDE ? 128 : 32)  // the first warp loads
#define FRAGMENT_BYTES 2048                  // of 64 rows x 64 of k
#define W_BYTES (BLOCK_M * K_ATOMS * 32)     // of a stage
#define X_ATOM_BYTES (BLOCK_N * ATOM_BYTES)  // of 64 of k
#define STAGE_BYTES (W_BYTES + K_ATOMS * X_ATOM_BYTES)
#define PITCH (BLOCK_M + 4)                  // floats between rows of partial sums

typedef float Accumulators[TILES][BLOCK_N / 2];

#define Y_ROWS (BLOCK_N / ROWS_PER_Y)  // of a tile
#define UNITS (Y_ROWS * (BLOCK_M / 4))  // of four rows of the weight and one row of y, in which partial sums are exchanged

// Addresses in shared memory. Partial sums, float [Y_ROWS][PITCH], take the pipeline's place.
struct SharedLayout {
  unsigned pipeline;
  unsigned exchange;  // with SEND, the partial sums that the blocks of the cluster send to this one: [split_k][its units]
  unsigned partials_barrier;  // completes when they have arrived
  unsigned full_barriers;
  unsigned empty_barriers;
};

// The block's tile of y and its share of k, in k tiles.
struct BlockWork {
  int n, m;  // m: of x
  int begin, end;
  int tile;
};

// The grid has fewer blocks than tiles (PERSISTENT): a block computes several.
static __device__ __forceinline__ bool next_tile(const Mxfp4Arguments& a, BlockWork& work) {
  if (!PERSISTENT) return false;
  work.tile += (int)gridDim.x;
  if (work.tile >= a.tiles) return false;
  work.n = work.tile % a.w_blocks * BLOCK_M;
  work.m = work.tile / a.w_blocks * BLOCK_N;
  return true;
}

// ---- producer

static __device__ __forceinline__ void load_weight(const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work, int k_tile, int stage, unsigned long long policy) {
  const unsigned to = smem.pipeline + (unsigned)stage * STAGE_BYTES;
  const unsigned barrier = smem.full_barriers + 8u * (unsigned)stage;
#if PACKED
  // What lies past the last atom of k keeps an earlier stage's bits: x is zero there, and every e2m1 is finite.
  const int left = a.k_atoms - k_tile * K_ATOMS;
  const unsigned bytes = (unsigned)(left < K_ATOMS ? left : K_ATOMS) * FRAGMENT_BYTES;
  barrier_arrive_expect_tx(barrier, BLOCK_M / 64 * bytes + K_ATOMS * X_ATOM_BYTES);
#pragma unroll
  for (int r = 0; r < BLOCK_M / 64; ++r) {
    int tile = work.n / 64 + r;
    if (BLOCK_M > 64 && tile >= a.w_tiles) tile = a.w_tiles - 1;  // its products are not stored
    bulk_load(to + (unsigned)(r * K_ATOMS * FRAGMENT_BYTES), a.fragments + ((long long)tile * a.k_atoms + k_tile * K_ATOMS) * FRAGMENT_BYTES, bytes,
              barrier, 0, policy);
  }
#else
  barrier_arrive_expect_tx(barrier, STAGE_BYTES);
  tma_load(to, &a.w, k_tile * 128, work.n, barrier, policy);
#endif
}

static __device__ __forceinline__ void load_x(const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work, int k_tile, int stage, unsigned long long policy) {
#pragma unroll
  for (int i = 0; i < K_ATOMS; ++i)
    tma_load(smem.pipeline + (unsigned)stage * STAGE_BYTES + W_BYTES + (unsigned)i * X_ATOM_BYTES, &a.x, (k_tile * K_ATOMS + i) * 64, work.m,
             smem.full_barriers + 8u * (unsigned)stage, policy);
}

// Prefetches the weight of the first stages into L2, before it may be read.
static __device__ __forceinline__ void prefetch_weight(const Mxfp4Arguments& a, const BlockWork& work, unsigned long long policy) {
  if (work.tile >= a.prefetch_blocks) return;
  const int end = work.end < work.begin + a.prefetch_k_tiles ? work.end : work.begin + a.prefetch_k_tiles;
#if PACKED
  const int atoms = (end * K_ATOMS < a.k_atoms ? end * K_ATOMS : a.k_atoms) - work.begin * K_ATOMS;
  if (atoms <= 0) return;
#pragma unroll
  for (int r = 0; r < BLOCK_M / 64; ++r) {
    const int tile = work.n / 64 + r;
    if (tile < a.w_tiles)
      bulk_prefetch(a.fragments + ((long long)tile * a.k_atoms + work.begin * K_ATOMS) * FRAGMENT_BYTES, (unsigned)atoms * FRAGMENT_BYTES, policy);
  }
#else
#pragma unroll 1
  for (int k_tile = work.begin; k_tile < end; ++k_tile) tma_prefetch(&a.w, k_tile * 128, work.n, policy);
#endif
}

static __device__ __forceinline__ void produce(const Mxfp4Arguments& a, const SharedLayout& smem, BlockWork work) {
  unsigned long long first, last;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  const unsigned long long w_policy = a.x_tiles == 1 ? first : last;
  const int filled = work.end - work.begin < a.num_stages ? work.end - work.begin : a.num_stages;
  if (!a.dependent_launch) {
    prefetch_weight(a, work, w_policy);
    grid_dependency_wait();
  }
#pragma unroll 1
  for (int stage = 0; stage < filled; ++stage) {
    load_weight(a, smem, work, work.begin + stage, stage, w_policy);
    if (!a.dependent_launch) load_x(a, smem, work, work.begin + stage, stage, last);
  }
  if (a.dependent_launch) {
    grid_dependency_wait();
#pragma unroll 1
    for (int stage = 0; stage < filled; ++stage) load_x(a, smem, work, work.begin + stage, stage, last);
  }
  int stage = filled == a.num_stages ? 0 : filled;
  unsigned phase = filled == a.num_stages ? 0u : 1u;  // of the empty barriers: stages that were not filled yet are empty
  int k_tile = work.begin + filled;
#pragma unroll 1
  for (;;) {
#pragma unroll 1
    for (; k_tile < work.end; ++k_tile) {
      barrier_wait(smem.empty_barriers + 8u * (unsigned)stage, phase);
      load_weight(a, smem, work, k_tile, stage, w_policy);
      load_x(a, smem, work, k_tile, stage, last);
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
    if (!next_tile(a, work)) return;
    k_tile = work.begin;
  }
}

// ---- scales

// Four lanes share their rows: lane l of them holds the scales of 128 of k, the l-th of a chunk of 512; words are exchanged by shuffles.
struct ScaleRows {
  const unsigned char* from[TILES][2];  // of rows warp * 16 + lane / 4 and that plus 8 of each tile; past the last row: of the last one
};
typedef unsigned ScaleWords[TILES][2];

static __device__ __forceinline__ ScaleRows scale_rows(const Mxfp4Arguments& a, int row) {
  ScaleRows rows;
#pragma unroll
  for (int i = 0; i < TILES * 2; ++i) {
    int at = row + i / 2 * 64 + i % 2 * 8;
    if (at >= a.n) at = a.n - 1;
    rows.from[i / 2][i % 2] = a.scales + (long long)at * a.scale_columns;
  }
  return rows;
}

static __device__ __forceinline__ unsigned load_word(const unsigned char* from) {
  unsigned word;
  asm volatile("ld.global.nc.L2::128B.b32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
static __device__ __forceinline__ unsigned load_half_word(const unsigned char* from) {
  unsigned half;
  asm volatile("{\n.reg .b16 half;\nld.global.nc.L2::128B.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}" : "=r"(half) : "l"(from));
  return half;
}
static __device__ __forceinline__ unsigned load_byte(const unsigned char* from) {
  unsigned byte;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(byte) : "l"(from));
  return byte;
}

// The lane's words of the chunk that begins at scale `column`.
static __device__ __forceinline__ void load_scales(ScaleWords& words, const ScaleRows& rows, const Mxfp4Arguments& a, int column) {
  column += (int)threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < TILES * 2; ++i) {
    const unsigned char* const from = rows.from[i / 2][i % 2] + column;
    unsigned word = 0;
    if (a.scale_alignment == 4) {
      if (column < a.scale_columns) word = load_word(from);
    } else if (a.scale_alignment == 2) {
      if (column < a.scale_columns) word = load_half_word(from);
      if (column + 2 < a.scale_columns) word |= load_half_word(from + 2) << 16;
    } else {
#pragma unroll
      for (int byte = 0; byte < 4; ++byte)
        if (column + byte < a.scale_columns) word |= load_byte(from + byte) << (8 * byte);
    }
    words[i / 2][i % 2] = word;
  }
}

// Prefetches the block's scales into L2: 512 of k ahead they would come late from memory. This is no read, so that the previous kernel may still run.
// Neighbouring threads have neighbouring sectors of a row, which then leave memory together.
static __device__ __forceinline__ void prefetch_scales(const Mxfp4Arguments& a, const BlockWork& work) {
  const int first = work.begin * K_ATOMS * 2;
  const int end = work.end * K_ATOMS * 2 < a.scale_columns ? work.end * K_ATOMS * 2 : a.scale_columns;
  const unsigned sectors = (unsigned)(end - first + 31) / 32 + 1;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < BLOCK_M * sectors; i += CONSUMER_THREADS) {
    const int row = work.n + (int)(i / sectors);
    const int column = first + (int)(i % sectors) * 32;
    if (row < a.n)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(a.scales + (long long)row * a.scale_columns + (column < end ? column : end - 1)) : "memory");
  }
}

// ---- decoding: e2m1 to bf16, exactly

static __device__ __forceinline__ unsigned multiply(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// The three bits of a magnitude, in place of the lowest two of the exponent and the highest of the mantissa, are the element times 2^-126. The factor
// 2^(e - 1) makes it the element times its scale 2^(e - 127). Above e = 128 the factor is 2^127, and what is missing is large_factor().
static __device__ __forceinline__ unsigned scale_factor(unsigned e) { return e * 0x00800080u + 0x3f003f00u; }
static __device__ __forceinline__ unsigned large_factor(unsigned e) { return e == 255u ? 0x7fc07fc0u : ((e > 128u ? e : 128u) - 1u) * 0x00800080u; }
static __device__ __forceinline__ unsigned byte_of(unsigned word, int i) { return __byte_perm(word, 0u, 0x4440u + (unsigned)i); }

#define MAGNITUDES 0x01c001c0u
#define SIGNS 0x80008000u

// The four registers of 16 of k (rows r, r + 8, r, r + 8; k from 0, 0, 8, 8 on), times 2^-126.
#if PACKED
static __device__ __forceinline__ void spread(unsigned (&to)[4], unsigned word) {
  to[0] = word & (SIGNS | MAGNITUDES);
  to[1] = (word << 3) & (SIGNS | MAGNITUDES);
  to[2] = ((word << 6) & MAGNITUDES) | ((word << 1) & SIGNS);
  to[3] = ((word >> 3) & MAGNITUDES) | ((word << 2) & SIGNS);
}
#else
// Byte i of `bytes`: an element in each half.
static __device__ __forceinline__ unsigned spread_byte(unsigned bytes, int i) {
  const unsigned high = __byte_perm(bytes << 4, bytes, (unsigned)(i * 0x0011 + (4 + i) * 0x1100));  // in the upper four bits of each half
  return (high & SIGNS) | ((high >> 6) & MAGNITUDES);
}
// The lane's byte of each word of 16 bytes: pairs of k from 0, 8, 16 and 24 on.
static __device__ __forceinline__ unsigned own_bytes(const uint4& row, unsigned select) {
  return __byte_perm(__byte_perm(row.x, row.y, select), __byte_perm(row.z, row.w, select), 0x5410u);
}
#endif

static __device__ __forceinline__ uint4 load_shared(unsigned from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "r"(from));
  return value;
}

// The factors of 32 of k for the thread's two rows of a tile; `more` where a scale of the warp is above 2.
struct Factors {
  unsigned by[2];
  unsigned more[2];
};
// Block `block` of four of 128 of k.
static __device__ __forceinline__ Factors factors_of(const unsigned (&words)[2], int block, bool large) {
  Factors factors;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unsigned e = byte_of(words[i], block);
    factors.more[i] = 0;
    if (large) {
      factors.more[i] = large_factor(e);
      e = e < 128u ? e : 128u;
    }
    factors.by[i] = scale_factor(e);
  }
  return factors;
}
static __device__ __forceinline__ void scale(unsigned (&fragment)[4], const Factors& factors, bool large) {
  if (large) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = multiply(fragment[i], factors.more[i % 2]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) fragment[i] = multiply(fragment[i], factors.by[i % 2]);
}

// ---- consumers

// matrix_descriptor() in two halves: the lower one, in units of 16 bytes, is added to.
static __device__ __forceinline__ unsigned descriptor_word(unsigned address) { return ((address & 0x3ffffu) >> 4) | 0x10000u; }
static __device__ __forceinline__ unsigned long long descriptor_of(unsigned word) {
  unsigned long long descriptor;
  asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(word), "r"(0x40000040u));
  return descriptor;
}

#define COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(pending) asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")

static __device__ __forceinline__ void fence_accumulators(Accumulators& d) {
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) asm volatile("" : "+f"(d[r][i])::"memory");
  }
}

// Where a thread's part of the weight lies in a stage.
struct OwnWeight {
  unsigned at;
#if !PACKED
  unsigned select;
#endif
};
static __device__ __forceinline__ OwnWeight own_weight() {
  const int lane = threadIdx.x % 32;
  const int group = threadIdx.x / 128;
  OwnWeight own;
#if PACKED
  own.at = (unsigned)(group * TILES * K_ATOMS * FRAGMENT_BYTES + (int)threadIdx.x % 128 * 16);
#else
  own.at = (unsigned)((group * TILES * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4) * 128);
  own.select = (unsigned)(lane % 4 * 0x11 + 0x40);
#endif
  return own;
}

// The thread's part of 128 of k: packed as it lies in a stage, 64 of k each; plain, its bytes of each 32 of k of rows r and r + 8.
#if PACKED
struct RawWeight {
  uint4 of[TILES][2];
};
#else
struct RawWeight {
  unsigned of[TILES][4][2];
};
#endif

// Loads half `half` of a stage at `w`.
static __device__ __forceinline__ void load_half(RawWeight& raw, const OwnWeight& own, unsigned w, int half) {
#if PACKED
#pragma unroll
  for (int i = 0; i < TILES * 2; ++i) raw.of[i / 2][i % 2] = load_shared(w + own.at + (unsigned)((i / 2 * K_ATOMS + half * 2 + i % 2) * FRAGMENT_BYTES));
#else
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i)  // TMA's swizzle: 16 bytes at c of row r are at c ^ (r % 8)
      raw.of[r][i / 2][i % 2] =
          own_bytes(load_shared(w + own.at + (unsigned)(r * 64 * 128 + i % 2 * 8 * 128 + (((half * 4 + i / 2) ^ (lane / 4)) * 16))), own.select);
  }
#endif
}

// The fragment of tile `r` at step `step` of two of block `block` of four, times its scales.
static __device__ __forceinline__ void decode(unsigned (&to)[4], const RawWeight& raw, int r, int block, int step, const Factors& factors, bool large) {
#if PACKED
  const uint4& words = raw.of[r][block / 2];
  spread(to, block % 2 == 0 ? (step == 0 ? words.x : words.y) : (step == 0 ? words.z : words.w));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = spread_byte(raw.of[r][block][i % 2], step * 2 + i / 2);
#endif
  scale(to, factors, large);
}

// The scales of 128 of k: the words of lane `unit` of four.
static __device__ __forceinline__ void exchange_scales(ScaleWords& words, const ScaleWords& chunk, int unit) {
#pragma unroll
  for (int i = 0; i < TILES * 2; ++i) words[i / 2][i % 2] = __shfl_sync(0xffffffffu, chunk[i / 2][i % 2], ((int)threadIdx.x & 28) + unit, 32);
}

// True if a scale of the chunk may be above 2: of the warp, or of the warp group, whose warps then take one branch together.
static __device__ __forceinline__ bool has_large_scales(const ScaleWords& chunk) {
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < TILES * 2; ++i) all |= chunk[i / 2][i % 2];
#if MMA
  return __any_sync(0xffffffffu, (all & 0x80808080u) != 0u);
#else
  unsigned some;
  asm volatile(
      "{\n"
      ".reg .pred own, any;\n"
      "setp.ne.u32 own, %1, 0;\n"
      "barrier.cta.red.or.aligned.pred any, %2, 128, own;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}" : "=r"(some)
      : "r"(all & 0x80808080u), "r"(2 + (int)threadIdx.x / 128)
      : "memory");
  return some != 0u;
#endif
}

#if MMA
static __device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}
static __device__ __forceinline__ void multiply_add(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Products of odd steps have sums of their own where a warp has one tile: an instruction then waits for the last but one before it.
#define SETS (TILES == 1 ? 2 : 1)
typedef float AccumulatorSets[SETS][TILES][BLOCK_N / 2];

// 128 of k. `x_own`: the lane's 16 bytes of eight rows of x, at the first and at the second 32 of k of an atom.
static __device__ __forceinline__ void multiply_half(AccumulatorSets& d, const OwnWeight& own, const unsigned (&x_own)[2], unsigned w, int half, const ScaleWords& words,
                                                     bool large) {
  RawWeight raw;
  load_half(raw, own, w, half);
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    unsigned x[BLOCK_N / 8][4];
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j)
      load_matrices(x[j], w + W_BYTES + (unsigned)((half * 2 + block / 2) * X_ATOM_BYTES + j * 8 * ATOM_BYTES) + x_own[block % 2]);
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const Factors factors = factors_of(words[r], block, large);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        unsigned fragment[4];
        decode(fragment, raw, r, block, step, factors, large);
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j) multiply_add(&d[step % SETS][r][4 * j], fragment, x[j][2 * step], x[j][2 * step + 1]);
      }
    }
  }
}
#endif

#if !MMA
// 16 of k, `k_block` of those of a stage, of tile `r`.
static __device__ __forceinline__ void start_product(Accumulators& d, const unsigned (&fragment)[4], unsigned x_at, int k_block, int r) {
  const unsigned long long b = descriptor_of(x_at + (unsigned)(k_block / 4 * (X_ATOM_BYTES / 16) + k_block % 4 * 2));
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  WGMMA(d[r], fragment, b);
  COMMIT();
}
#endif

static __device__ __forceinline__ void mainloop(Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem, const ScaleRows& rows, ScaleWords& next,
                                                const BlockWork& work, int& stage, unsigned& phase) {
  const int lane = threadIdx.x % 32;
  const OwnWeight own = own_weight();
  ScaleWords chunk;
#if MMA
  // A matrix is of eight rows of x and eight of k; in TMA's swizzle 16 bytes at c of row r are at c ^ (r % 8).
  const unsigned x_own[2] = {(unsigned)(lane % 8 * ATOM_BYTES + (lane / 8 ^ lane % 8) * 16), (unsigned)(lane % 8 * ATOM_BYTES + ((4 + lane / 8) ^ lane % 8) * 16)};
  AccumulatorSets sets = {};
#else
  unsigned fragments[4][4];  // of the instructions under way, and of the next one
  unsigned previous = 0;
#endif
  bool large = false;
  int column = work.begin * K_ATOMS * 2;  // of the scales
#pragma unroll 1
  for (int k_tile = work.begin; k_tile < work.end; ++k_tile) {
    const int unit = (k_tile - work.begin) * (K_ATOMS / 2) % 4;  // of 128 of k in the chunk
    if (unit == 0) {
#pragma unroll
      for (int i = 0; i < TILES * 2; ++i) chunk[i / 2][i % 2] = next[i / 2][i % 2];
      column += 16;
      if (k_tile + 8 / K_ATOMS < work.end) load_scales(next, rows, a, column);
      large = has_large_scales(chunk);
    }
    const unsigned w = smem.pipeline + (unsigned)stage * STAGE_BYTES;
    barrier_wait(smem.full_barriers + 8u * (unsigned)stage, phase);
#if MMA
    const int left = (a.k_atoms - k_tile * K_ATOMS + 1) / 2;
#pragma unroll(K_ATOMS == 8 ? 1 : K_ATOMS / 2)
    for (int half = 0; half < (left < K_ATOMS / 2 ? left : K_ATOMS / 2); ++half) {
      ScaleWords words;
      exchange_scales(words, chunk, unit + half);
      // One branch, so that nothing else divides the instructions.
      if (large) {
        multiply_half(sets, own, x_own, w, half, words, true);
      } else {
        multiply_half(sets, own, x_own, w, half, words, false);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)stage);
#else
    const unsigned x_at = descriptor_word(w + W_BYTES);
    const bool has_all = K_ATOMS == 2 || k_tile * K_ATOMS + 2 < a.k_atoms;
#pragma unroll
    for (int half = 0; half < K_ATOMS / 2; ++half) {
      if (half > 0 && !has_all) continue;
      ScaleWords words;
      exchange_scales(words, chunk, unit + half);
      RawWeight raw;
      load_half(raw, own, w, half);
      // Large scales are rare. A branch between instructions that are under way would make the compiler wait for each of them everywhere.
      if (large) {
        WAIT(0);
        if (half == 0 && k_tile != work.begin && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
#pragma unroll
        for (int i = 0; i < 8 * TILES; ++i) {
          const int r = i % TILES;
          decode(fragments[0], raw, r, i / TILES / 2, i / TILES % 2, factors_of(words[r], i / TILES / 2, true), true);
          start_product(d, fragments[0], x_at, half * 8 + i / TILES, r);
          WAIT(0);
        }
        continue;
      }
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        Factors factors[TILES];
#pragma unroll
        for (int r = 0; r < TILES; ++r) factors[r] = factors_of(words[r], block, false);
#pragma unroll
        for (int i = 0; i < 2 * TILES; ++i) {
          const int r = i % TILES;
          unsigned(&fragment)[4] = fragments[(block * 2 * TILES + i) % 4];
          decode(fragment, raw, r, block, i / TILES, factors[r], false);
          start_product(d, fragment, x_at, half * 8 + block * 2 + i / TILES, r);
          // The threads decode while two instructions are under way. The fragment of the third last one is free, and at the second one of a stage the
          // stage before.
          WAIT(2);
          if (half == 0 && block == 0 && i == 1 && k_tile != work.begin && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
        }
      }
    }
    previous = (unsigned)stage;
#endif
    if (++stage == a.num_stages) {
      stage = 0;
      phase ^= 1u;
    }
  }
#if MMA
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) d[r][i] = SETS == 1 ? sets[0][r][i] : sets[0][r][i] + sets[SETS - 1][r][i];
  }
#else
  WAIT(0);
  fence_accumulators(d);
  if (PERSISTENT && lane == 0) barrier_arrive(smem.empty_barriers + 8u * previous);
#endif
}

// ---- epilogue

static __device__ __forceinline__ void sync_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMER_THREADS) : "memory"); }
static __device__ __forceinline__ void sync_warpgroup(int group) { asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory"); }
static __device__ __forceinline__ void cluster_release() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

// Block `block` of the cluster reduces the units from here on.
static __device__ __forceinline__ int first_unit(const Mxfp4Arguments& a, int block) { return (block * UNITS + a.split_k - 1) / a.split_k; }

static __device__ __forceinline__ void store_partials(const Accumulators& d, const SharedLayout& smem) {
  const int lane = threadIdx.x % 32;
  const int row = (int)threadIdx.x / 128 * TILES * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
#if ROWS_PER_Y == 2
  const unsigned to = smem.pipeline + 4u * (unsigned)(lane % 4 * PITCH + row);
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; i += 2)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + 4u * (unsigned)(i / 4 * 4 * PITCH + r * 64 + i % 4 / 2 * 8)), "f"(d[r][i] + d[r][i + 1]) : "memory");
  }
#else
  const unsigned to = smem.pipeline + 4u * (unsigned)(lane % 4 * 2 * PITCH + row);
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + 4u * (unsigned)((i / 4 * 8 + i % 2) * PITCH + r * 64 + i % 4 / 2 * 8)), "f"(d[r][i]) : "memory");
  }
#endif
}

#if ROW_SCALES
// Volatile, because the compiler would load those of all rows first. Rows past the last one are not stored.
static __device__ __forceinline__ float x_scale_at(const Mxfp4Arguments& a, int m) {
  const unsigned row = (unsigned)(m < a.m ? m : 0);
  float scale;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scale) : "l"(a.x_scales + row * (unsigned)a.x_scale_step));
  return scale;
}
#endif

// Stores four elements of a row of y.
static __device__ __forceinline__ void store_unit(const Mxfp4Arguments& a, const BlockWork& work, int unit, float (&sums)[4]) {
  const int m = work.m / ROWS_PER_Y + unit / (BLOCK_M / 4);
  const int n = work.n + unit % (BLOCK_M / 4) * 4;
  if (m >= a.m || n >= a.n) return;
#if ROW_SCALES
  const float x_scale = x_scale_at(a, m);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] *= x_scale;
#endif
  if (a.bias) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (n + i < a.n) sums[i] += read_output(a.bias[n + i]);
  }
  output* const y = a.y + m * a.ldy + n;
  if (a.ldy % 4 == 0 && (unsigned long long)a.y % 8 == 0 && n + 4 <= a.n) {
    *(uint2*)y = make_uint2(round_pair(sums[0], sums[1]), round_pair(sums[2], sums[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (n + i < a.n) y[i] = round_output(sums[i]);
  }
}

static __device__ __forceinline__ unsigned unit_at(const SharedLayout& smem, int unit) {
  return smem.pipeline + 4u * (unsigned)(unit / (BLOCK_M / 4) * PITCH + unit % (BLOCK_M / 4) * 4);
}

#if PERSISTENT
// Stores the tile without sums of other blocks: each warp group transposes its rows of the weight, 32 or 16 rows of y at a time, in rows of 128 bytes that
// are swizzled like TMA's.
#define STAGED_ROWS (BLOCK_N % 32 == 0 ? 32 : 16)
#if TMA_STORE
// Waits until at most `pending` of this thread's groups of stores still read shared memory.
#define TMA_STORE_WAIT(pending) asm volatile("cp.async.bulk.wait_group.read " #pending ";" ::: "memory")
static __device__ __forceinline__ void tma_store(const TensorMap* map, unsigned from, int n, int m) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(n), "r"(m), "r"(from) : "memory");
}
#endif
static __device__ __forceinline__ void store_staged(const Accumulators& d, const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work) {
  const int thread = threadIdx.x % 128;
  const int lane = threadIdx.x % 32;
  const int warp = thread / 32;
  const int group = threadIdx.x / 128;
  const unsigned buffers = smem.exchange + (unsigned)(group * (TMA_STORE + 1) * 32 * 128);
  const bool aligned = a.ldy % 8 == 0 && (unsigned long long)a.y % 16 == 0;
#pragma unroll
  for (int r = 0; r < TILES; ++r) {
    const int first_n = work.n + (group * TILES + r) * 64;
    float bias[2] = {0.0f, 0.0f};
    if (a.bias) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = first_n + warp * 16 + lane / 4 + i * 8;
        if (n < a.n) bias[i] = read_output(a.bias[n]);
      }
    }
#pragma unroll
    for (int first_row = 0; first_row < BLOCK_N; first_row += STAGED_ROWS) {
      const int turn = r * (BLOCK_N / STAGED_ROWS) + first_row / STAGED_ROWS;
      const unsigned buffer = buffers + (unsigned)(TMA_STORE * (turn % 2) * 32 * 128);
#if TMA_STORE
      if (thread == 0) {
        if (turn == 0) {
          TMA_STORE_WAIT(0);
        } else {
          TMA_STORE_WAIT(1);
        }
      }
      sync_warpgroup(group);
#endif
#pragma unroll
      for (int j = 0; j < STAGED_ROWS / 8; j += 2) {
        unsigned matrices[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float first = d[r][(first_row / 8 + j) * 4 + i * 2];
          float second = d[r][(first_row / 8 + j) * 4 + i * 2 + 1];
#if ROW_SCALES
          const int m = work.m + first_row + (j + i / 2) * 8 + lane % 4 * 2;
          first *= x_scale_at(a, m);
          second *= x_scale_at(a, m + 1);
#endif
          matrices[i] = round_pair(first + bias[i % 2], second + bias[i % 2]);
        }
        const int row = (j + lane / 16) * 8 + lane % 8;
        const unsigned to = buffer + (unsigned)(row * 128 + ((warp * 2 + lane / 8 % 2) ^ (row % 8)) * 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]),
                     "r"(matrices[3])
                     : "memory");
      }
#if TMA_STORE
      fence_async_proxy();
      sync_warpgroup(group);
      if (a.use_tma_store) {
        if (thread == 0) {
          if (work.m + first_row < a.m && first_n < a.n) tma_store(&a.y_map, buffer, first_n, work.m + first_row);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        continue;
      }
#else
      sync_warpgroup(group);
#endif
#pragma unroll
      for (int i = 0; i < STAGED_ROWS / 16; ++i) {
        const int row = i * 16 + thread / 8;
        const int m = work.m + first_row + row;
        const int n = first_n + thread % 8 * 8;
        const uint4 bits = load_shared(buffer + (unsigned)(row * 128 + (thread % 8 ^ row % 8) * 16));
        if (m < a.m && n < a.n) {
          output* const y = a.y + m * a.ldy + n;
          if (aligned && n + 8 <= a.n) {
            *(uint4*)y = bits;
          } else {
            const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
            for (int e = 0; e < 8; ++e)
              if (n + e < a.n) y[e] = (output)(words[e / 2] >> (e % 2 * 16));
          }
        }
      }
      if (!TMA_STORE) sync_warpgroup(group);
    }
  }
}
#endif

static __device__ __forceinline__ void store_tile(const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work) {
#pragma unroll 1
  for (int unit = threadIdx.x; unit < UNITS; unit += CONSUMER_THREADS) {
    float sums[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3]) : "r"(unit_at(smem, unit)) : "memory");
    store_unit(a, work, unit, sums);
  }
}

// Adds partial sums in the order of the blocks, whatever the order in which they arrived. `load(block, partials)`: those of a block.
template <typename Load>
static __device__ __forceinline__ void add_partials(float (&sums)[4], int blocks, const Load& load) {
  float partials[8][4];  // all loads are in flight at once
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    partials[block][0] = partials[block][1] = partials[block][2] = partials[block][3] = 0.0f;
    if (block < blocks) load(block, partials[block]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += partials[block][i];
  }
}

#if SEND
// Sends each unit to the block that reduces it.
static __device__ __forceinline__ void send_partials(const Mxfp4Arguments& a, const SharedLayout& smem, int rank) {
  const int most = (UNITS + a.split_k - 1) / a.split_k;
#pragma unroll 1
  for (int unit = threadIdx.x; unit < UNITS; unit += CONSUMER_THREADS) {
    const int owner = unit * a.split_k / UNITS;
    const unsigned to = smem.exchange + 16u * (unsigned)(rank * most + unit - first_unit(a, owner));
    float v[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(unit_at(smem, unit)) : "memory");
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote_address(to, owner)), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(remote_address(smem.partials_barrier, owner))
                 : "memory");
  }
}
static __device__ __forceinline__ void reduce_and_store(const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work, int rank) {
  const int most = (UNITS + a.split_k - 1) / a.split_k;
  const int first = first_unit(a, rank);
  const int end = first_unit(a, rank + 1);
#pragma unroll 1
  for (int unit = first + (int)threadIdx.x; unit < end; unit += CONSUMER_THREADS) {
    const unsigned from = smem.exchange + 16u * (unsigned)(unit - first);
    float sums[4];
    add_partials(sums, a.split_k, [&](int block, float* to) {
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                   : "r"(from + 16u * (unsigned)(block * most))
                   : "memory");
    });
    store_unit(a, work, unit, sums);
  }
}
#else
// Reads the other blocks' partial sums where they are.
static __device__ __forceinline__ void reduce_and_store(const Mxfp4Arguments& a, const SharedLayout& smem, const BlockWork& work, int rank) {
#pragma unroll 1
  for (int unit = rank * CONSUMER_THREADS + (int)threadIdx.x; unit < UNITS; unit += a.split_k * CONSUMER_THREADS) {
    float sums[4];
    add_partials(sums, a.split_k, [&](int block, float* to) {
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                   : "r"(remote_address(unit_at(smem, unit), block))
                   : "memory");
    });
    store_unit(a, work, unit, sums);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(CONSUMER_THREADS + PRODUCER_THREADS, 1) mxfp4(const __grid_constant__ Mxfp4Arguments a) {
  extern __shared__ unsigned char memory[];
  if (a.dependent_launch) launch_dependents();
  const int rank = cluster_cta_rank();
  BlockWork work;
#if PERSISTENT
  work.tile = (int)blockIdx.x;
  work.n = work.tile % a.w_blocks * BLOCK_M;
  work.m = work.tile / a.w_blocks * BLOCK_N;
#else
  work.tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
  work.n = cluster_index() * BLOCK_M;
  work.m = (int)blockIdx.y * BLOCK_N;
#endif
  work.begin = rank * a.k_tiles + (rank < a.extra_k_tiles ? rank : a.extra_k_tiles);
  work.end = work.begin + a.k_tiles + (rank < a.extra_k_tiles ? 1 : 0);
  SharedLayout smem;
  smem.pipeline = (shared_address(memory) + 1023u) & ~1023u;
  smem.exchange = smem.pipeline + (unsigned)a.storage_bytes;
  smem.full_barriers = smem.exchange + (unsigned)a.exchange_bytes;
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.partials_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  if (threadIdx.x == CONSUMER_THREADS) {
    if (!PACKED) prefetch_tensor_map(&a.w);
    prefetch_tensor_map(&a.x);
#pragma unroll 1
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, CONSUMER_THREADS / 32);
    }
    if (SEND) barrier_init(smem.partials_barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async_proxy();
    if (SEND && a.split_k > 1)
      barrier_arrive_expect_tx(smem.partials_barrier, 16u * (unsigned)(a.split_k * (first_unit(a, rank + 1) - first_unit(a, rank))));
  }
  __syncthreads();
  if (SEND && a.split_k > 1) cluster_arrive();
  if (threadIdx.x >= CONSUMER_THREADS) {
#if WIDE
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
    if (threadIdx.x < CONSUMER_THREADS + 32) {
      if (elect_one()) produce(a, smem, work);
    }
    __syncwarp();
    if (a.split_k > 1) {
      if (!SEND) {
        cluster_release();
        cluster_wait();
        cluster_release();
      }
      cluster_wait();
    }
    return;
  }
#if WIDE
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
  prefetch_scales(a, work);
  // Before this, nothing is written, and only a dependent launch reads: the weight and its scales.
  if (!a.dependent_launch) grid_dependency_wait();
  const int own_row = (int)threadIdx.x / 128 * TILES * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
  ScaleRows rows = scale_rows(a, work.n + own_row);
  ScaleWords scales;
  load_scales(scales, rows, a, work.begin * K_ATOMS * 2);
  if (a.dependent_launch) grid_dependency_wait();
  int stage = 0;
  unsigned phase = 0;
#if PERSISTENT
#pragma unroll 1
  for (;;) {
    BlockWork following = work;
    if (next_tile(a, following)) prefetch_scales(a, following);
    Accumulators d = {};
    mainloop(d, a, smem, rows, scales, work, stage, phase);
    const BlockWork done = work;
    const bool more = next_tile(a, work);
    if (more) {
      rows = scale_rows(a, work.n + own_row);
      load_scales(scales, rows, a, 0);
    }
    store_staged(d, a, smem, done);
#if TMA_STORE
    if (!more && threadIdx.x % 128 == 0) TMA_STORE_WAIT(0);
#endif
    if (!more) return;
  }
#else
  Accumulators d = {};
  mainloop(d, a, smem, rows, scales, work, stage, phase);
  sync_consumers();  // all have read the pipeline
  store_partials(d, smem);
  if (a.split_k == 1) {
    sync_consumers();
    store_tile(a, smem, work);
    return;
  }
#if SEND
  sync_consumers();
  cluster_wait();  // the other blocks' barriers are initialized
  send_partials(a, smem, rank);
  barrier_wait_for_cluster(smem.partials_barrier, 0);
  reduce_and_store(a, smem, work, rank);
#else
  cluster_release();
  cluster_wait();
  reduce_and_store(a, smem, work, rank);
  // Shared memory must outlive its readers.
  cluster_release();
  cluster_wait();
#endif
#endif
}
