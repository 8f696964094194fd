#include "support/emulated_tiles.h"

#include <cstring>
#include <stdexcept>

// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/kernels/isa/vector_scalar.h"
#include "backends/cpu/kernels/isa/tile_kernels.h"
#include "backends/cpu/kernels/isa/vector_pack.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

struct TileState {
  bool configured = false;
  unsigned char tiles[8][16][64];
};
thread_local TileState state;

/// After Intel's description of each instruction (Instruction Set Extensions reference, chapter 3).
struct EmulatedTiles {
  static void demand_configuration() {
    if (!state.configured) throw std::logic_error("a tile instruction without a palette");
  }
  template <int tile>
  static void zero() {
    demand_configuration();
    std::memset(state.tiles[tile], 0, sizeof(state.tiles[tile]));
  }
  template <int tile>
  static void load(const void* from, long stride) {
    demand_configuration();
    for (long row = 0; row < 16; ++row)
      std::memcpy(state.tiles[tile][row], static_cast<const char*>(from) + row * stride, 64);
  }
  template <int tile>
  static void store(void* to, long stride) {
    demand_configuration();
    for (long row = 0; row < 16; ++row)
      std::memcpy(static_cast<char*>(to) + row * stride, state.tiles[tile][row], 64);
  }
  static float bf16(int tile, int row, int index) {
    unsigned short bits = 0;
    std::memcpy(&bits, &state.tiles[tile][row][index * 2], 2);
    return widen_bf16(bits);
  }
  /// Even and odd elements are summed apart; the two sums meet before they are added to the tile.
  template <int c, int a, int b>
  static void multiply() {
    demand_configuration();
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        float even = 0;
        float odd = 0;
        for (int k = 0; k < 16; ++k) {
          even += bf16(a, m, 2 * k) * bf16(b, k, 2 * n);
          odd += bf16(a, m, 2 * k + 1) * bf16(b, k, 2 * n + 1);
        }
        float sum = 0;
        std::memcpy(&sum, &state.tiles[c][m][n * 4], 4);
        sum += even + odd;
        std::memcpy(&state.tiles[c][m][n * 4], &sum, 4);
      }
  }
  static signed char byte(int tile, int row, int index) {
    return static_cast<signed char>(state.tiles[tile][row][index]);
  }
  /// Signed by signed; sums wrap.
  template <int c, int a, int b>
  static void multiply_bytes() {
    demand_configuration();
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        unsigned sum = 0;
        std::memcpy(&sum, &state.tiles[c][m][n * 4], 4);
        for (int k = 0; k < 64; ++k)
          sum += static_cast<unsigned>(byte(a, m, k) * byte(b, k / 4, 4 * n + k % 4));
        std::memcpy(&state.tiles[c][m][n * 4], &sum, 4);
      }
  }
};

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

void begin() { state.configured = true; }
void end() { state.configured = false; }

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
    .store = {store_tile<WriteF32>, store_tile<WriteBf16>, store_tile<WriteF16>},
    .begin = begin,
    .end = end,
};

}  // namespace

KernelSet emulated_amx_set() {
  KernelSet set = kernel_set(detect_isa(Isa::avx512bf16));
  set.level = Isa::amx;
  set.of[static_cast<std::size_t>(Isa::amx)] = &emulated;
  return set;
}

}  // namespace gemmtune::cpu
