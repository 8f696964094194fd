// Scales of rows (SCALES 2) and of blocks (SCALES 3) of what a warp group accumulates: MMA_TILES x 64 rows of A by BLOCK_N rows of B, with A, B =
// x, w or, with SWAP_AB, w, x. Follows the family's definitions of these. Rows past the last one have the scale of the last one: their products are
// not stored.
typedef float Accumulators[MMA_TILES][BLOCK_N / 2];  // of int8 operands the bits of int32 sums, until scale_rows() converts them

using gemmtune::gpu::ScalesArguments;

// The operands' scales and their numbers of rows, and where a warp group's rows of A and B begin, in which batch.
struct ScaledRows {
  const ScalesArguments& scales;
  int m, n;
  int a, b;
  int batch;
};

template <typename Index>
static __device__ __forceinline__ float load_scale(const float* from, Index at) {
  float scale;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(scale) : "l"(from + at) : "memory");
  return scale;
}
#if E8M0
template <typename Index>
static __device__ __forceinline__ float load_scale(const scale_bits* from, Index at) {
  unsigned bits;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(bits) : "l"(from + at) : "memory");
  return read_scale(bits);
}
#endif
static __device__ __forceinline__ int at_most(int value, int most) { return value < most ? value : most; }

// A thread's accumulators are of rows warp * 16 + lane / 4 and that plus 8 of each 64, and of columns lane % 4 * 2 and the next of each 8.
static __device__ __forceinline__ int first_row_of_thread() { return (int)(threadIdx.x % 128) / 32 * 16 + (int)threadIdx.x % 32 / 4; }

#if SCALES == 2
#define LANE_COLUMNS ((BLOCK_N + 31) / 32)

// Lane l has the scales of columns l, l + 32, ...; scale_rows() exchanges them.
struct RowScales {
  float a[MMA_TILES][2];
  float b[LANE_COLUMNS];
};

static __device__ __forceinline__ float x_row_scale(const ScaledRows& rows, int m) { return load_scale(rows.scales.x, ((long long)rows.batch * rows.m + at_most(m, rows.m - 1)) * rows.scales.x_row_step); }
static __device__ __forceinline__ float w_row_scale(const ScaledRows& rows, int n) { return load_scale(rows.scales.w, ((long long)rows.batch * rows.n + at_most(n, rows.n - 1)) * rows.scales.w_row_step); }

static __device__ __forceinline__ RowScales row_scales(const ScaledRows& rows) {
  RowScales scales;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    const int at = rows.a + first_row_of_thread() + i / 2 * 64 + i % 2 * 8;
    scales.a[i / 2][i % 2] = SWAP_AB ? w_row_scale(rows, at) : x_row_scale(rows, at);
  }
#pragma unroll
  for (int i = 0; i < LANE_COLUMNS; ++i) {
    const int at = rows.b + i * 32 + (int)threadIdx.x % 32;
    scales.b[i] = SWAP_AB ? x_row_scale(rows, at) : w_row_scale(rows, at);
  }
  return scales;
}

// Multiplies d by the scales of its rows and columns.
static __device__ __forceinline__ void scale_rows(Accumulators& d, const RowScales& scales) {
#pragma unroll
  for (int j = 0; j < BLOCK_N / 8; ++j) {
    float columns[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) columns[i] = __shfl_sync(0xffffffffu, scales.b[j / 4], j % 4 * 8 + (int)threadIdx.x % 4 * 2 + i);
#pragma unroll
    for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = d[r][j * 4 + i];
        sum = (ELEMENT == 4 ? (float)__float_as_int(sum) : sum) * scales.a[r][i / 2] * columns[i % 2];
        asm volatile("" : "+f"(sum)::"memory");  // one after the other: together they need more registers
      }
    }
  }
}
#endif

#if SCALES == 3
// Blocks that columns that are rows of w may be of, wherever the first of them is: it is a multiple of BLOCK_N.
#define BLOCK_N_STEP (BLOCK_N & -BLOCK_N)
#define WEIGHT_BLOCKS (((BLOCK_N_STEP < SCALE_BLOCK ? SCALE_BLOCK - BLOCK_N_STEP : 0) + BLOCK_N + SCALE_BLOCK - 1) / SCALE_BLOCK)

// Scales at one k atom. SWAP_AB: A has one for each 64 rows, B one for each column of the thread; else A has one for each row of the thread, B
// one for each block of the columns.
struct BlockScales {
  float a[MMA_TILES * (SWAP_AB ? 1 : 2)];
  float b[SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS];
};

// Where they are for k atom 0, in elements from the first one on: the mainloop has no time to multiply rows.
struct BlockScalesAt {
  const scale_bits* a;
  const scale_bits* b;
  int a_at[MMA_TILES * (SWAP_AB ? 1 : 2)];
  int b_at[SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS];
  int last_k;
  int second_block;  // the first column of the second block
};

static __device__ __forceinline__ int x_scale_row(const ScaledRows& rows, int m) { return at_most(m, rows.m - 1); }
static __device__ __forceinline__ int w_scale_row(const ScaledRows& rows, int n) { return at_most(n, rows.n - 1) / SCALE_BLOCK; }

static __device__ __forceinline__ BlockScalesAt block_scales_at(const ScaledRows& rows) {
  const int columns = (int)rows.scales.x_row_step;
  const int a = SWAP_AB ? w_scale_row(rows, rows.a) : x_scale_row(rows, rows.a);
  const int b = SWAP_AB ? x_scale_row(rows, rows.b) : w_scale_row(rows, rows.b);
  BlockScalesAt at;
  at.a = (const scale_bits*)(SWAP_AB ? rows.scales.w : rows.scales.x) + (long long)a * columns;
  at.b = (const scale_bits*)(SWAP_AB ? rows.scales.x : rows.scales.w) + (long long)b * columns;
  // Otherwise the compiler computes the addresses anew for each atom, between the instructions of the tensor core.
  asm volatile("" : "+l"(at.a), "+l"(at.b));
  at.last_k = columns - 1;
  at.second_block = SCALE_BLOCK - rows.b % SCALE_BLOCK;
#if SWAP_AB
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) at.a_at[r] = (w_scale_row(rows, rows.a + r * 64) - a) * columns;
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; ++i) at.b_at[i] = (x_scale_row(rows, rows.b + i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2) - b) * columns;
#else
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) at.a_at[i] = (x_scale_row(rows, rows.a + first_row_of_thread() + i / 2 * 64 + i % 2 * 8) - a) * columns;
#pragma unroll
  for (int i = 0; i < WEIGHT_BLOCKS; ++i) at.b_at[i] = (w_scale_row(rows, rows.b + i * SCALE_BLOCK) - b) * columns;
#endif
#pragma unroll
  for (int i = 0; i < MMA_TILES * (SWAP_AB ? 1 : 2); ++i) asm volatile("" : "+r"(at.a_at[i]));
#pragma unroll
  for (int i = 0; i < (SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS); ++i) asm volatile("" : "+r"(at.b_at[i]));
  return at;
}

static __device__ __forceinline__ BlockScales block_scales(const BlockScalesAt& at, int k_atom) {
  const int k = at_most(k_atom, at.last_k);  // the last stage may have an atom past the end of k
  BlockScales scales;
#pragma unroll
  for (int i = 0; i < MMA_TILES * (SWAP_AB ? 1 : 2); ++i) scales.a[i] = load_scale(at.a, at.a_at[i] + k);
#pragma unroll
  for (int i = 0; i < (SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS); ++i) scales.b[i] = load_scale(at.b, at.b_at[i] + k);
  return scales;
}

// The scale of accumulator i of tile r.
static __device__ __forceinline__ float block_scale(const BlockScales& scales, const BlockScalesAt& at, int r, int i) {
#if SWAP_AB
  return scales.a[r] * scales.b[i / 4 * 2 + i % 2];
#else
  const float of_a = scales.a[r * 2 + i % 4 / 2];
  float scale = of_a * scales.b[0];
#pragma unroll
  for (int block = 1; block < WEIGHT_BLOCKS; ++block) {
    if (i / 8 * 16 >= at.second_block + (block - 1) * SCALE_BLOCK) scale = of_a * scales.b[block];
  }
  return scale;
#endif
}
#else
struct BlockScales {};
struct BlockScalesAt {};
#endif
