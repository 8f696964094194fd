// AMX tiles in plain C++, for files of any instruction set: it emits no symbol.
#pragma once

#include "backends/cpu/microkernels/stream.h"
#include "backends/cpu/microkernels/w4.h"

namespace gemmtune::cpu {

struct TileState {
  bool configured = false;
  unsigned char tiles[8][16][64];
};
extern thread_local TileState emulated_tiles;
/// Weights that stream through emulated tiles; the vector instructions beside them are the machine's.
extern const StreamKernels emulated_stream_kernels;
extern const W4Set emulated_w4_kernels;

namespace {

/// After Intel's description of each instruction (Instruction Set Extensions reference, chapter 3).
struct EmulatedTiles {
  // Asked for once an instruction: another file's thread_local is a call.
  static TileState& configured() {
    TileState& state = emulated_tiles;
    if (!state.configured) __builtin_trap();  // a tile instruction without a palette
    return state;
  }
  template <int tile>
  static void zero() {
    TileState& state = configured();
    __builtin_memset(state.tiles[tile], 0, sizeof(state.tiles[tile]));
  }
  template <int tile>
  static void load(const void* from, long stride) {
    TileState& state = configured();
    for (long row = 0; row < 16; ++row)
      __builtin_memcpy(state.tiles[tile][row], static_cast<const char*>(from) + row * stride, 64);
  }
  template <int tile>
  static void store(void* to, long stride) {
    const TileState& state = configured();
    for (long row = 0; row < 16; ++row)
      __builtin_memcpy(static_cast<char*>(to) + row * stride, state.tiles[tile][row], 64);
  }
  static float bf16(const unsigned char* at) {
    unsigned short bits = 0;
    __builtin_memcpy(&bits, at, 2);
    const unsigned wide = static_cast<unsigned>(bits) << 16;
    return __builtin_bit_cast(float, wide);
  }
  /// Even and odd elements are summed apart; the two sums meet before they are added to the tile.
  template <int c, int a, int b>
  static void multiply() {
    TileState& state = configured();
    float w[32][16];
    for (int k = 0; k < 32; ++k)
      for (int n = 0; n < 16; ++n) w[k][n] = bf16(&state.tiles[b][k / 2][n * 4 + k % 2 * 2]);
    for (int m = 0; m < 16; ++m) {
      float sums[2][16] = {};
      for (int k = 0; k < 32; ++k) {
        const float x = bf16(&state.tiles[a][m][k * 2]);
        for (int n = 0; n < 16; ++n) sums[k % 2][n] += x * w[k][n];
      }
      float y[16];
      __builtin_memcpy(y, state.tiles[c][m], sizeof(y));
      for (int n = 0; n < 16; ++n) y[n] += sums[0][n] + sums[1][n];
      __builtin_memcpy(state.tiles[c][m], y, sizeof(y));
    }
  }
  /// Signed by signed; sums wrap.
  template <int c, int a, int b>
  static void multiply_bytes() {
    TileState& state = configured();
    int w[64][16];
    for (int k = 0; k < 64; ++k)
      for (int n = 0; n < 16; ++n) w[k][n] = static_cast<signed char>(state.tiles[b][k / 4][4 * n + k % 4]);
    for (int m = 0; m < 16; ++m) {
      unsigned y[16];
      __builtin_memcpy(y, state.tiles[c][m], sizeof(y));
      for (int k = 0; k < 64; ++k) {
        const int x = static_cast<signed char>(state.tiles[a][m][k]);
        for (int n = 0; n < 16; ++n) y[n] += static_cast<unsigned>(x * w[k][n]);
      }
      __builtin_memcpy(state.tiles[c][m], y, sizeof(y));
    }
  }
};

}  // namespace
}  // namespace gemmtune::cpu
