// AMX tiles in plain C++, for files of any instruction set: it emits no symbol.
#pragma once

#include "backends/cpu/microkernels/stream.h"

namespace gemmtune::cpu {

struct TileState {
  bool configured = false;
  unsigned char tiles[8][16][64];
};
extern thread_local TileState emulated_tiles;
/// Weights that stream through emulated tiles; the vector instructions beside them are the machine's.
extern const StreamKernels emulated_stream_kernels;

namespace {

/// After Intel's description of each instruction (Instruction Set Extensions reference, chapter 3).
struct EmulatedTiles {
  static void demand_configuration() {
    if (!emulated_tiles.configured) __builtin_trap();  // a tile instruction without a palette
  }
  template <int tile>
  static void zero() {
    demand_configuration();
    __builtin_memset(emulated_tiles.tiles[tile], 0, sizeof(emulated_tiles.tiles[tile]));
  }
  template <int tile>
  static void load(const void* from, long stride) {
    demand_configuration();
    for (long row = 0; row < 16; ++row)
      __builtin_memcpy(emulated_tiles.tiles[tile][row], static_cast<const char*>(from) + row * stride, 64);
  }
  template <int tile>
  static void store(void* to, long stride) {
    demand_configuration();
    for (long row = 0; row < 16; ++row)
      __builtin_memcpy(static_cast<char*>(to) + row * stride, emulated_tiles.tiles[tile][row], 64);
  }
  static float bf16(int tile, int row, int index) {
    unsigned short bits = 0;
    __builtin_memcpy(&bits, &emulated_tiles.tiles[tile][row][index * 2], 2);
    const unsigned wide = static_cast<unsigned>(bits) << 16;
    return __builtin_bit_cast(float, wide);
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
        __builtin_memcpy(&sum, &emulated_tiles.tiles[c][m][n * 4], 4);
        sum += even + odd;
        __builtin_memcpy(&emulated_tiles.tiles[c][m][n * 4], &sum, 4);
      }
  }
  static signed char byte(int tile, int row, int index) {
    return static_cast<signed char>(emulated_tiles.tiles[tile][row][index]);
  }
  /// Signed by signed; sums wrap.
  template <int c, int a, int b>
  static void multiply_bytes() {
    demand_configuration();
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        unsigned sum = 0;
        __builtin_memcpy(&sum, &emulated_tiles.tiles[c][m][n * 4], 4);
        for (int k = 0; k < 64; ++k)
          sum += static_cast<unsigned>(byte(a, m, k) * byte(b, k / 4, 4 * n + k % 4));
        __builtin_memcpy(&emulated_tiles.tiles[c][m][n * 4], &sum, 4);
      }
  }
};

}  // namespace
}  // namespace gemmtune::cpu
