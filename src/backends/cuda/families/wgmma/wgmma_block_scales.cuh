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

// Where the lane's scale `i` of a k atom is; its place in the atom is i * 32 + lane.
static __device__ __forceinline__ const scale_bits* scale_of_lane(const WgmmaArguments& a, const Tile& tile, int k_atom, int i) {
  const int columns = (int)a.scales.x_row_step;
  const int k = at_most(k_atom, columns - 1);  // the last stage may have an atom past the end of k
  const int at = i * 32 + (int)threadIdx.x % 32;
  const bool of_x = at < SCALED_X_ROWS;
  const int row = of_x ? at_most((SWAP_AB ? tile.b : tile.a) + at, a.m - 1)
                       : at_most((SWAP_AB ? tile.a : tile.b) / SCALE_BLOCK + at - SCALED_X_ROWS, (a.n - 1) / SCALE_BLOCK);
  return (const scale_bits*)(of_x ? a.scales.x : a.scales.w) + (long long)row * columns + k;
}

// Brings the scales of a k tile to shared memory, when its place there is free. All lanes of the warp; float32 scales are copied asynchronously,
// e8m0 ones are converted.
static __device__ __forceinline__ void load_stage_scales(const WgmmaArguments& a, const Tile& tile, int k_tile, unsigned to, unsigned empty_barrier, unsigned phase,
                                                         unsigned full_barrier) {
  const int lane = (int)threadIdx.x % 32;
#if E8M0
  float scales[K_ATOMS][LANE_SCALES];
#pragma unroll
  for (int atom = 0; atom < K_ATOMS; ++atom) {
#pragma unroll
    for (int i = 0; i < LANE_SCALES; ++i) scales[atom][i] = load_scale(scale_of_lane(a, tile, k_tile * K_ATOMS + atom, i), 0);
  }
#endif
  barrier_wait(empty_barrier, phase);
#pragma unroll
  for (int atom = 0; atom < K_ATOMS; ++atom) {
#pragma unroll
    for (int i = 0; i < LANE_SCALES; ++i) {
      if (i * 32 + lane >= ATOM_SCALES) continue;
      const unsigned place = to + (unsigned)(atom * ATOM_SCALES + i * 32 + lane) * 4u;
#if E8M0
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(place), "f"(scales[atom][i]) : "memory");
#else
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(scale_of_lane(a, tile, k_tile * K_ATOMS + atom, i)) : "memory");
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
  for (int index = work.first_tile; index < a.tiles; index += work.tile_stride) {
    const Tile tile = tile_at(a, index, work.rank_m, work.rank_n);
#pragma unroll 1
    for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
      load_stage_scales(a, tile, k_tile, stage_scales(a, smem, stage, phase ^ 1u), smem.empty_barriers + 8u * (unsigned)stage, phase,
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
  float scale = of_a * scales.b[0];
#pragma unroll
  for (int block = 1; block < WEIGHT_BLOCKS; ++block) {
    if (i / 8 * 16 >= at.second_block + (block - 1) * SCALE_BLOCK) scale = of_a * scales.b[block];
  }
  return scale;
#endif
}
#else
#define STAGE_SCALES_BYTES 0
struct BlockScales {};
struct BlockScalesAt {};
#endif
