// AVX2, FMA, F16C: 16 registers.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx2.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_pack_columns.h"
#include "backends/cpu/microkernels/vector_row_panels.h"
#include "backends/cpu/microkernels/vector_sources.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

template <typename Source, typename Reader>
struct Tables {
  using Panels = RowPanels<Reader, F32Source>;
  static constexpr PanelEntry panels[] = {
      {1, 1, panel_kernel<Source, 1, 1>}, {1, 2, panel_kernel<Source, 1, 2>},
      {2, 1, panel_kernel<Source, 2, 1>}, {2, 2, panel_kernel<Source, 2, 2>},
      {4, 1, panel_kernel<Source, 4, 1>}, {6, 1, panel_kernel<Source, 6, 1>}};
  static constexpr RowEntry rows[] = {{1, 1, row_kernel<Source, 1, 1, 4>},
                                      {2, 1, row_kernel<Source, 2, 1, 4>},
                                      {4, 1, row_kernel<Source, 4, 1, 2>},
                                      {8, 1, row_kernel<Source, 8, 1>},
                                      {1, 4, row_kernel<Source, 1, 4>},
                                      {1, 8, row_kernel<Source, 1, 8>},
                                      {2, 4, row_kernel<Source, 2, 4>},
                                      {4, 2, row_kernel<Source, 4, 2>},
                                      {2, 2, row_kernel<Source, 2, 2>},
                                      {6, 2, row_kernel<Source, 6, 2>},
                                      {1, 16, row_panel_kernel<Panels, 1, 1>, true},
                                      {2, 16, row_panel_kernel<Panels, 2, 1>, true},
                                      {4, 16, row_panel_kernel<Panels, 4, 1>, true},
                                      {6, 16, row_panel_kernel<Panels, 6, 1>, true}};
  static constexpr int row_count = 14;
};

using F32 = Tables<F32Source, ReadF32>;
using Bf16 = Tables<Bf16Source, ReadBf16>;
using F16 = Tables<F16Source, ReadF16>;

}  // namespace

constexpr IsaKernels avx2_kernels = {
    .bf16_compute = false,
    .rows_read_x_panels = false,
    .panels = {{F32::panels, 6}, {Bf16::panels, 6}, {F16::panels, 6}},
    .rows = {{F32::rows, F32::row_count}, {Bf16::rows, Bf16::row_count}, {F16::rows, F16::row_count}},
    .pack_x = {pack_x<ReadF32>, pack_x<ReadBf16>, pack_x<ReadF16>},
    .pack_panel = {pack_panel<ReadF32>, pack_panel<ReadBf16>, pack_panel<ReadF16>},
    .pack_x_columns = {pack_x_columns<ReadF32>, pack_x_columns<ReadBf16>, pack_x_columns<ReadF16>},
    .pack_panel_columns = {pack_panel_columns<ReadF32>, pack_panel_columns<ReadBf16>,
                           pack_panel_columns<ReadF16>},
    .store = {store_tile<WriteF32>, store_tile<WriteBf16>, store_tile<WriteF16>},
    .begin = nullptr,
    .end = nullptr,
};

}  // namespace gemmtune::cpu
