// AVX-512 with BF16 and VNNI: vdpbf16ps multiplies pairs of bf16 and adds both products to a float32 lane,
// vpdpbusd multiplies fours of int8 and adds the products to an int32 lane.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_pack_columns.h"
#include "backends/cpu/microkernels/vector_bytes.h"
#include "backends/cpu/microkernels/vector_tables_avx512.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

/// Interface of vector_sources.h; x stays bf16, one broadcast covers the pair.
struct PairSource {
  using V = __m512i;
  static constexpr int steps = 1, k_per_line = 2, line_bytes = 64, x_bytes = 2, w_bytes = 2,
                       row_elements = 32;
  static void load_line(const char* line, int, V out[steps]) { out[0] = load_as<__m512i>(line); }
  static V broadcast_x(const char* x) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  static V load_row(const char* w) { return load_as<__m512i>(w); }
  static V load_x(const char* x) { return load_as<__m512i>(x); }
  static Vec multiply(V x, V w, Vec sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }
};

using Wide = WideTables<PairSource>;
using Rows = RowTables<PairSource, RowPanels<ReadPairs, PairSource>>;

constexpr PanelEntry byte_panels[] = {
    {1, 1, panel_kernel<ByteSource, 1, 1>},   {1, 2, panel_kernel<ByteSource, 1, 2>},
    {2, 1, panel_kernel<ByteSource, 2, 1>},   {2, 2, panel_kernel<ByteSource, 2, 2>},
    {4, 1, panel_kernel<ByteSource, 4, 1>},   {4, 2, panel_kernel<ByteSource, 4, 2>},
    {6, 1, panel_kernel<ByteSource, 6, 1>},   {6, 2, panel_kernel<ByteSource, 6, 2>},
    {8, 1, panel_kernel<ByteSource, 8, 1>},   {8, 2, panel_kernel<ByteSource, 8, 2>},
    {12, 1, panel_kernel<ByteSource, 12, 1>}, {12, 2, panel_kernel<ByteSource, 12, 2>},
    {14, 1, panel_kernel<ByteSource, 14, 1>}, {14, 2, panel_kernel<ByteSource, 14, 2>},
    {16, 1, panel_kernel<ByteSource, 16, 1>}};
constexpr int byte_panel_count = 15;

}  // namespace

constexpr IsaKernels avx512bf16_kernels = {
    .bf16_compute = true,
    .rows_read_x_panels = false,
    .panels = {{nullptr, 0},
               {Wide::panels, Wide::panel_count},
               {nullptr, 0},
               {byte_panels, byte_panel_count}},
    .rows = {{nullptr, 0}, {Rows::rows, Rows::row_count}, {nullptr, 0}},
    .pack_x = {nullptr, pack_x<ReadPairs>, nullptr, pack_x_bytes},
    .pack_panel = {nullptr, pack_panel<ReadPairs>, nullptr, pack_panel_bytes},
    .pack_x_columns = {nullptr, pack_x_columns<ReadPairs>, nullptr},
    .pack_panel_columns = {nullptr, pack_panel_columns<ReadPairs>, nullptr},
    .store = {store_tile<WriteF32>, store_tile<WriteBf16>, store_tile<WriteF16>},
    .begin = nullptr,
    .end = nullptr,
};

}  // namespace gemmtune::cpu
