// AMX kernels over an AMX tile: static functions zero<I>, load<I>(address, stride), multiply<C, A, B> of
// bf16, multiply_bytes<C, A, B> of int8, store<I>. amx.cpp gives the hardware's, the tests one in plain C++,
// so that indexing is tested on any machine. Tiles 0-3 accumulate (0-5 of three panels of x), 4-5 hold x (or w rows), 6-7 hold panels; a
// tile is 16 rows of 64 bytes.
// Requires a vector header.
#pragma once

#include "backends/cpu/microkernels/micro.h"

namespace gemmtune::cpu {
namespace {

constexpr long tile_bytes = 1024;  // of a panel, and of 16 packed rows of x

/// The same position (a, b) of a grid of accumulators, as types: tile numbers must be constants.
template <int value>
struct Number {
  static constexpr int get = value;
};

/// Calls visit(Number<a>, Number<b>) for a < rows within b < columns.
template <int rows, int columns, int index = 0, typename Visit>
inline __attribute__((always_inline)) void for_tiles(Visit visit) {
  if constexpr (index < rows * columns) {
    visit(Number<index % rows>{}, Number<index / rows>{});
    for_tiles<rows, columns, index + 1>(visit);
  }
}

/// Beside each chunk. A core that stored no tile for 2048 cycles takes 1000 for the next one, and else 70 (docs/lab/cpu_tiled.md). So a long loop
/// over k stores an operand now and then, where nobody reads it.
template <typename Tile, int operand>
inline __attribute__((always_inline)) void keep_stores_awake(long chunk, long chunks) {
  alignas(64) char line[64];
  if (chunk % 4 == 3 && chunks > 8) Tile::template store<operand>(line, 0);
}

/// bf16: a tile holds a chunk (32 elements of k).
struct TilesOfPairs {
  static constexpr long chunks = 1;
  template <typename Tile, int c, int a, int b>
  static void multiply() {
    Tile::template multiply<c, a, b>();
  }
};
/// int8: two chunks, signed by signed, sums in int32. x is packed by pairs of chunks (pack_x_tile_bytes).
struct TilesOfBytes {
  static constexpr long chunks = 2;
  template <typename Tile, int c, int a, int b>
  static void multiply() {
    Tile::template multiply_bytes<c, a, b>();
  }
};

/// A tile's depth of k: c += x · panels. Of w's lines those from `from` to `to` are fetched.
template <typename Tile, typename Type, int tiles_m, int tiles_n>
inline __attribute__((always_inline)) void tile_step(const char* x, const char* w, long w_stride,
                                                     long w_ahead, long x_ahead, long from = 0,
                                                     long to = 16) {
  for_tiles<tiles_m, tiles_n>([&](auto m, auto n) {
    constexpr int x_tile = 4 + decltype(m)::get % 2;
    constexpr int w_tile = 6 + decltype(n)::get % 2;
    if constexpr (decltype(m)::get == 0) {
      const char* line = w + n.get * w_stride;
      if (w_ahead != 0)
        for (long row = from; row < to; ++row) __builtin_prefetch(line + row * 64 + w_ahead);
      Tile::template load<w_tile>(line, 64);
    }
    if constexpr (decltype(n)::get == 0) {
      if (x_ahead != 0)
        for (int row = 0; row < 16; ++row) __builtin_prefetch(x + m.get * tile_bytes + row * 64 + x_ahead);
      Tile::template load<x_tile>(x + m.get * tile_bytes, 64);
    }
    Type::template multiply<Tile, decltype(m)::get * tiles_n + decltype(n)::get, x_tile, w_tile>();
  });
}

/// x tiles: `tiles_m` · 16 rows, one depth of a tile after the other; panels: `tiles_n`. Up to two x tiles
/// stay loaded, more are loaded in turn (then there is one panel only).
template <typename Tile, typename Type, int tiles_m, int tiles_n>
void tile_panel_kernel(const PanelArgs& args) {
  static_assert(tiles_m * tiles_n <= 4 && (tiles_m <= 2 || tiles_n == 1));
  constexpr long c_stride = tiles_n * 64;
  char* c = reinterpret_cast<char*>(args.c);
  for_tiles<tiles_m, tiles_n>([&](auto m, auto n) {
    constexpr int tile = decltype(m)::get * tiles_n + decltype(n)::get;
    if (args.accumulate)
      Tile::template load<tile>(c + m.get * 16 * c_stride + n.get * 64, c_stride);
    else
      Tile::template zero<tile>();
  });
  const char* x = static_cast<const char*>(args.x);
  const char* w = static_cast<const char*>(args.w);
  const long x_ahead = args.prefetch_x * tiles_m * tile_bytes;
  const auto step = [&](const char* x_at, const char* w_at, long w_stride) {
    tile_step<Tile, Type, tiles_m, tiles_n>(x_at, w_at, w_stride, args.prefetch, x_ahead, args.fetched_from,
                                            args.fetched_to);
  };
  const long steps = args.chunks / Type::chunks;
  for (long at = 0; at < steps; ++at, x += tiles_m * tile_bytes, w += tile_bytes) {
    step(x, w, args.w_stride);
    keep_stores_awake<Tile, 4>(at, steps);
  }
  if (args.chunks % Type::chunks != 0) {
    // Half a tile: what lies behind it belongs to others.
    alignas(64) char half[tiles_n][tile_bytes] = {};
    for (long n = 0; n < tiles_n; ++n) __builtin_memcpy(half[n], w + n * args.w_stride, tile_bytes / 2);
    alignas(64) char rows[tiles_m * 16][64] = {};
    for (long m = 0; m < tiles_m * 16; ++m) __builtin_memcpy(rows[m], x + m * 32, 32);
    tile_step<Tile, Type, tiles_m, tiles_n>(rows[0], half[0], tile_bytes, 0, 0);
  }
  for_tiles<tiles_m, tiles_n>([&](auto m, auto n) {
    constexpr int tile = decltype(m)::get * tiles_n + decltype(n)::get;
    Tile::template store<tile>(c + m.get * 16 * c_stride + n.get * 64, c_stride);
  });
}

/// Scaled sums of `rows` rows into c: sums and c are dense, tiles_n panels wide.
template <int tiles_n>
inline __attribute__((always_inline)) void add_scaled_rows(const ScaledPanelArgs& args, long block,
                                                           long first, long rows, const float* sums) {
  const float* columns = args.column_scales + block * args.column_stride;
  const bool add = args.panel.accumulate || block > 0;
  for (long row = first; row < first + rows; ++row) {
    const Vec row_scale = Vec{} + args.row_scales[row * args.row_stride + block];
    float* c = args.panel.c + row * tiles_n * 16;
#pragma GCC unroll 4
    for (long column = 0; column < tiles_n * 16; column += lanes) {
      const Vec before = add ? load_as<Vec>(c + column) : Vec{};
      store_as(c + column, fma(load_as<Vec>(sums + row * tiles_n * 16 + column),
                               row_scale * load_as<Vec>(columns + column), before));
    }
  }
}

/// The sums of a block are scaled while the next block is multiplied, a quarter beside each chunk.
template <typename Tile, int tiles_m, int tiles_n>
void scaled_tile_kernel(const ScaledPanelArgs& args) {
  constexpr long rows = tiles_m * 16;
  constexpr long c_stride = tiles_n * 64;
  constexpr long quarter = rows / scaled_chunks;
  alignas(64) float sums[2][rows * tiles_n * 16];
  const char* x = static_cast<const char*>(args.panel.x);
  const char* w = static_cast<const char*>(args.panel.w);
  const long x_ahead = args.panel.prefetch_x * tiles_m * tile_bytes;
  const long blocks = (args.panel.chunks + scaled_chunks - 1) / scaled_chunks;
  for (long block = 0; block < blocks; ++block) {
    for_tiles<tiles_m, tiles_n>(
        [&](auto m, auto n) { Tile::template zero<decltype(m)::get * tiles_n + decltype(n)::get>(); });
    for (long chunk = 0; chunk < scaled_chunks; ++chunk) {
      if (block * scaled_chunks + chunk < args.panel.chunks) {
        tile_step<Tile, TilesOfPairs, tiles_m, tiles_n>(x, w, args.panel.w_stride, args.panel.prefetch,
                                                        x_ahead);
        x += tiles_m * tile_bytes;
        w += tile_bytes;
      }
      if (block > 0)
        add_scaled_rows<tiles_n>(args, block - 1, chunk * quarter, quarter, sums[(block - 1) % 2]);
    }
    char* to = reinterpret_cast<char*>(sums[block % 2]);
    for_tiles<tiles_m, tiles_n>([&](auto m, auto n) {
      Tile::template store<decltype(m)::get * tiles_n + decltype(n)::get>(
          to + m.get * 16 * c_stride + n.get * 64, c_stride);
    });
  }
  add_scaled_rows<tiles_n>(args, blocks - 1, 0, rows, sums[(blocks - 1) % 2]);
}

/// int8 for AMX tiles: [chunks / 2][mr][64], then, where their number is odd, [mr][32]. Sums begin at zero.
inline void pack_x_tile_bytes(const PackXArgs& args) {
  char* out = static_cast<char*>(args.out);
  const char* x = static_cast<const char*>(args.x);
  for (long chunk = 0; chunk < args.chunks; chunk += 2) {
    const long width = chunk + 1 < args.chunks ? 64 : 32;
    const long left = args.k - chunk * 32;
    const long count = left < 0 ? 0 : left < width ? left : width;
    for (long m = 0; m < args.mr; ++m, out += width) {
      const long copied = m < args.rows ? count : 0;
      if (copied < width) __builtin_memset(out, 0, static_cast<unsigned long>(width));
      if (copied > 0)
        __builtin_memcpy(out, x + m * args.ldx + chunk * 32, static_cast<unsigned long>(copied));
    }
  }
}

/// 16 rows of 16 floats; rows become columns.
inline __attribute__((always_inline)) void swap_tile(const float* from, long from_stride, float* to,
                                                     long to_stride) {
  for (int row = 0; row < 16; row += lanes)
    for (int column = 0; column < 16; column += lanes) {
      IVec block[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) block[i] = load_as<IVec>(from + (row + i) * from_stride + column);
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) store_as(to + (column + i) * to_stride + row, block[i]);
    }
}

/// One chunk: yᵀ += w rows · xᵀ, the rows straight from memory, x as panels. Up to two tiles of each stay loaded; three of x are loaded in turn,
/// there and back, for a tile of w.
template <typename Tile, int row_tiles, int x_panels>
inline __attribute__((always_inline)) void tile_row_chunk(const char* x, long x_stride, const char* w,
                                                          long w_stride) {
  constexpr bool in_turn = x_panels > 2;
  for_tiles<x_panels, row_tiles>([&](auto i, auto r) {
    constexpr int row = decltype(r)::get;
    constexpr int panel = in_turn && row % 2 == 1 ? x_panels - 1 - decltype(i)::get : decltype(i)::get;
    constexpr int w_tile = in_turn ? 6 : 4 + row % 2;
    constexpr int x_tile = in_turn ? 7 : 6 + panel % 2;
    if constexpr (decltype(i)::get == 0) Tile::template load<w_tile>(w + row * 16 * w_stride, w_stride);
    if constexpr (row == 0 || (in_turn && decltype(i)::get != 0))
      Tile::template load<x_tile>(x + panel * x_stride, 64);
    Tile::template multiply<row * x_panels + panel, w_tile, x_tile>();
  });
}

template <typename Tile, int row_tiles, int x_panels>
void tile_row_kernel(const RowArgs& args) {
  static_assert(x_panels <= 2 ? row_tiles <= 2 : row_tiles * x_panels <= 6);
  for_tiles<row_tiles, x_panels>([&](auto r, auto p) {
    constexpr int tile = decltype(r)::get * x_panels + decltype(p)::get;
    // As tiles: [row of w][row of x].
    if (!args.accumulate || r.get * 16 >= args.rows) return Tile::template zero<tile>();
    Tile::template load<tile>(args.c + p.get * 16 * args.ldc + r.get * 16, args.ldc * 4);
  });
  const char* x = static_cast<const char*>(args.x);
  const char* w = static_cast<const char*>(args.w);
  const long chunks = (args.k + 31) / 32;
  // Blocks that are cut off on either side go through a zero-padded copy: tiles read whole rows.
  const long whole = args.rows == row_tiles * 16 ? args.k / 32 : 0;
  const long fetched_to = args.prefetch == 0                 ? 0
                          : args.fetched_to < row_tiles * 16 ? args.fetched_to
                                                             : row_tiles * 16;
  for (long chunk = 0; chunk < chunks; ++chunk, x += tile_bytes, w += 64) {
    if (chunk < whole) {
      for (long row = args.fetched_from; row < fetched_to; ++row)
        __builtin_prefetch(w + row * args.w_stride + args.prefetch);
      tile_row_chunk<Tile, row_tiles, x_panels>(x, args.x_stride, w, args.w_stride);
      keep_stores_awake<Tile, 6>(chunk, chunks);
      continue;
    }
    char copy[row_tiles * 16][64];
    __builtin_memset(copy, 0, sizeof(copy));
    const long left = args.k - chunk * 32;
    for (long row = 0; row < args.rows; ++row)
      __builtin_memcpy(copy[row], w + row * args.w_stride,
                       static_cast<unsigned long>(left < 32 ? left : 32) * 2);
    tile_row_chunk<Tile, row_tiles, x_panels>(x, args.x_stride, copy[0], 64);
  }
  for_tiles<row_tiles, x_panels>([&](auto r, auto p) {
    constexpr int tile = decltype(r)::get * x_panels + decltype(p)::get;
    float* const c = args.c + p.get * 16 * args.ldc + r.get * 16;
    const long left = args.rows - r.get * 16;
    if (left <= 0) return;
    if (args.goes_on) return Tile::template store<tile>(c, args.ldc * 4);
    alignas(64) float block[16][16];
    Tile::template store<tile>(block, 64);
    if (left >= 16) return swap_tile(block[0], 16, c, args.ldc);
    for (long row = 0; row < left; ++row)
      for (long m = 0; m < 16; ++m) c[m * args.ldc + row] = block[row][m];
  });
}

template <typename Tile>
struct TileTables {
  template <typename Type>
  static constexpr PanelEntry panels_of[] = {
      {16, 1, tile_panel_kernel<Tile, Type, 1, 1>}, {16, 2, tile_panel_kernel<Tile, Type, 1, 2>},
      {16, 3, tile_panel_kernel<Tile, Type, 1, 3>}, {16, 4, tile_panel_kernel<Tile, Type, 1, 4>},
      {32, 1, tile_panel_kernel<Tile, Type, 2, 1>}, {32, 2, tile_panel_kernel<Tile, Type, 2, 2>},
      {48, 1, tile_panel_kernel<Tile, Type, 3, 1>}, {64, 1, tile_panel_kernel<Tile, Type, 4, 1>}};
  static constexpr const PanelEntry* panels = panels_of<TilesOfPairs>;
  static constexpr const PanelEntry* byte_panels = panels_of<TilesOfBytes>;
  static constexpr int panel_count = 8;
  static constexpr ScaledPanelEntry scaled_panels[] = {
      {16, 1, scaled_tile_kernel<Tile, 1, 1>}, {16, 2, scaled_tile_kernel<Tile, 1, 2>},
      {16, 3, scaled_tile_kernel<Tile, 1, 3>}, {16, 4, scaled_tile_kernel<Tile, 1, 4>},
      {32, 1, scaled_tile_kernel<Tile, 2, 1>}, {32, 2, scaled_tile_kernel<Tile, 2, 2>},
      {48, 1, scaled_tile_kernel<Tile, 3, 1>}, {64, 1, scaled_tile_kernel<Tile, 4, 1>}};
  static constexpr int scaled_panel_count = 8;
  static constexpr RowEntry rows[] = {{16, 16, tile_row_kernel<Tile, 1, 1>, true},
                                      {16, 32, tile_row_kernel<Tile, 2, 1>, true},
                                      {32, 16, tile_row_kernel<Tile, 1, 2>, true},
                                      {32, 32, tile_row_kernel<Tile, 2, 2>, true},
                                      {48, 32, tile_row_kernel<Tile, 2, 3>, true}};
  static constexpr int row_count = 5;
};

}  // namespace
}  // namespace gemmtune::cpu
