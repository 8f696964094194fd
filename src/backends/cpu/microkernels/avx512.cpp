// AVX-512 F, BW, VL, DQ with float32 arithmetic.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_pack_columns.h"
#include "backends/cpu/microkernels/vector_sources.h"
#include "backends/cpu/microkernels/vector_tables_avx512.h"
// clang-format on

namespace gemmtune::cpu {
namespace {
using F32 = WideTables<F32Source>;
using Bf16 = WideningTables<Bf16Source>;
using F16 = WideningTables<F16Source>;
// Weights are widened while 16 rows become a chunk of a panel.
using F32Rows = RowTables<F32Source, RowPanels<ReadF32, F32Source>>;
using Bf16Rows = RowTables<Bf16Source, RowPanels<ReadBf16, F32Source>>;
using F16Rows = RowTables<F16Source, RowPanels<ReadF16, F32Source>>;
}  // namespace

constexpr IsaKernels avx512_kernels = {
    .bf16_compute = false,
    .rows_read_x_panels = false,
    .panels = {{F32::panels, F32::panel_count},
               {Bf16::panels, Bf16::panel_count},
               {F16::panels, F16::panel_count}},
    .rows = {{F32Rows::rows, F32Rows::row_count},
             {Bf16Rows::rows, Bf16Rows::row_count},
             {F16Rows::rows, F16Rows::row_count}},
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
