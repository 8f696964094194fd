// Epilogue of split-K within a cluster: the blocks send each other partial sums; each block reduces and stores a share of the tile's rows of
// y. Follows wgmma_epilogue.cuh.
#if SPLIT_K > 1
// Partial sums are stored as 8 x 8 tiles of y, 256 bytes each; the tiles of a row group (eight rows of y) are contiguous. Rows within a
// tile are swizzled by the tile's index, so that the same row of four adjacent tiles lies in different banks.
#define PARTIAL_TILE_BYTES 256
#define ROW_GROUP_BYTES (TILE_COLUMNS / 8 * PARTIAL_TILE_BYTES)
#define TILE_PARTIALS_BYTES (ROW_GROUPS * ROW_GROUP_BYTES)

static __device__ inline int first_row_group(int split) { return (split * ROW_GROUPS + SPLIT_K - 1) / SPLIT_K; }
#define MAX_ROW_GROUPS ((ROW_GROUPS + SPLIT_K - 1) / SPLIT_K)  // that a block reduces

// Offset at which split `from` stores partial sums in the shared memory of split `to`: after that block's own sums.
static __device__ inline unsigned partials_offset(int from, int to) {
  return TILE_PARTIALS_BYTES + (unsigned)((from < to ? from : from - 1) * MAX_ROW_GROUPS) * ROW_GROUP_BYTES;
}

// Writes this warp's accumulators to the block's shared memory.
static __device__ __forceinline__ void store_partials(const Accumulators& d, const SharedLayout& smem, int row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < MMA_TILES; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = (row + r * 64) / 8 + (int)(threadIdx.x % 128) / 32 * 2 + half;
#pragma unroll
      for (int j = 0; j < BLOCK_N / 8; ++j) {
        const int tile_column = SWAP_AB ? i : j;
        const unsigned to = smem.staging + (unsigned)((SWAP_AB ? j : i) * ROW_GROUP_BYTES + tile_column * PARTIAL_TILE_BYTES);
        const float first = d[r][4 * j + 2 * half];
        const float second = d[r][4 * j + 2 * half + 1];
        const unsigned swizzle = (unsigned)(tile_column % 8 * 32);
        if (SWAP_AB) {
          const unsigned offset = (unsigned)(lane % 4 * 64 + lane / 4 * 4);
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (offset ^ swizzle)), "f"(first) : "memory");
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (offset + 32 ^ swizzle)), "f"(second) : "memory");
        } else {
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + ((unsigned)(lane * 8) ^ swizzle)), "f"(first), "f"(second) : "memory");
        }
      }
    }
  }
  fence_async_proxy();
}

// Sends each other block the row groups that it reduces, in one bulk copy; one warp for each block.
static __device__ __forceinline__ void send_partials(const WgmmaArguments& a, const SharedLayout& smem, const BlockWork& work) {
  for (int owner = (int)threadIdx.x / 32; owner < SPLIT_K; owner += CONSUMER_THREADS / 32) {
    if (owner == work.split || !elect_one()) continue;
    const int block = (owner << (LOG2_CLUSTER_M + LOG2_CLUSTER_N)) + work.rank_m + (work.rank_n << LOG2_CLUSTER_M);
    const int first = first_row_group(owner);
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     remote_address(smem.staging + partials_offset(work.split, owner), block)),
                 "r"(smem.staging + (unsigned)(first * ROW_GROUP_BYTES)), "r"((unsigned)((first_row_group(owner + 1) - first) * ROW_GROUP_BYTES)),
                 "r"(remote_address(smem.partials_barrier, block))
                 : "memory");
  }
  __syncwarp();
}

// Bytes that this block receives.
static __device__ inline unsigned received_bytes(int split) { return (unsigned)((SPLIT_K - 1) * (first_row_group(split + 1) - first_row_group(split))) * ROW_GROUP_BYTES; }

static __device__ __forceinline__ void load_shared_float4(unsigned from, float (&v)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}

struct alignas(4 * sizeof(output)) FourOutputs {
  output value[4];
};

// Reduces the partial sums in the order of the splits and stores them, four adjacent elements for each thread.
static __device__ __forceinline__ void reduce_and_store(const WgmmaArguments& a, const SharedLayout& smem, const Tile& tile, int split, float scale) {
  const int first = first_row_group(split);
  const int rows = (first_row_group(split + 1) - first) * 8;
  const int m = (SWAP_AB ? tile.b : tile.a) + first * 8;
  const int n = (SWAP_AB ? tile.a : tile.b);
  output* const y = y_at(a, tile.batch) + m * a.ldy + n;
  const bool aligned = (a.ldy % 4 == 0) && (((unsigned long long)y_at(a, tile.batch)) % sizeof(FourOutputs) == 0);
  unsigned from[SPLIT_K];
#pragma unroll
  for (int other = 0; other < SPLIT_K; ++other)
    from[other] = smem.staging + (other == split ? (unsigned)(first * ROW_GROUP_BYTES) : partials_offset(other, split));
#pragma unroll 2
  for (unsigned item = threadIdx.x; item < (unsigned)rows * (TILE_COLUMNS / 4); item += CONSUMER_THREADS) {
    const unsigned local = item / (TILE_COLUMNS / 4);
    const unsigned column = item % (TILE_COLUMNS / 4) * 4;
    const unsigned tile_column = column / 8;
    const unsigned offset = local / 8 * ROW_GROUP_BYTES + tile_column * PARTIAL_TILE_BYTES + (local % 8 ^ tile_column % 8) * 32 + column % 8 * 4;
    float partials[SPLIT_K][4];  // all loads are in flight at once
#pragma unroll
    for (int other = 0; other < SPLIT_K; ++other) load_shared_float4(from[other] + offset, partials[other]);
    FourOutputs sums;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = partials[0][i];
#pragma unroll
      for (int other = 1; other < SPLIT_K; ++other) sum += partials[other][i];
      sums.value[i] = round_output(epilogue_value(sum, scale, bias_at(a, n + (int)column + i)));
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
