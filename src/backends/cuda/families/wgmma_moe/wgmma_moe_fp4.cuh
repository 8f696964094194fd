// What a consumer of wgmma_moe does with an MXFP4 weight: its rows, their scales, and decoding between shared memory and registers. Follows wgmma_moe_producer.cuh.
#if FP4
// Elements of k are permuted within 128 so that a thread decodes 16 bytes of its rows, a block of one scale, without the other threads: of k = 32 t + 8 w + j +
// 4 i (i < 2, j, t, w < 4) the place is 32 w + 8 j + 2 t + i. x comes so, and the hidden layer is written so: a warp of stage 1 has features of one (w, j), lane
// group g = 2 t + i; without a gate the second half of the instruction's rows is of j + 1. Of stage 2 neighbouring lane groups have rows 4 apart, for the banks of shared memory; store_staged() puts them in order.
//
// The row of the tile, in shared memory, of lane group `lane` and instruction R of the block; the second half of the instruction's rows is SECOND_ROW further.
#define SECOND_ROW (PERMUTED ? 1 : 8)
static __device__ __forceinline__ int permuted_row(int instruction, int warp, int lane) {
#if INTERLEAVED
  return lane / 2 * (BLOCK_ROWS / 4) + instruction * 16 + warp + lane % 2 * 4;
#elif PERMUTED
  return lane / 2 * (BLOCK_ROWS / 4) + instruction * 16 + warp / 2 * 8 + warp % 2 * 2 + lane % 2 * 4;
#else
  return instruction * 64 + warp * 16 + lane / 2 + lane % 2 * 4;
#endif
}
#if STAGE == 1
// The feature of w1 that the thread has in its instruction r (of a gated one in both halves of the instruction's rows), of the tile whose first column of `to` is
// `column`.
static __device__ __forceinline__ int feature_of(int column, int r, int half) {
  const int warp = (int)(threadIdx.x % 128) / 32;
  const int lane = (int)threadIdx.x % 32 / 4;
  const int instruction = (int)threadIdx.x / 128 * MMA_TILES + r;
#if INTERLEAVED
  return column / 128 * 128 + lane / 2 * 32 + (column % 128 / 32 + instruction) * 8 + warp + lane % 2 * 4;
#else
  return column / 128 * 128 + lane / 2 * 32 + column % 128 / 4 + instruction * 16 + warp / 2 * 8 + warp % 2 * 2 + lane % 2 * 4 + half;
#endif
}
#endif
typedef unsigned ScaleWords[MMA_TILES][2];

// Where the scales of the thread's rows begin. Four lanes share their rows: lane l of them loads those of 128 of k, the l-th of a chunk of 512.
struct ScaleRows {
  const unsigned char* from[MMA_TILES][2];
};

// Of the tile at row `tile_row` of w, whose first column of `to` is `column`. Rows past the last one have its scales: their products are not stored, or zero.
static __device__ __forceinline__ ScaleRows scale_rows(const WgmmaMoeArguments& a, int expert, int tile_row, int column) {
  const unsigned char* const scales = (const unsigned char*)a.w_scales + expert * a.w_scale_matrix;
  ScaleRows rows;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#if INTERLEAVED
    int row = feature_of(column, r, 0);
    if (row >= a.features) row = a.features - 1;
    rows.from[r][0] = scales + (long long)row * a.w_scale_columns;
    rows.from[r][1] = rows.from[r][0] + (long long)a.features * a.w_scale_columns;
#elif PERMUTED
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = feature_of(column, r, half);
      if (row >= a.features) row = a.features - 1;
      rows.from[r][half] = scales + (long long)row * a.w_scale_columns;
    }
#else
    const int warp = (int)(threadIdx.x % 128) / 32;
    const int lane = (int)threadIdx.x % 32 / 4;
    const int instruction = (int)threadIdx.x / 128 * MMA_TILES + r;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = tile_row + permuted_row(instruction, warp, lane) + half * 8;
      if (row >= a.features) row = a.features - 1;
      rows.from[r][half] = scales + (long long)row * a.w_scale_columns;
    }
#endif
  }
  return rows;
}

// The lane's words of the chunk that begins at scale `column`.
static __device__ __forceinline__ void load_scales(ScaleWords& words, const WgmmaMoeArguments& a, const ScaleRows& rows, int column) {
  column += (int)threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) {
    const unsigned char* const from = rows.from[i / 2][i % 2] + column;
    unsigned word = 0;
    if (a.w_scale_alignment == 4) {
      if (column < a.w_scale_columns) asm volatile("ld.global.nc.L2::128B.b32 %0, [%1];" : "=r"(word) : "l"(from));
    } else {
#pragma unroll
      for (int byte = 0; byte < 4; byte += 2) {
        unsigned half = 0;
        if (a.w_scale_alignment == 2) {
          if (column + byte < a.w_scale_columns)
            asm volatile("{\n.reg .b16 half;\nld.global.nc.L2::128B.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}" : "=r"(half) : "l"(from + byte));
        } else {
          unsigned low = 0;
          unsigned high = 0;
          if (column + byte < a.w_scale_columns) asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(low) : "l"(from + byte));
          if (column + byte + 1 < a.w_scale_columns) asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(high) : "l"(from + byte + 1));
          half = low | high << 8;
        }
        word |= half << (8 * byte);
      }
    }
    words[i / 2][i % 2] = word;
  }
}

// e2m1 to bf16, exactly: three bits of a magnitude in place of the lowest two of the exponent and the highest of the mantissa are the element times 2^-126. The
// factor 2^(e - 1) makes it the element times its scale 2^(e - 127). Above e = 128 the factor is 2^127, and what is missing is large_factor().
static __device__ __forceinline__ unsigned scale_factor(unsigned e) { return e * 0x00800080u + 0x3f003f00u; }
static __device__ __forceinline__ unsigned large_factor(unsigned e) { return e == 255u ? 0x7fc07fc0u : ((e > 128u ? e : 128u) - 1u) * 0x00800080u; }
static __device__ __forceinline__ unsigned multiply(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Elements j and j + 4 of a word, times 2^-126.
static __device__ __forceinline__ unsigned spread(unsigned word, int j) {
  constexpr unsigned magnitudes = 0x01c001c0u;
  constexpr unsigned signs = 0x80008000u;
  if (j == 0) return ((word << 12) & signs) | ((word << 6) & magnitudes);
  if (j == 1) return ((word << 8) & signs) | ((word << 2) & magnitudes);
  if (j == 2) return ((word << 4) & signs) | ((word >> 2) & magnitudes);
  return (word & signs) | ((word >> 6) & magnitudes);
}

struct Factors {
  unsigned by[2];
  unsigned more[2];  // where a scale of the warp is above 2
};

// 16 of k, step `step` of eight, of rows of which the thread has 16 bytes each.
static __device__ __forceinline__ void decode(unsigned (&to)[4], const uint4 (&raw)[2], int step, const Factors& factors, bool large) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4& row = raw[i % 2];
    const unsigned word = step / 2 == 0 ? row.x : step / 2 == 1 ? row.y : step / 2 == 2 ? row.z : row.w;
    unsigned pair = spread(word, step % 2 * 2 + i / 2);
    if (large) pair = multiply(pair, factors.more[i % 2]);
    to[i] = multiply(pair, factors.by[i % 2]);
  }
}

static __device__ __forceinline__ void multiply_add(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Adds products of 128 of k. `raw`: the thread's 16 bytes of its rows; `b`: the tokens' two atoms.
static __device__ __forceinline__ void multiply_unit(float (&d)[MMA_TILES][BLOCK_TOKENS / 2], const uint4 (&raw)[MMA_TILES][2], const Factors (&factors)[MMA_TILES],
                                                     unsigned b, bool large) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int word = 0; word < 4; ++word) {  // 32 of k
    unsigned fragments[MMA_TILES][2][4];
#pragma unroll
    for (int i = 0; i < MMA_TILES * 2; ++i) decode(fragments[i / 2][i % 2], raw[i / 2], word * 2 + i % 2, factors[i / 2], large);
#pragma unroll
    for (int j = 0; j < BLOCK_TOKENS / 8; ++j) {
      // Matrices of eight tokens and eight of k; in TMA's swizzle 16 bytes at c of row r are at c ^ (r % 8).
      const unsigned from = b + (unsigned)(word / 2 * B_ATOM_BYTES + (j * 8 + lane % 8) * ATOM_BYTES + (((word % 2 * 4 + lane / 8) ^ lane % 8) * 16));
      unsigned x[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
#pragma unroll
      for (int i = 0; i < MMA_TILES * 2; ++i) multiply_add(&d[i % MMA_TILES][j * 4], fragments[i % MMA_TILES][i / MMA_TILES], x[i / MMA_TILES * 2], x[i / MMA_TILES * 2 + 1]);
    }
  }
}

// True if a scale of the warp's chunk may be above 2.
static __device__ __forceinline__ bool has_large_scales(const ScaleWords& chunk) {
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) all |= chunk[i / 2][i % 2];
  return __any_sync(0xffffffffu, (all & 0x80808080u) != 0u);
}
#endif
