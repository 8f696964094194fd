// How tiles of y leave: through shared memory and the copy engine. Comes behind wgmma_load.cuh.
typedef float Accumulators[BLOCKS64][B_ROWS / 2];

static __device__ inline void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

#if BIAS
static __device__ inline float bias_at(const Arguments& a, int n) { return n < a.n ? read_output(a.bias[n]) : 0.0f; }
#else
static __device__ inline float bias_at(const Arguments&, int) { return 0.0f; }
#endif

// A sum as it is stored.
static __device__ __forceinline__ float finished(float sum, float scale, float bias) {
  if (SCALED) sum *= scale;
  return BIAS ? sum + bias : sum;
}

// ---- whole tiles

#if SPLIT == 1
#define LINE_BYTES 128  // of a row of y; the copy engine swizzles as it does when it loads
#define LINE_COLUMNS (LINE_BYTES / (int)sizeof(output))

// This thread's copies out of shared memory that are not done with reading: at most `most` from here on.
#define WAIT_FOR_COPIES(most) asm volatile("cp.async.bulk.wait_group.read " #most ";" ::: "memory")

static __device__ __forceinline__ void copy_out(const TensorMap* map, unsigned from, int n, int m) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(n), "r"(m), "r"(from)
               : "memory");
}
static __device__ __forceinline__ void end_copies() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Element (row, column) of rows of `columns`; those of a whole line are swizzled.
template <int columns>
static __device__ __forceinline__ unsigned place_of(int row, int column) {
  constexpr int bytes = columns * (int)sizeof(output);
  const int at = column * (int)sizeof(output);
  if (bytes != LINE_BYTES) return (unsigned)(row * bytes + at);
  return (unsigned)(row * LINE_BYTES + (((at / 16) ^ (row % 8)) * 16 + at % 16));
}

// `columns_on` columns, a multiple of 8, behind `place`, which has none of its bits.
template <int columns>
static __device__ __forceinline__ unsigned step_of(unsigned place, int columns_on) {
  const unsigned bytes = (unsigned)(columns_on * (int)sizeof(output));
  return columns * (int)sizeof(output) == LINE_BYTES ? place ^ bytes : place + bytes;
}

#if OUTPUT == 0
static __device__ __forceinline__ void keep_one(unsigned to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
static __device__ __forceinline__ void keep_two(unsigned to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}
#endif
static __device__ __forceinline__ output kept(unsigned from) {
  output value;
#if OUTPUT == 0
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
#else
  asm volatile("ld.shared.b16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
#endif
  return value;
}

#if OUTPUT != 0
// Four pieces of 8 x 8; lanes 8 i to 8 i + 7 say where the rows (SWAP: the columns) of the i-th begin.
static __device__ __forceinline__ void keep_pieces(unsigned to, const unsigned (&v)[4]) {
#if SWAP
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
#else
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
#endif
}
#endif

// Where a warp (SWAP: a warpgroup) puts what leaves. Two buffers in turn: one is filled while the other is on its way. LONE: the
// ring is free then, and each is used once, where the own rows of A were, which no other warpgroup reads.
struct Outbox {
  unsigned next;
  int step;  // to the buffer behind
};

static __device__ __forceinline__ unsigned take_buffer(Outbox& box) {
  const unsigned buffer = box.next;
  box.next += (unsigned)box.step;
  if (!LONE) box.step = -box.step;
  return buffer;
}

#if SWAP
// Rows of D are columns of y: a warpgroup turns 64 of them over, so many rows of y at a time.
#define KEPT_ROWS (B_ROWS % 32 == 0 ? 32 : 16)
#define HALVES (64 / LINE_COLUMNS)  // lines a row
#define OUTBOX_BYTES (KEPT_ROWS * HALVES * LINE_BYTES)

static __device__ __forceinline__ Outbox outbox(const Layout& at) {
  const unsigned group = threadIdx.x / 128;
  if (LONE) return {at.ring + group * GROUP_ROWS * PIECE_BYTES, STAGE_BYTES};
  return {at.scratch + group * 2 * OUTBOX_BYTES, OUTBOX_BYTES};
}

// KEPT_ROWS of D's columns, of 64 rows, the thread's own at `d`.
static __device__ __forceinline__ void fill_buffer(const float* d, unsigned to, float scale, float low, float high) {
  const int lane = threadIdx.x % 32;
  const int warp = (int)(threadIdx.x % 128) / 32;
#pragma unroll
  for (int j = 0; j < KEPT_ROWS / 8; j += 2) {
    const float* v = d + j * 4;
#if OUTPUT == 0
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = warp * 16 + lane / 4 + i / 2 % 2 * 8;
      const int m = (j + i / 4) * 8 + lane % 4 * 2 + i % 2;
      keep_one(to + (unsigned)(column / LINE_COLUMNS * KEPT_ROWS * LINE_BYTES) + place_of<LINE_COLUMNS>(m, column % LINE_COLUMNS),
               finished(v[i], scale, i / 2 % 2 ? high : low));
    }
#else
    unsigned pieces[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float bias = i % 2 ? high : low;
      pieces[i] = round_pair(finished(v[i * 2], scale, bias), finished(v[i * 2 + 1], scale, bias));
    }
    keep_pieces(to + place_of<LINE_COLUMNS>((j + lane / 16) * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8), pieces);
#endif
  }
}

// Its first element is y[m, n].
static __device__ __forceinline__ void send_buffer(const Arguments& a, unsigned from, int m, int n) {
  const int thread = threadIdx.x % 128;
  if (a.whole) {
    if (thread != 0 || m >= a.m) return;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      if (n + half * LINE_COLUMNS < a.n) copy_out(&a.y_lines, from + (unsigned)(half * KEPT_ROWS * LINE_BYTES), n + half * LINE_COLUMNS, m);
    }
  } else {
#pragma unroll 1
    for (int item = thread; item < KEPT_ROWS * 64; item += 128) {
      const int local = item / 64;
      const int column = item % 64;
      if (m + local < a.m && n + column < a.n)
        a.y[(long long)(m + local) * a.ldy + n + column] =
            kept(from + (unsigned)(column / LINE_COLUMNS * KEPT_ROWS * LINE_BYTES) + place_of<LINE_COLUMNS>(local, column % LINE_COLUMNS));
    }
  }
}

static __device__ __forceinline__ void store_tile(const Accumulators& d, const Arguments& a, Outbox& box, const Tile& tile, int row, float scale) {
  const int thread = threadIdx.x % 128;
  const int group = threadIdx.x / 128;
  const unsigned first_buffer = box.next;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
    const int n = tile.a + row + r * 64;
    const float low = bias_at(a, n + thread / 32 * 16 + thread % 32 / 4);
    const float high = bias_at(a, n + thread / 32 * 16 + thread % 32 / 4 + 8);
#pragma unroll
    for (int first = 0; first < B_ROWS; first += KEPT_ROWS) {
      const unsigned to = take_buffer(box);
      if (!LONE) {
        if (thread == 0) WAIT_FOR_COPIES(1);
        group_sync(group);
      }
      fill_buffer(&d[r][first / 2], to, scale, low, high);
      if (LONE) continue;
      show_copy_engine();
      group_sync(group);
      send_buffer(a, to, tile.b + first, n);
      if (thread == 0) end_copies();
    }
  }
  if (!LONE) return;
  show_copy_engine();
  group_sync(group);
#pragma unroll
  for (int i = 0; i < BLOCKS64 * (B_ROWS / KEPT_ROWS); ++i)
    send_buffer(a, first_buffer + (unsigned)(i * STAGE_BYTES), tile.b + i % (B_ROWS / KEPT_ROWS) * KEPT_ROWS,
                tile.a + row + i / (B_ROWS / KEPT_ROWS) * 64);
  if (thread == 0) end_copies();
}
#else
// A warp has 16 rows of y to itself: no other warp waits for it.
#define OUTBOX_BYTES (16 * LINE_BYTES)
#define LINES (B_ROWS / LINE_COLUMNS)
#define REST (B_ROWS % LINE_COLUMNS)

static __device__ __forceinline__ Outbox outbox(const Layout& at) {
  const unsigned row = threadIdx.x / 128 * GROUP_ROWS + threadIdx.x % 128 / 32 * 16;
  if (LONE) return {at.ring + row * PIECE_BYTES, STAGE_BYTES};
  return {at.scratch + threadIdx.x / 32 * 2 * OUTBOX_BYTES, OUTBOX_BYTES};
}

// `columns` columns of a warp's 16 rows, the first of them y's column n, the lane's own at `d`.
template <int columns>
static __device__ __forceinline__ void fill_buffer(const float* d, const Arguments& a, unsigned to, int n, float scale) {
  const int lane = threadIdx.x % 32;
#if OUTPUT == 0
  const unsigned own = to + place_of<columns>(lane / 4, lane % 4 * 2);
#else
  const unsigned own = to + place_of<columns>(lane % 16, lane / 16 * 8);
#endif
#pragma unroll
  for (int j = 0; j < columns / 8; j += 2) {
    const float* v = d + j * 4;
    const int pair = n + j * 8 + lane % 4 * 2;
    const float bias[4] = {bias_at(a, pair), bias_at(a, pair + 1), bias_at(a, pair + 8), bias_at(a, pair + 9)};
#if OUTPUT == 0
#pragma unroll
    for (int i = 0; i < 4; ++i)
      keep_two(step_of<columns>(own, (j + i / 2) * 8) + (unsigned)(i % 2 * 8 * columns * (int)sizeof(output)), finished(v[i * 2], scale, bias[i / 2 * 2]),
               finished(v[i * 2 + 1], scale, bias[i / 2 * 2 + 1]));
#else
    unsigned pieces[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pieces[i] = round_pair(finished(v[i * 2], scale, bias[i / 2 * 2]), finished(v[i * 2 + 1], scale, bias[i / 2 * 2 + 1]));
    keep_pieces(step_of<columns>(own, j * 8), pieces);
#endif
#if BIAS
    asm volatile("" ::: "memory");  // or all of the bias is read first, and its registers are missing
#endif
  }
}

// Its first element is y[m, n].
template <int columns>
static __device__ __forceinline__ void send_buffer(const Arguments& a, unsigned from, int m, int n) {
  const int lane = threadIdx.x % 32;
  if (a.whole) {
    if (lane == 0 && m < a.m && n < a.n) copy_out(columns == LINE_COLUMNS ? &a.y_lines : &a.y_rest, from, n, m);
  } else {
#pragma unroll 1
    for (int item = lane; item < 16 * columns; item += 32) {
      const int local = item / columns;
      const int column = item % columns;
      if (m + local < a.m && n + column < a.n) a.y[(long long)(m + local) * a.ldy + n + column] = kept(from + place_of<columns>(local, column));
    }
  }
}

template <int columns>
static __device__ __forceinline__ void store_columns(const float* d, const Arguments& a, Outbox& box, int m, int n, float scale) {
  const unsigned to = take_buffer(box);
  if (!LONE) {
    if (threadIdx.x % 32 == 0) WAIT_FOR_COPIES(1);
    __syncwarp();
  }
  fill_buffer<columns>(d, a, to, n, scale);
  if (LONE) return;
  show_copy_engine();
  __syncwarp();
  send_buffer<columns>(a, to, m, n);
  if (threadIdx.x % 32 == 0) end_copies();
}

static __device__ __forceinline__ void store_tile(const Accumulators& d, const Arguments& a, Outbox& box, const Tile& tile, int row, float scale) {
  const int m = tile.a + row + (int)(threadIdx.x % 128) / 32 * 16;
  unsigned buffer = box.next;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
#pragma unroll
    for (int i = 0; i < LINES; ++i)
      store_columns<LINE_COLUMNS>(&d[r][i * LINE_COLUMNS / 2], a, box, m + r * 64, tile.b + i * LINE_COLUMNS, scale);
    if constexpr (REST > 0) store_columns<REST>(&d[r][(B_ROWS - REST) / 2], a, box, m + r * 64, tile.b + B_ROWS - REST, scale);
  }
  if (!LONE) return;
  show_copy_engine();
  __syncwarp();
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
#pragma unroll
    for (int i = 0; i < LINES; ++i, buffer += STAGE_BYTES) send_buffer<LINE_COLUMNS>(a, buffer, m + r * 64, tile.b + i * LINE_COLUMNS);
    if constexpr (REST > 0) {
      send_buffer<REST>(a, buffer, m + r * 64, tile.b + B_ROWS - REST);
      buffer += STAGE_BYTES;
    }
  }
  if (threadIdx.x % 32 == 0) end_copies();
}
#endif
#endif
