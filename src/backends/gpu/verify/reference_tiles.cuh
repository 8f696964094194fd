// What float64 references share: tiles of 64 x 64 by blocks of 256 threads, each 4 x 4 of it, in k tiles of 16. Shared memory holds elements
// as float64, and of their magnitudes as float32: converting them in the inner loop would take longer than the multiply-adds.
#pragma once

#define TILE 64
#define BLOCK_K 16
// Pitches of shared memory: rows are aligned to 16 bytes and begin at different banks.
#define F64_PITCH (TILE + 2)
#define F32_PITCH (TILE + 4)

// Magnitudes of weights with scales are divided by this, those of x multiplied: 448 * 2^127 is beyond float32.
#define SCALED_WEIGHT_UNIT 1024

struct __align__(16) Tiles {
  double x[BLOCK_K][F64_PITCH];
  double w[BLOCK_K][F64_PITCH];
  float x_abs[BLOCK_K][F32_PITCH];  // with magnitudes only
  float w_abs[BLOCK_K][F32_PITCH];
};

// Of rows 4 down ... 4 down + 3 and of four columns.
struct TileSums {
  double values[4][4];
  float magnitudes[4][4];
};

// Column j of a thread in its tile: 2 across, 2 across + 1 and the same plus 32: a warp reads contiguous memory.
static __device__ inline int tile_column(int across, int j) { return 2 * across + j % 2 + 32 * (j / 2); }

template <bool with_magnitudes>
static __device__ inline void multiply_tiles(const Tiles& tiles, int across, int down, TileSums& sums) {
#pragma unroll 2
  for (int k = 0; k < BLOCK_K; ++k) {
    const double2 x_low = *(const double2*)&tiles.x[k][4 * down];
    const double2 x_high = *(const double2*)&tiles.x[k][4 * down + 2];
    const double2 w_low = *(const double2*)&tiles.w[k][2 * across];
    const double2 w_high = *(const double2*)&tiles.w[k][2 * across + 32];
    const double x[4] = {x_low.x, x_low.y, x_high.x, x_high.y};
    const double w[4] = {w_low.x, w_low.y, w_high.x, w_high.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums.values[i][j] = fma(x[i], w[j], sums.values[i][j]);
    }
    if constexpr (with_magnitudes) {
      const float4 x_size = *(const float4*)&tiles.x_abs[k][4 * down];
      const float2 w_size_low = *(const float2*)&tiles.w_abs[k][2 * across];
      const float2 w_size_high = *(const float2*)&tiles.w_abs[k][2 * across + 32];
      const float x_abs[4] = {x_size.x, x_size.y, x_size.z, x_size.w};
      const float w_abs[4] = {w_size_low.x, w_size_low.y, w_size_high.x, w_size_high.y};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums.magnitudes[i][j] = fmaf(x_abs[i], w_abs[j], sums.magnitudes[i][j]);
      }
    }
  }
}
