// A weight from rows into tiles of 64 rows x 128 bytes (layout tile64x128, as numbers/weight_layout.h has it), or, BACK, from tiles
// into rows. A thread has 16 bytes of a tile; those that lie past the weight's last row or past its end of k become zero.
#define TILE_ROWS 64
#define PIECE_BYTES 128
#define UNIT_BYTES 16
#define TILE_UNITS (TILE_ROWS * PIECE_BYTES / UNIT_BYTES)

struct Arguments {
  unsigned char* rows;
  unsigned char* tiles;
  long long n;          // rows
  long long row_bytes;  // of k; any number: then units go byte by byte
  long long pieces;     // tiles along k
  long long units;      // of all tiles
};

static __device__ inline void copy_unit(unsigned char* to, const unsigned char* from, int bytes, bool whole) {
  if (whole) {
    *(uint4*)to = *(const uint4*)from;
  } else {
    for (int i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

extern "C" __global__ void __launch_bounds__(256, 1) pack(const Arguments a) {
  const bool aligned = a.row_bytes % UNIT_BYTES == 0 && (unsigned long long)a.rows % UNIT_BYTES == 0;
  for (long long unit = blockIdx.x * 256LL + threadIdx.x; unit < a.units; unit += gridDim.x * 256LL) {
    const long long tile = unit / TILE_UNITS;
    const int within = (int)(unit % TILE_UNITS) / (PIECE_BYTES / UNIT_BYTES);
    const int column = (int)(unit % (PIECE_BYTES / UNIT_BYTES)) ^ (within % 8);
    const long long row = tile / a.pieces * TILE_ROWS + within;
    const long long at = tile % a.pieces * PIECE_BYTES + column * UNIT_BYTES;
    const long long left = row < a.n ? a.row_bytes - at : 0;
    const int bytes = left <= 0 ? 0 : left < UNIT_BYTES ? (int)left : UNIT_BYTES;
    unsigned char* const in_tiles = a.tiles + unit * UNIT_BYTES;
    unsigned char* const in_rows = a.rows + row * a.row_bytes + at;
#if BACK
    copy_unit(in_rows, in_tiles, bytes, aligned && bytes == UNIT_BYTES);
#else
    if (bytes < UNIT_BYTES) *(uint4*)in_tiles = make_uint4(0, 0, 0, 0);
    copy_unit(in_tiles, in_rows, bytes, aligned && bytes == UNIT_BYTES);
#endif
  }
}
