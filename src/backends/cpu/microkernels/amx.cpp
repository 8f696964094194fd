// AMX tiles with bf16 and int8. The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/tile_kernels.h"
#include "backends/cpu/microkernels/amx_tile.h"
#include "backends/cpu/microkernels/vector_pack_columns.h"
#include "backends/cpu/microkernels/vector_bytes.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

/// Palette 1 (Intel SDM volume 1, 18.3): byte 0 the palette, 16-bit row bytes from byte 16, row counts from
/// byte 48.
struct alignas(64) Palette {
  unsigned char palette = 1;
  unsigned char start_row = 0;
  unsigned char reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void begin_tiles() {
  const Palette palette;
  __asm__ volatile("ldtilecfg %0" ::"m"(palette) : "memory");
}

/// Released tiles spare the system from saving 8 KiB at each context switch.
void end_tiles() { __asm__ volatile("tilerelease" ::: "memory"); }

using Tiles = TileTables<AmxTiles>;

}  // namespace

constexpr IsaKernels amx_kernels = {
    .bf16_compute = true,
    .rows_read_x_panels = true,
    .panels = {{nullptr, 0},
               {Tiles::panels, Tiles::panel_count},
               {nullptr, 0},
               {Tiles::byte_panels, Tiles::panel_count}},
    .rows = {{nullptr, 0}, {Tiles::rows, Tiles::row_count}, {nullptr, 0}},
    .pack_x = {nullptr, pack_x<ReadPairs>, nullptr, pack_x_tile_bytes},
    .pack_panel = {nullptr, pack_panel<ReadPairs>, nullptr, pack_panel_bytes},
    .pack_x_columns = {nullptr, pack_x_columns<ReadPairs>, nullptr},
    .pack_panel_columns = {nullptr, pack_panel_columns<ReadPairs>, nullptr},
    .store = {store_tile<WriteF32>, store_tile<WriteBf16>, store_tile<WriteF16>},
    .begin = begin_tiles,
    .end = end_tiles,
    .scaled_panels = {Tiles::scaled_panels, Tiles::scaled_panel_count},
};

}  // namespace gemmtune::cpu
