// The seam between portable code and the files that are compiled for one instruction set: plain structs and
// function pointers. Nothing here emits a symbol, and no standard template is used (such a symbol would be
// weak, and the linker could hand a baseline machine the copy that was compiled for another one).
//
// Formats: K is cut into chunks of 32 elements, zero-padded at the end. Packed x is [chunk][mr][32] in the
// compute type, a weight panel is panel16 (numbers/weight_layout.h).
#pragma once

namespace gemmtune::cpu {

/// Storage types; also the index into the tables below. int8 has panels only, with sums in int32: weights are
/// offset by 128 in registers, and sums begin at what that adds too much.
enum class Element : unsigned char { f32, bf16, f16, i8 };
inline constexpr int element_types = 4;

inline constexpr long chunk_elements = 32;
inline constexpr long panel_columns = 16;

/// c[mr][16 · panels] (+)= packed x · panels. c holds float32, int32 for int8.
struct PanelArgs {
  const void* x;  // [chunks][mr][32]
  const void* w;  // the first panel at its first chunk
  long w_stride;  // bytes from panel to panel
  long chunks;
  float* c;  // dense tile
  bool accumulate;
  long prefetch;          // bytes ahead of the weight line being read; 0: nothing ahead
  long prefetch_x;        // chunks of x ahead (AMX tiles only)
  long fetched_from = 0;  // AMX tiles: of the 16 lines of a tile of weights, these are fetched
  long fetched_to = 16;
  const int* start = nullptr;  // int8: [mr], where sums begin that are not added to
};
using PanelKernel = void (*)(const PanelArgs&);

/// As above of bf16, but every sum over 4 chunks is scaled before it is added: sums of row m and column n in
/// block b by row_scales[m · row_stride + b] · column_scales[b · column_stride + n].
struct ScaledPanelArgs {
  PanelArgs panel;  // chunks of any number of blocks; the last one may be cut short
  const float* row_scales;
  long row_stride;
  const float* column_scales;
  long column_stride;
};
using ScaledPanelKernel = void (*)(const ScaledPanelArgs&);
inline constexpr long scaled_chunks = 4;

/// c[m · ldc + row] (+)= packed x[m] · w[row] for rows of a plain weight; m runs over all mr, row over `rows`
/// (at most nr for AMX tiles). Nothing past these rows of c is written, but where AMX tiles are to go on: then c, padded to whole tiles, holds
/// what only a call that accumulates reads.
struct RowArgs {
  const void* x;  // [chunks][mr][32]; where rows_read_x_panels: mr / 16 panels of x, x_stride bytes apart
  long x_stride;
  const void* w;
  long w_stride;  // bytes from row to row
  long rows;
  long k;  // elements of each row; nothing beyond them is read
  float* c;
  long ldc;
  bool accumulate;
  bool goes_on = false;  // a call that accumulates follows
  long prefetch;         // bytes ahead in each row
  /// AMX tiles: of these rows alone, as far as they are in front of `rows` rounded up to a tile.
  long fetched_from = 0;
  long fetched_to = 1 << 30;
};
using RowKernel = void (*)(const RowArgs&);

/// `rows` rows of x, k elements each, into [chunks][mr][32]; missing rows and elements become zero.
struct PackXArgs {
  const void* x;
  long ldx;  // bytes from row to row
  long rows;
  long mr;
  long k;
  long chunks;
  void* out;
  int* start = nullptr;  // int8: [mr], added to: −128 · the sum of each row
  long readable = 0;  // pack_x_columns: rows of x from the first one on, ≥ rows; what lies there may be read
};
using PackX = void (*)(const PackXArgs&);

/// Up to 16 rows of a row-major matrix, k elements each, into one panel of the compute type.
struct PackPanelArgs {
  const void* rows;
  long stride;  // bytes from row to row
  long count;   // rows, ≤ 16
  long k;
  long chunks;
  void* out;
};
using PackPanel = void (*)(const PackPanelArgs&);

/// Tile + bias, rounded to y's type. Writes rows × columns elements of y and nothing else.
struct StoreArgs {
  const float* tile;
  long ldt;  // elements
  long rows;
  long columns;
  const void* bias = nullptr;  // of y's type, `columns` elements; may be null
  void* y = nullptr;
  long ldy = 0;  // elements
};
using Store = void (*)(const StoreArgs&);

struct PanelEntry {
  int mr;
  int panels;
  PanelKernel run;
};
struct RowEntry {
  int mr;
  int nr;
  RowKernel run;
  /// Each sum is the chain along k that the panel kernels of this instruction set have, and goes on where it accumulates.
  bool sums_as_panels = false;
};
struct PanelList {
  const PanelEntry* entries;
  int count;
};
struct ScaledPanelEntry {
  int mr;
  int panels;
  ScaledPanelKernel run;
};
struct ScaledPanelList {
  const ScaledPanelEntry* entries;
  int count;
};
struct RowList {
  const RowEntry* entries;
  int count;
};

/// What one instruction set offers, for one compute type: float32, or bf16 pairs with float32 accumulators.
/// Indexed by storage type; an empty entry means that the set does not read this type.
struct IsaKernels {
  bool bf16_compute;
  bool rows_read_x_panels;
  PanelList panels[element_types];  // weight panels of this storage type
  RowList rows[element_types];      // plain weight rows of this storage type
  PackX pack_x[element_types];
  PackPanel pack_panel[element_types];
  // The same of column-major matrices, which lie in memory as [k, rows]: ldx and stride are bytes from one
  // element of k to the next. Not of int8.
  PackX pack_x_columns[element_types];
  PackPanel pack_panel_columns[element_types];
  Store store[element_types];
  void (*begin)();  // on each thread before panel and row kernels of a call; null where nothing is to be done
  void (*end)();
  ScaledPanelList scaled_panels = {nullptr, 0};  // of bf16; empty where scaling is left to others
};

extern const IsaKernels scalar_kernels;
#if defined(GEMMTUNE_X86_KERNELS)
extern const IsaKernels avx2_kernels;
extern const IsaKernels avx512_kernels;
extern const IsaKernels avx512bf16_kernels;
extern const IsaKernels amx_kernels;
#endif

}  // namespace gemmtune::cpu
