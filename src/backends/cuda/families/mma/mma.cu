// y[m, n] = sum over k of x[m, k] * w[n, k] with mma.sync, sm_80 and up. See README.md.
//
// Set from outside: TILE_M, TILE_N, WARPS_M, WARPS_N, STAGES (at least 2), SPLIT (1: blocks divide k and write float32 sums),
// ELEMENT, OUTPUT. With REDUCE instead of all tiles: the kernel that adds up what the blocks wrote.
struct Arguments {
  const unsigned char* x;
  const unsigned char* w;
  const output* bias;
  const float* x_scale;
  const float* w_scale;
  output* y;
  float* partial;     // [splits][m][n]
  long long x_row;    // bytes from row to row
  long long k_bytes;  // of a row; a multiple of 16
  long long ldy;
  int m, n;
  int splits;
  int tiles_m, tiles_n;
};

static __device__ inline float scale_of(const Arguments& a) { return a.x_scale ? *a.x_scale * *a.w_scale : 1.0f; }
static __device__ inline output finished(const Arguments& a, float sum, float scale, int n) {
  return round_output(sum * scale + (a.bias ? read_output(a.bias[n]) : 0.0f));
}

#ifdef REDUCE

extern "C" __global__ void __launch_bounds__(256) mma_reduce(const Arguments a) {
  const long long count = (long long)a.m * a.n;
  const float scale = scale_of(a);
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += (long long)gridDim.x * 256) {
    float sum = 0.0f;
    for (int split = 0; split < a.splits; ++split) sum += a.partial[split * count + i];
    const int row = (int)(i / a.n);
    const int column = (int)(i % a.n);
    a.y[row * a.ldy + column] = finished(a, sum, scale, column);
  }
}

#else

#define PIECE_BYTES 128  // of k, in one row of a stage
#define THREADS (32 * WARPS_M * WARPS_N)
#define WARP_ROWS (TILE_M / WARPS_M)
#define WARP_COLUMNS (TILE_N / WARPS_N)
#define STAGE_BYTES ((TILE_M + TILE_N) * PIECE_BYTES)
#define BAND 8  // tiles along m that are worked on together

#if ELEMENT == 3
#define MMA "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
#elif ELEMENT == 2
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif

static __device__ inline void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 rows x 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.
static __device__ inline void load_matrices(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Where the 16 bytes `unit` of a row of a stage stand.
static __device__ inline unsigned place(int row, int unit) { return (unsigned)(row * PIECE_BYTES + ((unit ^ (row & 7)) << 4)); }

// ROWS rows from `first` on, one piece of k from byte `column` on; what is not there becomes zero.
template <int ROWS>
static __device__ inline void load_rows(unsigned to, const unsigned char* from, long long row_bytes, int first, int rows, long long column,
                                        long long k_bytes) {
#pragma unroll
  for (int base = 0; base < ROWS * 8; base += THREADS) {
    const int i = base + (int)threadIdx.x;
    if (ROWS * 8 % THREADS == 0 || i < ROWS * 8) {
      const int row = i / 8;
      const int unit = i % 8;
      const long long at = column + unit * 16;
      const bool there = first + row < rows && at < k_bytes;
      const unsigned char* source = there ? from + (first + row) * row_bytes + at : from;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + place(row, unit)), "l"(source), "r"(there ? 16 : 0)
                   : "memory");
    }
  }
}

struct Tile {
  int m, n;  // first row of x, of w
};

// Neighbours in order lie in a band of tiles along m, so that what is worked on at a time shares operands in the second-level cache.
static __device__ inline Tile tile_at(const Arguments& a, int index) {
  const int first = index / (BAND * a.tiles_n) * BAND;
  const int within = index % (BAND * a.tiles_n);
  const int height = a.tiles_m - first < BAND ? a.tiles_m - first : BAND;
  return {(first + within % height) * TILE_M, within / height * TILE_N};
}

static __device__ inline void load_stage(const Arguments& a, unsigned stage, const Tile& tile, int piece) {
  const long long column = (long long)piece * PIECE_BYTES;
  load_rows<TILE_M>(stage, a.x, a.x_row, tile.m, a.m, column, a.k_bytes);
  load_rows<TILE_N>(stage + TILE_M * PIECE_BYTES, a.w, a.k_bytes, tile.n, a.n, column, a.k_bytes);
}

static __device__ inline void multiply_stage(float (&sums)[WARP_ROWS / 16][WARP_COLUMNS / 8][4], unsigned stage, int warp_m, int warp_n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    unsigned x[WARP_ROWS / 16][4];
    unsigned w[WARP_COLUMNS / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i)
      load_matrices(x[i], stage + place(warp_m * WARP_ROWS + i * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < WARP_COLUMNS / 16; ++j)
      load_matrices(w[j], stage + TILE_M * PIECE_BYTES +
                              place(warp_n * WARP_COLUMNS + j * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i) {
#pragma unroll
      for (int j = 0; j < WARP_COLUMNS / 8; ++j) multiply(sums[i][j], x[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Two neighbouring columns of a row.
static __device__ inline void store(const Arguments& a, int row, int column, float first, float second, float scale) {
  if (row >= a.m || column >= a.n) return;
#if SPLIT
  float* to = a.partial + ((long long)blockIdx.y * a.m + row) * a.n + column;
  to[0] = first;
  if (column + 1 < a.n) to[1] = second;
#else
  struct alignas(2 * sizeof(output)) Pair {
    output first, second;
  };
  output* to = a.y + row * a.ldy + column;
  if (column + 1 < a.n && (unsigned long long)to % sizeof(Pair) == 0) {
    *(Pair*)to = Pair{finished(a, first, scale, column), finished(a, second, scale, column + 1)};
  } else {
    to[0] = finished(a, first, scale, column);
    if (column + 1 < a.n) to[1] = finished(a, second, scale, column + 1);
  }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) mma(const Arguments a) {
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned ring = (unsigned)__cvta_generic_to_shared(memory);
  const Tile tile = tile_at(a, (int)blockIdx.x);
  const int pieces = (int)((a.k_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
  const int begin = (int)((long long)pieces * blockIdx.y / a.splits);
  const int end = (int)((long long)pieces * (blockIdx.y + 1) / a.splits);
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % WARPS_M;
  const int warp_n = warp / WARPS_M;

#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) {
    if (begin + i < end) load_stage(a, ring + i * STAGE_BYTES, tile, begin + i);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  float sums[WARP_ROWS / 16][WARP_COLUMNS / 8][4] = {};
  int stage = 0;
  int filled = STAGES - 1;
  for (int piece = begin; piece < end; ++piece) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    // All have this stage, and all have done with the one before: its place is filled next.
    __syncthreads();
    if (piece + STAGES - 1 < end) load_stage(a, ring + filled * STAGE_BYTES, tile, piece + STAGES - 1);
    asm volatile("cp.async.commit_group;" ::: "memory");
    multiply_stage(sums, ring + stage * STAGE_BYTES, warp_m, warp_n);
    if (++stage == STAGES) stage = 0;
    if (++filled == STAGES) filled = 0;
  }

  const float scale = SPLIT ? 1.0f : scale_of(a);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < WARP_ROWS / 16; ++i) {
#pragma unroll
    for (int j = 0; j < WARP_COLUMNS / 8; ++j) {
      const int row = tile.m + warp_m * WARP_ROWS + i * 16 + lane / 4;
      const int column = tile.n + warp_n * WARP_COLUMNS + j * 8 + lane % 4 * 2;
      store(a, row, column, sums[i][j][0], sums[i][j][1], scale);
      store(a, row + 8, column, sums[i][j][2], sums[i][j][3], scale);
    }
  }
}

#endif
