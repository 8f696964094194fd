// How skinny's sums leave a block: to y, or, where a cluster divides k, to the blocks that add them up. When the last products are
// done, nothing but this is left of a launch and no warp has another one to hide behind; so what can be known before is worked out
// before (`Way`) and kept in registers. Comes behind skinny_load.cuh.
typedef float Accumulators[ROWS / 64][COLUMNS / 2];

#define PITCH (COLUMNS + 4)         // floats; rows begin at 16 bytes, and pairs of rows and columns of y meet all banks
#define TILE_PITCH (ROWS * 2 + 16)  // bytes of a row of y in shared memory
#define DIRECT (COLUMNS == 8 || OUTPUT == 0)

// Has the compiler work `value` out here and not behind the products: what came out of a shuffle it does not make again.
template <typename T>
static __device__ inline void settle(T& value) {
  value = __shfl_sync(0xffffffffu, value, threadIdx.x % 32);
}

static __device__ inline float bias_at(const Arguments& a, int n) { return a.bias && n < a.n ? read_output(a.bias[n]) : 0.0f; }

static __device__ inline long long global_address(const void* pointer) { return (long long)__cvta_generic_to_global(pointer); }
static __device__ inline void store_one(long long to, float value) {
#if OUTPUT == 0
  asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
#else
  asm volatile("st.global.b16 [%0], %1;" ::"l"(to), "h"(round_output(value)) : "memory");
#endif
}

// ---- a cluster

// To whom a thread sends, and what of y it adds up: pairs of rows of the weight, of one row of x after the other.
struct Way {
  unsigned to[ROWS / 64];       // in the block that adds up these rows
  unsigned arrived[ROWS / 64];  // its barrier
  unsigned from;                // the first pair
  unsigned stride;              // to the same of the next block
  int group, groups;            // first and end
  int rows, columns;            // of y, from the first on
  long long y;
  float bias[2];
  int paired;  // whether y takes two at once
};

// Lanes give half of what they have to their neighbour, so that each has four columns of one row: even ones of the first 8 rows of a
// warp's 16, odd ones of the others.
static __device__ inline Way way_of(const Arguments& a, const Layout& at, int row, int rank) {
  Way way;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
    const int group = r * 8 + (int)(threadIdx.x / 32) * 2 + lane % 2;
    const int owner = group * a.blocks / GROUPS;
    const int slot = group - first_group(a, owner);
    const unsigned there = at.exchange + 4u * (unsigned)(((rank * a.most + slot) * 8 + lane / 4) * PITCH + lane % 4 / 2 * 4);
    way.to[r] = remote_address(there, owner);
    way.arrived[r] = remote_address(at.arrived, owner);
    settle(way.to[r]);
    settle(way.arrived[r]);
  }
  const int pair = (int)threadIdx.x % 4;
  way.group = (int)threadIdx.x / (4 * COLUMNS);
  way.groups = first_group(a, rank + 1) - first_group(a, rank);
  const int m = (int)threadIdx.x / 4 % COLUMNS;
  const int n = row + (first_group(a, rank) + way.group) * 8 + pair * 2;
  way.rows = a.m - m;
  way.columns = a.n - n;
  way.from = at.exchange + 4u * (unsigned)((way.group * 8 + pair * 2) * PITCH + m);
  way.stride = 4u * (unsigned)(a.most * 8 * PITCH);
  way.y = global_address(a.y + m * a.ldy + n);
  way.bias[0] = bias_at(a, n);
  way.bias[1] = bias_at(a, n + 1);
  way.paired = a.ldy % 2 == 0 && ((unsigned long long)a.y) % (2 * sizeof(output)) == 0;
  settle(way.groups);
  settle(way.rows);
  settle(way.columns);
  settle(way.from);
  settle(way.stride);
  settle(way.y);
  settle(way.bias[0]);
  settle(way.bias[1]);
  settle(way.paired);
  return way;
}

// Each row of the product goes to the block that adds it up, four neighbouring columns at a time.
static __device__ inline void exchange(const Accumulators& d, const Way& way) {
  const bool odd = threadIdx.x % 2 != 0;
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      const float* own = &d[r][4 * j];
      const float first = __shfl_xor_sync(0xffffffffu, odd ? own[0] : own[2], 1);
      const float second = __shfl_xor_sync(0xffffffffu, odd ? own[1] : own[3], 1);
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(way.to[r] + 32u * j),
                   "f"(odd ? first : own[0]), "f"(odd ? second : own[1]), "f"(odd ? own[2] : first), "f"(odd ? own[3] : second),
                   "r"(way.arrived[r])
                   : "memory");
    }
  }
}

static __device__ inline void store_two(long long to, int columns, float first, float second, int paired) {
#if OUTPUT != 0
  if (paired && columns > 1) {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(round_pair(first, second)) : "memory");
    return;
  }
#endif
  if (columns > 0) store_one(to, first);
  if (columns > 1) store_one(to + (int)sizeof(output), second);
}

// Adds up, in the order of the blocks, whatever the order in which they sent.
static __device__ inline void add_up(const Arguments& a, const Way& way, float scale) {
  constexpr int step = CONSUMERS / (4 * COLUMNS) > 0 ? CONSUMERS / (4 * COLUMNS) : 1;  // groups
  constexpr int rows = COLUMNS > CONSUMERS / 4 ? CONSUMERS / 4 : COLUMNS;              // of x at once
  int columns = way.columns;
  unsigned from = way.from;
  long long y = way.y;
  float bias[2] = {way.bias[0], way.bias[1]};
#pragma unroll 1
  for (int group = way.group; group < way.groups; group += step) {
#pragma unroll
    for (int m = 0; m < COLUMNS; m += rows) {
      float parts[8][2];  // all are under way at once
      unsigned at = from + 4u * m;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        parts[block][0] = parts[block][1] = 0.0f;
        if (block < a.blocks) {
          asm volatile("ld.shared.f32 %0, [%1];" : "=f"(parts[block][0]) : "r"(at) : "memory");
          asm volatile("ld.shared.f32 %0, [%1];" : "=f"(parts[block][1]) : "r"(at + 4u * PITCH) : "memory");
        }
        at += way.stride;
      }
      float first = 0.0f;
      float second = 0.0f;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        first += parts[block][0];
        second += parts[block][1];
      }
      if (m < way.rows)
        store_two(y + m * a.ldy * (int)sizeof(output), columns, first * scale + bias[0], second * scale + bias[1], way.paired);
    }
    columns -= step * 8;
    from += 4u * (step * 8 * PITCH);
    y += step * 8 * (int)sizeof(output);
    if (a.bias) {
      bias[0] = bias_at(a, a.n - columns);
      bias[1] = bias_at(a, a.n - columns + 1);
    }
  }
}

// ---- one block that has all of k

#if DIRECT
// Few rows of y, or wide elements: what a thread has goes straight there.
struct OwnWay {
  long long y;
  int rows, columns;  // of y, from there on
  float bias[ROWS / 64][2];
};
static __device__ inline OwnWay own_way_of(const Arguments& a, const Layout&, int row) {
  OwnWay way;
  const int lane = threadIdx.x % 32;
  const int n = row + (int)(threadIdx.x / 32) * 16 + lane / 4;
  const int m = lane % 4 * 2;
  way.rows = a.m - m;
  way.columns = a.n - n;
  way.y = global_address(a.y + m * a.ldy + n);
  settle(way.rows);
  settle(way.columns);
  settle(way.y);
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      way.bias[r][half] = bias_at(a, n + r * 64 + half * 8);
      settle(way.bias[r][half]);
    }
  }
  return way;
}
static __device__ inline void store_own(const Accumulators& d, const Arguments& a, const OwnWay& way, float scale) {
#pragma unroll
  for (int i = 0; i < COLUMNS / 4; ++i) {
    const int m = i / 2 * 8 + i % 2;
    if (m >= way.rows) continue;
    const long long y = way.y + m * a.ldy * (int)sizeof(output);
#pragma unroll
    for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = r * 64 + half * 8;
        if (n < way.columns) store_one(y + n * (int)sizeof(output), d[r][i / 2 * 4 + half * 2 + i % 2] * scale + way.bias[r][half]);
      }
    }
  }
}

#else
// A tile of y is turned in shared memory, so that whole lines of y are written.
struct OwnWay {
  unsigned to;    // of what a thread writes to shared memory
  unsigned from;  // 16 bytes of a row of y
  long long y;
  int rows, columns;  // of y, from there on
  int whole;          // 16 bytes may be written at once
  float bias[ROWS / 64][2];
};
static __device__ inline OwnWay own_way_of(const Arguments& a, const Layout& at, int row) {
  OwnWay way;
  const int lane = threadIdx.x % 32;
  const int first = (int)(threadIdx.x / 32) * 16;
  way.to = at.exchange + (unsigned)((lane / 16 * 8 + lane % 8) * TILE_PITCH + (first + lane / 8 % 2 * 8) * 2);
  const int chunk = (int)threadIdx.x % (ROWS / 8);
  const int m = (int)threadIdx.x / (ROWS / 8);
  const int n = row + chunk * 8;
  way.rows = a.m - m;
  way.columns = a.n - n;
  way.from = at.exchange + (unsigned)(m * TILE_PITCH + chunk * 16);
  way.y = global_address(a.y + m * a.ldy + n);
  way.whole = a.ldy % 8 == 0 && ((unsigned long long)a.y) % 16 == 0 && way.columns >= 8;
  settle(way.to);
  settle(way.from);
  settle(way.rows);
  settle(way.columns);
  settle(way.whole);
  settle(way.y);
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      way.bias[r][half] = bias_at(a, row + r * 64 + first + half * 8 + lane / 4);
      settle(way.bias[r][half]);
    }
  }
  return way;
}
static __device__ inline void store_own(const Accumulators& d, const Arguments& a, const OwnWay& way, float scale) {
#pragma unroll
  for (int r = 0; r < ROWS / 64; ++r) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* own = &d[r][4 * (j + i / 2) + 2 * (i % 2)];
        pairs[i] = round_pair(own[0] * scale + way.bias[r][i % 2], own[1] * scale + way.bias[r][i % 2]);
      }
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(way.to + (unsigned)(r * 128 + j * 8 * TILE_PITCH)),
                   "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                   : "memory");
    }
  }
  asm volatile("bar.sync 1, 128;" ::: "memory");
  constexpr int step = CONSUMERS / (ROWS / 8);
#pragma unroll
  for (int m = 0; m < COLUMNS; m += step) {
    if (m >= way.rows) break;
    unsigned v[4];
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(way.from + (unsigned)(m * TILE_PITCH))
                 : "memory");
    const long long y = way.y + m * a.ldy * (int)sizeof(output);
    if (way.whole) {
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(y), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (i < way.columns)
          asm volatile("st.global.b16 [%0], %1;" ::"l"(y + i * 2), "h"((unsigned short)(v[i / 2] >> (i % 2 * 16))) : "memory");
    }
  }
}
#endif
