// AMX tiles with bf16 and int8. The instructions are written as assembly: the compiler's own wrappers take
// literal tile numbers only, and in GCC 12 they do not say that they read or write memory. The vector header
// comes first, the others are written over it.
// clang-format off
#include "backends/cpu/kernels/isa/vector_avx512.h"
#include "backends/cpu/kernels/isa/tile_kernels.h"
#include "backends/cpu/kernels/isa/vector_pack.h"
#include "backends/cpu/kernels/isa/vector_bytes.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

struct TileUnit {
  template <int tile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  template <int tile>
  static void load(const void* from, long stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int c, int a, int b>
  static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static void multiply_bytes() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int tile>
  static void store(void* to, long stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
};

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

using Tiles = TileTables<TileUnit>;

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
    .store = {store_tile<WriteF32>, store_tile<WriteBf16>, store_tile<WriteF16>},
    .begin = begin_tiles,
    .end = end_tiles,
};

}  // namespace gemmtune::cpu
