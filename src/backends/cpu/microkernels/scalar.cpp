// The portable level: any CPU.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_scalar.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_pack_columns.h"
#include "backends/cpu/microkernels/vector_row_panels.h"
#include "backends/cpu/microkernels/vector_sources.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

constexpr PanelEntry panels_f32[] = {{1, 1, panel_kernel<F32Source, 1, 1>},
                                     {2, 1, panel_kernel<F32Source, 2, 1>}};
constexpr PanelEntry panels_bf16[] = {{1, 1, panel_kernel<Bf16Source, 1, 1>},
                                      {2, 1, panel_kernel<Bf16Source, 2, 1>}};
constexpr PanelEntry panels_f16[] = {{1, 1, panel_kernel<F16Source, 1, 1>},
                                     {2, 1, panel_kernel<F16Source, 2, 1>}};
template <typename Source, typename Reader>
constexpr RowEntry rows[] = {{1, 4, row_kernel<Source, 1, 4>},
                             {2, 4, row_kernel<Source, 2, 4>},
                             {1, 16, row_panel_kernel<RowPanels<Reader, F32Source>, 1, 1>, true},
                             {2, 16, row_panel_kernel<RowPanels<Reader, F32Source>, 2, 1>, true}};
constexpr int row_count = 4;

}  // namespace

constexpr IsaKernels scalar_kernels = {
    .bf16_compute = false,
    .rows_read_x_panels = false,
    .panels = {{panels_f32, 2}, {panels_bf16, 2}, {panels_f16, 2}},
    .rows = {{rows<F32Source, ReadF32>, row_count},
             {rows<Bf16Source, ReadBf16>, row_count},
             {rows<F16Source, ReadF16>, row_count}},
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
