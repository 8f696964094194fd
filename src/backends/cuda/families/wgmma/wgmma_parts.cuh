// Parts of k: the blocks of a cluster send each other their sums, and each adds up and stores some rows of y. Comes behind
// wgmma_store.cuh.
#if SPLIT > 1
// Sums lie in pieces of 8 rows x 8 columns of y, 256 bytes; those of eight rows, a unit, behind each other. In a piece rows change
// places with its number, so that the same row of four neighbours lies in different banks.
#define SUM_PIECE 256
#define UNIT_BYTES (ACROSS / 8 * SUM_PIECE)
#define TILE_BYTES (UNITS * UNIT_BYTES)

static __device__ inline int first_unit(int part) { return (part * UNITS + SPLIT - 1) / SPLIT; }
#define MOST_UNITS ((UNITS + SPLIT - 1) / SPLIT)  // that a block adds up

// Where part `from` puts units of the tile, in the block that adds up part `to`'s: behind that block's own sums.
static __device__ inline unsigned place_from(int from, int to) {
  return TILE_BYTES + (unsigned)((from < to ? from : from - 1) * MOST_UNITS) * UNIT_BYTES;
}

// This warp's sums, into the block's own memory.
static __device__ __forceinline__ void keep_sums(const Accumulators& d, const Layout& at, int row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < BLOCKS64; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = (row + r * 64) / 8 + (int)(threadIdx.x % 128) / 32 * 2 + half;
#pragma unroll
      for (int j = 0; j < B_ROWS / 8; ++j) {
        const int piece = SWAP ? i : j;
        const unsigned to = at.scratch + (unsigned)((SWAP ? j : i) * UNIT_BYTES + piece * SUM_PIECE);
        const float first = d[r][4 * j + 2 * half];
        const float second = d[r][4 * j + 2 * half + 1];
        const unsigned turned = (unsigned)(piece % 8 * 32);
        if (SWAP) {
          const unsigned place = (unsigned)(lane % 4 * 64 + lane / 4 * 4);
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (place ^ turned)), "f"(first) : "memory");
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (place + 32 ^ turned)), "f"(second) : "memory");
        } else {
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + ((unsigned)(lane * 8) ^ turned)), "f"(first), "f"(second) : "memory");
        }
      }
    }
  }
  show_copy_engine();
}

// To each block that adds up others' units, a warp each: those that it adds up, in one run.
static __device__ __forceinline__ void send_sums(const Arguments& a, const Layout& at, const Part& part) {
  for (int owner = (int)threadIdx.x / 32; owner < SPLIT; owner += CONSUMERS / 32) {
    if (owner == part.k || !elect_one()) continue;
    const int block = (owner << (CA_BITS + CB_BITS)) + part.ra + (part.rb << CA_BITS);
    const int first = first_unit(owner);
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     remote_address(at.scratch + place_from(part.k, owner), block)),
                 "r"(at.scratch + (unsigned)(first * UNIT_BYTES)), "r"((unsigned)((first_unit(owner + 1) - first) * UNIT_BYTES)),
                 "r"(remote_address(at.arrived, block))
                 : "memory");
  }
  __syncwarp();
}

// What the others send to this block.
static __device__ inline unsigned sent_bytes(int k_part) { return (unsigned)((SPLIT - 1) * (first_unit(k_part + 1) - first_unit(k_part))) * UNIT_BYTES; }

static __device__ __forceinline__ void shared_floats(unsigned from, float (&v)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}

struct alignas(4 * sizeof(output)) FourOutputs {
  output value[4];
};

// A thread adds up four neighbours at a time.
static __device__ __forceinline__ void add_and_store(const Arguments& a, const Layout& at, const Tile& tile, int k_part, float scale) {
  const int first = first_unit(k_part);
  const int rows = (first_unit(k_part + 1) - first) * 8;
  const int m = (SWAP ? tile.b : tile.a) + first * 8;
  const int n = (SWAP ? tile.a : tile.b);
  output* const y = a.y + m * a.ldy + n;
  const bool aligned = (a.ldy % 4 == 0) && (((unsigned long long)a.y) % sizeof(FourOutputs) == 0);
  unsigned from[SPLIT];
#pragma unroll
  for (int part = 0; part < SPLIT; ++part)
    from[part] = at.scratch + (part == k_part ? (unsigned)(first * UNIT_BYTES) : place_from(part, k_part));
#pragma unroll 2
  for (unsigned item = threadIdx.x; item < (unsigned)rows * (ACROSS / 4); item += CONSUMERS) {
    const unsigned local = item / (ACROSS / 4);
    const unsigned column = item % (ACROSS / 4) * 4;
    const unsigned piece = column / 8;
    const unsigned place = local / 8 * UNIT_BYTES + piece * SUM_PIECE + (local % 8 ^ piece % 8) * 32 + column % 8 * 4;
    float parts[SPLIT][4];  // all are under way at once
#pragma unroll
    for (int part = 0; part < SPLIT; ++part) shared_floats(from[part] + place, parts[part]);
    FourOutputs sums;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = parts[0][i];
#pragma unroll
      for (int part = 1; part < SPLIT; ++part) sum += parts[part][i];
      sums.value[i] = round_output(finished(sum, scale, bias_at(a, n + (int)column + i)));
    }
    if (m + (int)local >= a.m) continue;
    output* to = y + local * a.ldy + column;
    if (aligned && n + (int)column + 4 <= a.n) {
      *(FourOutputs*)to = sums;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (n + (int)column + i < a.n) to[i] = sums.value[i];
      }
    }
  }
}

#endif
