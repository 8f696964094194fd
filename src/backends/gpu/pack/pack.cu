// Packs a weight into tiles of 64 rows x 128 bytes (the layout tile64x128 of numbers/weight_layout.h), or unpacks it. A thread copies 16
// bytes of a tile; bytes past the weight's last row or past the end of k become zero. With SHUFFLED it has the layout aiter16x16, whose tiles
// are 16 rows x 16 bytes and whole. The host defines UNPACK and SHUFFLED (0, 1).

#include "backends/gpu/pack/pack_arguments.h"

#define TILE_ROWS 64
#define ATOM_BYTES 128
#define UNIT_BYTES 16
#define UNITS_PER_TILE (TILE_ROWS * ATOM_BYTES / UNIT_BYTES)

using gemmtune::gpu::PackArguments;

static __device__ inline void copy_unit(unsigned char* to, const unsigned char* from, int bytes, bool whole) {
  if (whole) {
    *(uint4*)to = *(const uint4*)from;
  } else {
    for (int i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

extern "C" __global__ void __launch_bounds__(256, 1) pack(const PackArguments a) {
  const bool aligned = a.row_bytes % UNIT_BYTES == 0 && (unsigned long long)a.rows % UNIT_BYTES == 0;
  for (long long unit = blockIdx.x * 256LL + threadIdx.x; unit < a.units; unit += gridDim.x * 256LL) {
#if SHUFFLED
    const long long row = unit / (16 * a.k_atoms) * 16 + unit % 16;
    const long long at = unit / 16 % a.k_atoms * UNIT_BYTES;
#else
    const long long tile = unit / UNITS_PER_TILE;
    const int within = (int)(unit % UNITS_PER_TILE) / (ATOM_BYTES / UNIT_BYTES);
    const int column = (int)(unit % (ATOM_BYTES / UNIT_BYTES)) ^ (within % 8);
    const long long row = tile / a.k_atoms * TILE_ROWS + within;
    const long long at = tile % a.k_atoms * ATOM_BYTES + column * UNIT_BYTES;
#endif
    const long long left = row < a.n ? a.row_bytes - at : 0;
    const int bytes = left <= 0 ? 0 : left < UNIT_BYTES ? (int)left : UNIT_BYTES;
    unsigned char* const in_tiles = a.tiles + unit * UNIT_BYTES;
    unsigned char* const in_rows = a.rows + row * a.row_bytes + at;
#if UNPACK
    copy_unit(in_rows, in_tiles, bytes, aligned && bytes == UNIT_BYTES);
#else
    if (bytes < UNIT_BYTES) *(uint4*)in_tiles = make_uint4(0, 0, 0, 0);
    copy_unit(in_tiles, in_rows, bytes, aligned && bytes == UNIT_BYTES);
#endif
  }
}
