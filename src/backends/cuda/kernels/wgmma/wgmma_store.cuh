// How results of wgmma leave: through shared memory and the copy engine, or, where blocks divide k, to the blocks that add them up.
// Comes behind wgmma_load.cuh.
typedef float Accumulators[BLOCKS64][B_ROWS / 2];

static __device__ inline void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

#if BIAS
static __device__ inline float bias_at(const Arguments& a, int n) { return n < a.n ? read_output(a.bias[n]) : 0.0f; }
#else
static __device__ inline float bias_at(const Arguments&, int) { return 0.0f; }
#endif

// ---- whole tiles

#if !SPLIT
#define LINE_BYTES 128  // of a row of y; the copy engine swizzles as it does when it loads
#define LINE_COLUMNS (LINE_BYTES / (int)sizeof(output))

// This thread's copies out of shared memory that are not done with reading: at most `most` from here on.
#define WAIT_FOR_COPIES(most) asm volatile("cp.async.bulk.wait_group.read " #most ";" ::: "memory")

static __device__ __forceinline__ void copy_out(const TensorMap* map, unsigned from, int n, int m) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(n), "r"(m), "r"(from)
               : "memory");
}
static __device__ __forceinline__ void end_copies() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// What this thread wrote to shared memory is there for the copy engine.
static __device__ __forceinline__ void show_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

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
static __device__ __forceinline__ unsigned both(float first, float second) {
  unsigned pair;
#if OUTPUT == 1
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
  return pair;
}
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

// Two buffers in turn: one is filled while the other is on its way.
struct Outbox {
  unsigned first;
  unsigned turned;  // 0 or the bytes of a buffer
};

#if SWAP
// Rows of D are columns of y: a warpgroup turns 64 of them over, so many rows of y at a time.
#define KEPT_ROWS (B_ROWS % 32 == 0 ? 32 : 16)
#define HALVES (64 / LINE_COLUMNS)  // lines a row
#define OUTBOX_BYTES (KEPT_ROWS * HALVES * LINE_BYTES)
#define OUTBOXES WARPGROUPS

static __device__ __forceinline__ void store_tile(const Accumulators& d, const Arguments& a, Outbox& box, const Tile& tile, int row, float scale) {
  const int thread = threadIdx.x % 128;
  const int group = threadIdx.x / 128;
  const int lane = thread % 32;
  const int warp = thread / 32;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
    const int n = tile.a + row + r * 64;
    const float low = bias_at(a, n + warp * 16 + lane / 4);
    const float high = bias_at(a, n + warp * 16 + lane / 4 + 8);
#pragma unroll
    for (int first = 0; first < B_ROWS; first += KEPT_ROWS) {
      const unsigned to = box.first + box.turned;
      box.turned = OUTBOX_BYTES - box.turned;
      if (thread == 0) WAIT_FOR_COPIES(1);
      group_sync(group);
#pragma unroll
      for (int j = 0; j < KEPT_ROWS / 8; j += 2) {
        const float* v = &d[r][(first / 8 + j) * 4];
#if OUTPUT == 0
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int column = warp * 16 + lane / 4 + i / 2 % 2 * 8;
          const int m = (j + i / 4) * 8 + lane % 4 * 2 + i % 2;
          keep_one(to + (unsigned)(column / LINE_COLUMNS * KEPT_ROWS * LINE_BYTES) + place_of<LINE_COLUMNS>(m, column % LINE_COLUMNS),
                   v[i] * scale + (i / 2 % 2 ? high : low));
        }
#else
        const unsigned pieces[4] = {both(v[0] * scale + low, v[1] * scale + low), both(v[2] * scale + high, v[3] * scale + high),
                                    both(v[4] * scale + low, v[5] * scale + low), both(v[6] * scale + high, v[7] * scale + high)};
        keep_pieces(to + place_of<LINE_COLUMNS>((j + lane / 16) * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8), pieces);
#endif
      }
      show_copy_engine();
      group_sync(group);
      const int m = tile.b + first;
      if (a.whole) {
        if (thread == 0 && m < a.m) {
          for (int half = 0; half < HALVES; ++half) {
            if (n + half * LINE_COLUMNS < a.n) copy_out(&a.y_lines, to + (unsigned)(half * KEPT_ROWS * LINE_BYTES), n + half * LINE_COLUMNS, m);
          }
        }
      } else {
#pragma unroll 1
        for (int item = thread; item < KEPT_ROWS * 64; item += 128) {
          const int local = item / 64;
          const int column = item % 64;
          if (m + local < a.m && n + column < a.n)
            a.y[(long long)(m + local) * a.ldy + n + column] = kept(to + (unsigned)(column / LINE_COLUMNS * KEPT_ROWS * LINE_BYTES) +
                                                         place_of<LINE_COLUMNS>(local, column % LINE_COLUMNS));
        }
      }
      if (thread == 0) end_copies();
    }
  }
}
#else
// A warp has 16 rows of y to itself: no other warp waits for it.
#define OUTBOX_BYTES (16 * LINE_BYTES)
#define OUTBOXES (4 * WARPGROUPS)
#define REST (B_ROWS % LINE_COLUMNS)

// `columns` columns of a warp's 16 rows, the first at (m, n), the lane's own at `d`.
template <int columns>
static __device__ __forceinline__ void store_columns(const float* d, const Arguments& a, Outbox& box, int m, int n, float scale) {
  const int lane = threadIdx.x % 32;
  const unsigned to = box.first + box.turned;
  box.turned = OUTBOX_BYTES - box.turned;
  if (lane == 0) WAIT_FOR_COPIES(1);
  __syncwarp();
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
      keep_two(step_of<columns>(own, (j + i / 2) * 8) + (unsigned)(i % 2 * 8 * columns * (int)sizeof(output)), v[i * 2] * scale + bias[i / 2 * 2],
               v[i * 2 + 1] * scale + bias[i / 2 * 2 + 1]);
#else
    const unsigned pieces[4] = {both(v[0] * scale + bias[0], v[1] * scale + bias[1]), both(v[2] * scale + bias[0], v[3] * scale + bias[1]),
                                both(v[4] * scale + bias[2], v[5] * scale + bias[3]), both(v[6] * scale + bias[2], v[7] * scale + bias[3])};
    keep_pieces(step_of<columns>(own, j * 8), pieces);
#endif
#if BIAS
    asm volatile("" ::: "memory");  // or all of the bias is read first, and its registers are missing
#endif
  }
  show_copy_engine();
  __syncwarp();
  if (a.whole) {
    if (lane == 0 && m < a.m && n < a.n) copy_out(columns == LINE_COLUMNS ? &a.y_lines : &a.y_rest, to, n, m);
  } else {
#pragma unroll 1
    for (int item = lane; item < 16 * columns; item += 32) {
      const int local = item / columns;
      const int column = item % columns;
      if (m + local < a.m && n + column < a.n) a.y[(long long)(m + local) * a.ldy + n + column] = kept(to + place_of<columns>(local, column));
    }
  }
  if (lane == 0) end_copies();
}

static __device__ __forceinline__ void store_tile(const Accumulators& d, const Arguments& a, Outbox& box, const Tile& tile, int row, float scale) {
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
    const int m = tile.a + row + r * 64 + (int)(threadIdx.x % 128) / 32 * 16;
#pragma unroll
    for (int first = 0; first + LINE_COLUMNS <= B_ROWS; first += LINE_COLUMNS)
      store_columns<LINE_COLUMNS>(&d[r][first / 2], a, box, m, tile.b + first, scale);
    if constexpr (REST > 0) store_columns<REST>(&d[r][(B_ROWS - REST) / 2], a, box, m, tile.b + B_ROWS - REST, scale);
  }
}
#endif

static __device__ __forceinline__ Outbox outbox(const Layout& at) {
  const unsigned number = OUTBOXES == WARPGROUPS ? threadIdx.x / 128 : threadIdx.x / 32;
  return {at.scratch + number * 2 * OUTBOX_BYTES, 0};
}
#endif

// ---- parts of k

#if SPLIT
static __device__ inline int first_unit(int block, int blocks) { return (block * UNITS + blocks - 1) / blocks; }

// Floats from row to row of what a block gets from another.
static __device__ inline int exchange_pitch(int most) { return SWAP ? most * 8 + 2 : B_ROWS + 8; }

// Each eight rows of y go to the block that adds them up, two neighbours at a time.
static __device__ __forceinline__ void send(const Accumulators& d, const Arguments& a, const Layout& at, int row, const Part& part) {
  const int blocks = a.split;
  const int sharing = a.ca * a.cb;
  const int place = part.ra + a.ca * part.rb;
  const int lane = threadIdx.x % 32;
  const int most = (UNITS + blocks - 1) / blocks;
  const int pitch = exchange_pitch(most);
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + r * 64 + (int)(threadIdx.x % 128) / 32 * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int j = 0; j < B_ROWS / 8; ++j) {
        const int unit = SWAP ? j : i / 8;
        const int owner = unit * blocks / UNITS;
        const int slot = unit - first_unit(owner, blocks);
        const int there = SWAP ? (part.k * A_ROWS + i) * pitch + slot * 8 : (part.k * most * 8 + slot * 8 + i % 8) * pitch + j * 8;
        const int block = owner * sharing + place;
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                         remote_address(at.scratch + 4u * (unsigned)(there + lane % 4 * 2), block)),
                     "f"(d[r][4 * j + 2 * half]), "f"(d[r][4 * j + 2 * half + 1]), "r"(remote_address(at.arrived, block))
                     : "memory");
      }
    }
  }
}

// Columns that a thread adds up at a time: neighbours in what was sent, or, SWAP, neighbours in y.
#define ADDED (SWAP ? 2 : 4)
struct alignas(ADDED * sizeof(output)) Added {
  output value[ADDED];
};

static __device__ inline void add_and_store(const Arguments& a, const float* sums, const Tile& tile, int k_part, float scale) {
  const int blocks = a.split;
  const int most = (UNITS + blocks - 1) / blocks;
  const int pitch = exchange_pitch(most);
  const int first = first_unit(k_part, blocks);
  const int rows = (first_unit(k_part + 1, blocks) - first) * 8;
  const bool aligned = (a.ldy % ADDED == 0) && (((unsigned long long)a.y) % sizeof(Added) == 0);
#pragma unroll 1
  for (int item = threadIdx.x; item < rows * (ACROSS / ADDED); item += CONSUMERS) {
    const int local = item / (ACROSS / ADDED);
    const int column = item % (ACROSS / ADDED) * ADDED;
    const long long m = (SWAP ? tile.b : tile.a) + first * 8 + local;
    const long long n = (SWAP ? tile.a : tile.b) + column;
    if (m >= a.m || n >= a.n) continue;
    float4 parts[8];  // all are under way at once
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      parts[block] = float4{0.0f, 0.0f, 0.0f, 0.0f};
      if (block >= blocks) continue;
#if SWAP
      const float* at = sums + (block * A_ROWS + column) * pitch + local;
      parts[block].x = at[0];
      parts[block].y = at[pitch];
#else
      parts[block] = *(const float4*)(sums + (block * most * 8 + local) * pitch + column);
#endif
    }
    float4 sum = parts[0];
#pragma unroll
    for (int block = 1; block < 8; ++block) {
      sum.x += parts[block].x;
      sum.y += parts[block].y;
      sum.z += parts[block].z;
      sum.w += parts[block].w;
    }
    const float all[4] = {sum.x, sum.y, sum.z, sum.w};
    Added added;
#pragma unroll
    for (int i = 0; i < ADDED; ++i) added.value[i] = round_output(all[i] * scale + bias_at(a, n + i));
    output* to = a.y + m * a.ldy + n;
    if (aligned && n + ADDED <= a.n) {
      *(Added*)to = added;
    } else {
#pragma unroll
      for (int i = 0; i < ADDED; ++i) {
        if (n + i < a.n) to[i] = added.value[i];
      }
    }
  }
}

#endif
