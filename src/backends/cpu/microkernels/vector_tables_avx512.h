// The register tiles of the 32-register instruction sets, over a source.
#pragma once

#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_row_panels.h"

namespace gemmtune::cpu {
namespace {

/// Tiles for both families.
template <typename Source>
struct WideTables {
  static constexpr PanelEntry panels[] = {
      {1, 1, panel_kernel<Source, 1, 1>},   {1, 2, panel_kernel<Source, 1, 2>},
      {1, 3, panel_kernel<Source, 1, 3>},   {1, 4, panel_kernel<Source, 1, 4>},
      {2, 1, panel_kernel<Source, 2, 1>},   {2, 2, panel_kernel<Source, 2, 2>},
      {2, 3, panel_kernel<Source, 2, 3>},   {2, 4, panel_kernel<Source, 2, 4>},
      {4, 1, panel_kernel<Source, 4, 1>},   {4, 2, panel_kernel<Source, 4, 2>},
      {4, 3, panel_kernel<Source, 4, 3>},   {4, 4, panel_kernel<Source, 4, 4>},
      {6, 1, panel_kernel<Source, 6, 1>},   {6, 2, panel_kernel<Source, 6, 2>},
      {6, 3, panel_kernel<Source, 6, 3>},   {6, 4, panel_kernel<Source, 6, 4>},
      {8, 1, panel_kernel<Source, 8, 1>},   {8, 2, panel_kernel<Source, 8, 2>},
      {8, 3, panel_kernel<Source, 8, 3>},   {12, 1, panel_kernel<Source, 12, 1>},
      {12, 2, panel_kernel<Source, 12, 2>}, {14, 1, panel_kernel<Source, 14, 1>},
      {14, 2, panel_kernel<Source, 14, 2>}, {16, 1, panel_kernel<Source, 16, 1>}};
  static constexpr int panel_count = 24;
};

/// Tiles for weights that are widened in registers (skinny only).
template <typename Source>
struct WideningTables {
  static constexpr PanelEntry panels[] = {
      {1, 1, panel_kernel<Source, 1, 1>},  {1, 2, panel_kernel<Source, 1, 2>},
      {2, 1, panel_kernel<Source, 2, 1>},  {2, 2, panel_kernel<Source, 2, 2>},
      {4, 1, panel_kernel<Source, 4, 1>},  {4, 2, panel_kernel<Source, 4, 2>},
      {8, 1, panel_kernel<Source, 8, 1>},  {8, 2, panel_kernel<Source, 8, 2>},
      {16, 1, panel_kernel<Source, 16, 1>}};
  static constexpr int panel_count = 9;
};

/// Tiles of rows as they lie. One row at a time (nr 1) follows memory, which machines fetch ahead best; 16 and more are
/// multiplied as panels.
template <typename Source, typename Panels>
struct RowTables {
  static constexpr RowEntry rows[] = {{1, 1, row_kernel<Source, 1, 1, 4>},
                                      {2, 1, row_kernel<Source, 2, 1, 4>},
                                      {4, 1, row_kernel<Source, 4, 1, 4>},
                                      {6, 1, row_kernel<Source, 6, 1, 2>},
                                      {8, 1, row_kernel<Source, 8, 1, 2>},
                                      {12, 1, row_kernel<Source, 12, 1>},
                                      {14, 1, row_kernel<Source, 14, 1>},
                                      {16, 1, row_kernel<Source, 16, 1>},
                                      {1, 4, row_kernel<Source, 1, 4>},
                                      {1, 8, row_kernel<Source, 1, 8>},
                                      {2, 4, row_kernel<Source, 2, 4>},
                                      {2, 8, row_kernel<Source, 2, 8>},
                                      {4, 4, row_kernel<Source, 4, 4>},
                                      {6, 4, row_kernel<Source, 6, 4>},
                                      {4, 2, row_kernel<Source, 4, 2>},
                                      {8, 2, row_kernel<Source, 8, 2>},
                                      {1, 16, row_panel_kernel<Panels, 1, 1>, true},
                                      {2, 16, row_panel_kernel<Panels, 2, 1>, true},
                                      {4, 16, row_panel_kernel<Panels, 4, 1>, true},
                                      {6, 16, row_panel_kernel<Panels, 6, 1>, true},
                                      {8, 16, row_panel_kernel<Panels, 8, 1>, true},
                                      {12, 16, row_panel_kernel<Panels, 12, 1>, true},
                                      {14, 16, row_panel_kernel<Panels, 14, 1>, true},
                                      {16, 16, row_panel_kernel<Panels, 16, 1>, true},
                                      {1, 32, row_panel_kernel<Panels, 1, 2>, true},
                                      {2, 32, row_panel_kernel<Panels, 2, 2>, true},
                                      {8, 32, row_panel_kernel<Panels, 8, 2>, true}};
  static constexpr int row_count = 27;
};

}  // namespace
}  // namespace gemmtune::cpu
