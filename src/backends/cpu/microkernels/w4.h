// The fourth seam between portable code and the files of one instruction set: rows of x times rows of a weight of
// 4-bit elements as they lie in memory. Rules as in micro.h: plain structs and function pointers, no standard template.
//
// A line is one vector of a weight's row. Each of its 32-bit lanes holds eight elements, one after another along k.
// Packed x is [line][row of the tile][x_line_bytes], in the order in which decoding a line yields its elements.
#pragma once

namespace gemmtune::cpu {

/// How elements are stored; the index into the tables below.
enum class Nibble : unsigned char { e2m1, i4, i4_zero_points };
inline constexpr int nibble_types = 3;

inline constexpr long lane_elements = 8;
/// What scales are padded to at the end of a row, in elements of the scratch: a kernel reads a vector of them.
inline constexpr long w4_scale_padding = 16;

/// c[m · ldc + row] = the sum over k of x[m] · (w[row] − zero point) · scale, for all mr rows of x. Each lane of a line adds
/// its products, multiplies the sum by its scale and adds it to its total. The lanes' totals are added in one order
/// for all register tiles.
struct W4Args {
  const void* x;
  const void* w;        // the first of nr rows
  long w_stride;        // bytes from row to row
  long rows;            // that are there, 1 … nr
  long bytes;           // of a row; nothing behind them is read
  const float* scales;  // [nr][scale_stride], as long as whole lines need, w4_scale_padding more at the end
  const unsigned* zero_points;  // as the scales: zero point + 8 in each of four bytes; i4_zero_points only
  long scale_stride;
  long lane_shift;  // 2^lane_shift lanes share a scale
  float* c;
  long ldc;
  long prefetch;  // bytes ahead in each row
};
using W4Kernel = void (*)(const W4Args&);

/// One row of x into its place in packed x.
struct W4PackArgs {
  const void* x;  // elements of the compute type, zeros behind the last, whole lines of them
  long lines;
  void* out;        // of the first line
  long line_bytes;  // from line to line
};
using W4Pack = void (*)(const W4PackArgs&);

/// Bytes of a row of the weight's scales or zero points as W4Args has them. Writes whole vectors, behind the last what
/// bytes of 0 are.
struct W4BytesArgs {
  const void* from;
  long count;
  void* to;
};
using W4Widen = void (*)(const W4BytesArgs&);

struct W4Entry {
  int mr;
  int nr;
  W4Kernel run;
};

struct W4List {
  const W4Entry* entries = nullptr;
  int count = 0;
};

/// Rows of the weight that are decoded into AMX tiles at once, and rows of x in a panel of them.
inline constexpr long w4_tile_rows = 32;
inline constexpr long w4_panel_rows = 16;

/// How a chunk of 32 elements finds its table of bf16, 16 codes: the same one always, by a byte, or by a byte for each half of it.
enum class W4Tables : unsigned char { one, by_byte, by_half };
inline constexpr int w4_table_kinds = 3;

/// The sums of w4_tile_rows rows of a weight with panels of x over `chunks` chunks, by AMX tiles. c holds a tile of 16 × 16 for
/// each panel and half of the rows: [panel][half][row of w][row of x]. With scales, the sum of each scale_chunks chunks times its scale is
/// added to c; without, c is the chain along k.
struct W4TileArgs {
  const void* x;  // panels, W4Kernels::pack's order within a chunk
  long x_stride;  // bytes from panel to panel
  long x_panels;
  const void* w;
  long w_stride;
  long rows;   // that are there
  long bytes;  // of a row from here on; nothing behind them is read
  long chunks;
  const void* tables;
  const unsigned char* bytes_of_tables;  // of the first row; W4Tables::one: null
  long table_stride;                     // from row to row
  long table_count;                      // of a row from here on
  long table_chunks;                     // that share one
  const float* scales;                   // of the first row; null: none
  long scale_stride;
  long scale_chunks;
  float* c;
  bool accumulate;
  void* decoded;  // chunks · 2 KiB if there are more than two panels, else two chunks
  long prefetch;  // bytes ahead in each row
};
using W4TileKernel = void (*)(const W4TileArgs&);

/// out[m · ldc + row] = c · row_scales[row · scale_stride] · (factors[m] · factor) of one panel, `rows` rows of x.
struct W4TileSumsArgs {
  const float* c;  // [half][row of w][row of x]
  const float* factors;
  float factor;
  const float* row_scales;  // null: 1
  long scale_stride;
  long rows;
  float* out;
  long ldc;
};
using W4TileSums = void (*)(const W4TileSumsArgs&);

struct W4TileKernels {
  W4TileKernel run[w4_table_kinds];
  W4TileSums sums;
  const void* plain[nibble_types];  // the one table; of i4_zero_points one for each zero point
  const void* e4m3;                 // of e2m1 with such a scale, 256 tables
  const void* e8m0;                 // the same, of scales within E8m0Range
};

/// The kernels of one compute type.
struct W4Kernels {
  W4List tiles[nibble_types];  // empty if there are none
  W4Pack pack = nullptr;
  W4Widen widen_e4m3 = nullptr;
  W4Widen widen_e8m0 = nullptr;
  W4Widen widen_zero_points = nullptr;
  long line_elements = 0;
  long x_line_bytes = 0;
  float units[nibble_types] = {1, 1, 1};  // what sums are counted in
  const W4TileKernels* amx =
      nullptr;  // in place of `run` of the tiles; x is packed to chunks in a row, then to panels
};

/// Of one instruction set: x as float32 or, if bf16_compute of its IsaKernels, as bf16; and x of int8.
struct W4Set {
  W4Kernels floats;
  W4Kernels bytes;  // e2m1: none
};

#if defined(GEMMTUNE_X86_KERNELS)
extern const W4Set avx2_w4_kernels;
extern const W4Set avx512_w4_kernels;
extern const W4Set avx512bf16_w4_kernels;  // and VNNI
extern const W4Set amx_w4_kernels;
#endif

}  // namespace gemmtune::cpu
