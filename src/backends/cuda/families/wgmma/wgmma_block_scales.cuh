// Scales of blocks (SCALES 3). A warp of its own copies those of a stage to shared memory, several stages ahead, and the copies complete on the
// stage's full barrier; the consumers read them when they add the stage's partial sums. Follows hopper_scales.cuh.
#if SCALES == 3
#define SCALED_X_ROWS (SWAP_AB ? BLOCK_N : BLOCK_M)
#define SCALED_W_ROWS (SWAP_AB ? BLOCK_M : BLOCK_N)
// Blocks that a tile's rows of w may be of, wherever the first of them is: it is a multiple of SCALED_W_ROWS.
#define W_ROWS_STEP (SCALED_W_ROWS & -SCALED_W_ROWS)
#define WEIGHT_BLOCKS (((W_ROWS_STEP < SCALE_BLOCK ? SCALE_BLOCK - W_ROWS_STEP : 0) + SCALED_W_ROWS + SCALE_BLOCK - 1) / SCALE_BLOCK)
// Of a k atom: one for each row of x, then one for each block of w. wgmma_launch_config.h computes the same.
#define ATOM_SCALES (SCALED_X_ROWS + WEIGHT_BLOCKS)
#define STAGE_SCALES_BYTES ((K_ATOMS * ATOM_SCALES * 4 + 15) / 16 * 16)

// Two places for each stage, one for each parity of its phase: with multicast a stage is released when the tensor core has read it, and a warp may
// read its scales later, but not later than the next release.
static __device__ __forceinline__ unsigned stage_scales(const WgmmaArguments& a, const SharedLayout& smem, int stage, unsigned parity) {
  return smem.scales + (unsigned)(stage + (int)parity * a.num_stages) * STAGE_SCALES_BYTES;
}

#define LANE_SCALES ((ATOM_SCALES + 31) / 32)  // of a k atom, for each lane of the warp that loads them

// A lane's scales of a tile: i * 32 + lane is the place in a k atom of its scale `i`, which is `rows_on[i]` elements behind the first row of the tile
// (of w the first block). The warp has little time for a stage, less than the address of a row takes to compute for each of them.
struct LaneScales {
  const scale_bits* x;
  const scale_bits* w;
  unsigned rows_on[LANE_SCALES];
};

static __device__ __forceinline__ LaneScales lane_scales(const WgmmaArguments& a, const Tile& tile) {
  const int columns = (int)a.scales.x_row_step;
  const int last_x = a.m - 1;
  const int last_w = (a.n - 1) / SCALE_BLOCK;
  const int x_row = at_most(SWAP_AB ? tile.b : tile.a, last_x);
  const int w_row = at_most((SWAP_AB ? tile.a : tile.b) / SCALE_BLOCK, last_w);
  LaneScales scales;
  scales.x = (const scale_bits*)a.scales.x + (long long)x_row * columns;
  scales.w = (const scale_bits*)a.scales.w + (long long)w_row * columns;
#pragma unroll
  for (int i = 0; i < LANE_SCALES; ++i) {
    const int at = i * 32 + (int)threadIdx.x % 32;
    const int rows = at < SCALED_X_ROWS ? at_most(at, last_x - x_row) : at_most(at - SCALED_X_ROWS, last_w - w_row);
    scales.rows_on[i] = (unsigned)rows * (unsigned)columns;
    asm volatile("" : "+r"(scales.rows_on[i]));  // computed here
  }
  return scales;
}

// The same at k atom `k_atom`, or the last one: a stage may have an atom past the end of k.
static __device__ __forceinline__ LaneScales scales_at_k(const WgmmaArguments& a, LaneScales scales, int k_atom) {
  const int k = at_most(k_atom, (int)a.scales.x_row_step - 1);
  scales.x += k;
  scales.w += k;
  asm volatile("" : "+l"(scales.x), "+l"(scales.w));  // one addition to these for each scale
  return scales;
}

static __device__ __forceinline__ const scale_bits* lane_scale(const LaneScales& scales, int i) {
  const bool of_x = (i + 1) * 32 <= SCALED_X_ROWS || i * 32 + (int)threadIdx.x % 32 < SCALED_X_ROWS;
  return (i * 32 < SCALED_X_ROWS && of_x ? scales.x : scales.w) + scales.rows_on[i];
}

// Brings the scales of a k tile to shared memory, when its place there is free. All lanes of the warp; float32 scales are copied asynchronously,
// e8m0 ones are converted.
static __device__ __forceinline__ void load_stage_scales(const WgmmaArguments& a, const LaneScales& scales, int k_tile, unsigned to, unsigned empty_barrier,
                                                         unsigned phase, unsigned full_barrier) {
  const int lane = (int)threadIdx.x % 32;
#if E8M0
  float values[K_ATOMS][LANE_SCALES];
#pragma unroll
  for (int atom = 0; atom < K_ATOMS; ++atom) {
    const LaneScales here = scales_at_k(a, scales, k_tile * K_ATOMS + atom);
#pragma unroll
    for (int i = 0; i < LANE_SCALES; ++i) values[atom][i] = load_scale(lane_scale(here, i), 0);
  }
#endif
  barrier_wait(empty_barrier, phase);
#pragma unroll
  for (int atom = 0; atom < K_ATOMS; ++atom) {
#if !E8M0
    const LaneScales here = scales_at_k(a, scales, k_tile * K_ATOMS + atom);
#endif
#pragma unroll
    for (int i = 0; i < LANE_SCALES; ++i) {
      if (i * 32 + lane >= ATOM_SCALES) continue;
      const unsigned place = to + (unsigned)(atom * ATOM_SCALES + i * 32 + lane) * 4u;
#if E8M0
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(place), "f"(values[atom][i]) : "memory");
#else
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(lane_scale(here, i)) : "memory");
#endif
    }
  }
#if E8M0
  barrier_arrive(full_barrier);
#else
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full_barrier) : "memory");
#endif
}

// The loop over tiles of the warp that loads scales.
static __device__ inline void produce_scales(const WgmmaArguments& a, const SharedLayout& smem, const BlockWork& work) {
  grid_dependency_wait();
  int stage = 0;
  unsigned phase = 1;
  for (int round = 0; tile_index(a, round) < a.tiles; ++round) {
    const LaneScales scales = lane_scales(a, tile_at(a, tile_index(a, round), work.rank_m, work.rank_n));
#pragma unroll 1
    for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
      load_stage_scales(a, scales, k_tile, stage_scales(a, smem, stage, phase ^ 1u), smem.empty_barriers + 8u * (unsigned)stage, phase,
                        smem.full_barriers + 8u * (unsigned)stage);
      if (++stage == a.num_stages) {
        stage = 0;
        phase ^= 1u;
      }
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Scales at one k atom. SWAP_AB: A has one for each 64 rows, B one for each column of the thread; else A has one for each row of the thread, B
// one for each block of the columns.
struct BlockScales {
  float a[MMA_TILES * (SWAP_AB ? 1 : 2)];
  float b[SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS];
};

// A thread's scales within a k atom's: bytes from the atom's first.
struct BlockScalesAt {
  unsigned a[MMA_TILES * (SWAP_AB ? 1 : 2)];
  unsigned b;
  int second_block;  // the first column of the second block
};

// `row`: the warp group's first within the tile.
static __device__ __forceinline__ BlockScalesAt block_scales_at(const Tile& tile, int row) {
  BlockScalesAt at;
#if SWAP_AB
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) at.a[r] = 4u * (unsigned)(SCALED_X_ROWS + (tile.a % SCALE_BLOCK + row + r * 64) / SCALE_BLOCK);
  at.b = 4u * (unsigned)(threadIdx.x % 4 * 2);
#else
#pragma unroll
  for (int i = 0; i < MMA_TILES * 2; ++i) at.a[i] = 4u * (unsigned)(row + first_row_of_thread() + i / 2 * 64 + i % 2 * 8);
  at.b = 4u * SCALED_X_ROWS;
#endif
  at.second_block = SCALE_BLOCK - tile.b % SCALE_BLOCK;
  return at;
}

static __device__ __forceinline__ float shared_scale(unsigned address) {
  float scale;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale) : "r"(address) : "memory");
  return scale;
}

// `atom`: address of the k atom's scales.
static __device__ __forceinline__ BlockScales block_scales(const BlockScalesAt& at, unsigned atom) {
  BlockScales scales;
#pragma unroll
  for (int i = 0; i < MMA_TILES * (SWAP_AB ? 1 : 2); ++i) scales.a[i] = shared_scale(atom + at.a[i]);
#pragma unroll
  for (int i = 0; i < (SWAP_AB ? BLOCK_N / 4 : WEIGHT_BLOCKS); ++i) scales.b[i] = shared_scale(atom + at.b + 4u * (unsigned)(SWAP_AB ? i / 2 * 8 + i % 2 : i));
  return scales;
}

// The scale of accumulator i of tile r.
static __device__ __forceinline__ float block_scale(const BlockScales& scales, const BlockScalesAt& at, int r, int i) {
#if SWAP_AB
  return scales.a[r] * scales.b[i / 4 * 2 + i % 2];
#else
  const float of_a = scales.a[r * 2 + i % 4 / 2];
  // Columns that are in one block wherever the tile begins: they share the choice. The first of them are always in the first block.
  const int column = i / 4 * 8 / W_ROWS_STEP * W_ROWS_STEP;
  float scale = of_a * scales.b[0];
#pragma unroll
  for (int block = 1; block < WEIGHT_BLOCKS; ++block) {
    if (column > 0 && column >= at.second_block + (block - 1) * SCALE_BLOCK) scale = of_a * scales.b[block];
  }
  return scale;
#endif
}
#else
#define STAGE_SCALES_BYTES 0
struct BlockScales {};
struct BlockScalesAt {};
#endif
