#include "support/emulated_tiles.h"

#include "support/emulated_amx_tiles.h"

// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_scalar.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/tile_kernels.h"
#include "backends/cpu/microkernels/vector_pack_columns.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

/// Panels of bytes, element by element: 16 columns of four k each in a line.
void pack_panel_of_bytes(const PackPanelArgs& args) {
  char* out = static_cast<char*>(args.out);
  for (long k = 0; k < args.chunks * 32; ++k)
    for (long column = 0; column < 16; ++column) {
      const bool there = column < args.count && k < args.k;
      out[k / 4 * 64 + column * 4 + k % 4] =
          there ? static_cast<const char*>(args.rows)[column * args.stride + k] : '\0';
    }
}

void begin() { emulated_tiles.configured = true; }
void end() { emulated_tiles.configured = false; }

using Tiles = TileTables<EmulatedTiles>;

const IsaKernels emulated = {
    .bf16_compute = true,
    .rows_read_x_panels = true,
    .panels = {{nullptr, 0},
               {Tiles::panels, Tiles::panel_count},
               {nullptr, 0},
               {Tiles::byte_panels, Tiles::panel_count}},
    .rows = {{nullptr, 0}, {Tiles::rows, Tiles::row_count}, {nullptr, 0}},
    .pack_x = {nullptr, pack_x<ReadPairs>, nullptr, pack_x_tile_bytes},
    .pack_panel = {nullptr, pack_panel<ReadPairs>, nullptr, pack_panel_of_bytes},
    .pack_x_columns = {nullptr, pack_x_columns<ReadPairs>, nullptr},
    .pack_panel_columns = {nullptr, pack_panel_columns<ReadPairs>, nullptr},
    .store = {store_tile<WriteF32>, store_tile<WriteBf16>, store_tile<WriteF16>},
    .begin = begin,
    .end = end,
    .scaled_panels = {Tiles::scaled_panels, Tiles::scaled_panel_count},
};

}  // namespace

thread_local TileState emulated_tiles;

KernelSet emulated_amx_set() {
  KernelSet set = kernel_set(detect_isa(Isa::avx512bf16));
  set.level = Isa::amx;
  set.of[static_cast<std::size_t>(Isa::amx)] = &emulated;
  set.w4[static_cast<std::size_t>(Isa::amx)] = nullptr;
#if defined(GEMMTUNE_EMULATED_STREAM)
  set.w4[static_cast<std::size_t>(Isa::amx)] = &emulated_w4_kernels;
  if (has_byte_permutes()) set.streams[static_cast<std::size_t>(Isa::amx)] = &emulated_stream_kernels;
#endif
  return set;
}

}  // namespace gemmtune::cpu
