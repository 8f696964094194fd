// Rows of a plain weight, multiplied as panels are: 16 rows become a chunk of a panel in the innermost cache, and its lines are
// multiplied at once. Sums are those of panel_kernel(), bit for bit. Shuffles of this chunk and products of the last one run side
// by side, and both keep up with memory.
#pragma once

#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"

namespace gemmtune::cpu {
namespace {

/// Panels of a row kernel: what packs a chunk of 16 rows, and the source that reads the packed chunk.
template <typename Reader, typename Source>
struct RowPanels {
  using Pack = Reader;
  using Multiply = Source;
};

/// sums[m][v] of the group's first row tile, from c if the group accumulates.
template <int mr, int panels>
inline __attribute__((always_inline)) void load_sums(const RowArgs& args,
                                                     Vec (&sums)[mr][panels * panel_vectors]) {
  constexpr int nr = panels * 16;
#pragma GCC unroll 32
  for (int m = 0; m < mr; ++m) {
    const float* c = args.c + m * args.ldc;
    alignas(sizeof(Vec)) float there[nr] = {};
    if (args.accumulate && args.rows < nr) {
      __builtin_memcpy(there, c, static_cast<unsigned long>(args.rows) * sizeof(float));
      c = there;
    }
#pragma GCC unroll 32
    for (int v = 0; v < panels * panel_vectors; ++v)
      sums[m][v] = args.accumulate ? load_as<Vec>(c + v * lanes) : Vec{};
  }
}

template <int mr, int panels>
inline __attribute__((always_inline)) void store_sums(const Vec (&sums)[mr][panels * panel_vectors],
                                                      const RowArgs& args) {
  constexpr int nr = panels * 16;
#pragma GCC unroll 32
  for (int m = 0; m < mr; ++m) {
    float* c = args.c + m * args.ldc;
    alignas(sizeof(Vec)) float all[nr];
    float* to = args.rows < nr ? all : c;
#pragma GCC unroll 32
    for (int v = 0; v < panels * panel_vectors; ++v) store_as(to + v * lanes, sums[m][v]);
    if (args.rows < nr) __builtin_memcpy(c, all, static_cast<unsigned long>(args.rows) * sizeof(float));
  }
}

/// The first panels · 16 rows, or those there are: missing rows and elements are zeros.
template <typename Panels, int mr, int panels>
inline __attribute__((always_inline)) void multiply_row_panels(const RowArgs& args) {
  using Reader = typename Panels::Pack;
  using Source = typename Panels::Multiply;
  constexpr int nr = panels * 16;
  constexpr long chunk_bytes = 32 * Reader::bytes;
  constexpr long packed_bytes = 32 / Reader::unit * 64;
  constexpr int lines = 32 / Source::k_per_line;
  Vec sums[mr][panels * panel_vectors];
  load_sums<mr, panels>(args, sums);
  const char* x = static_cast<const char*>(args.x);
  const char* w = static_cast<const char*>(args.w);
  alignas(64) char packed[panels * packed_bytes];
  const auto multiply = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int line = 0; line < lines; ++line)
      multiply_line<Source, mr, panels>(x + line * Source::k_per_line * Source::x_bytes,
                                        packed + line * Source::line_bytes, packed_bytes, sums);
    x += mr * 32 * Source::x_bytes;
  };
  const long full = args.rows >= nr ? args.k / 32 : 0;
  const long row_bytes = args.k * Reader::bytes;
  // Of whole rows: behind their end the next rows are fetched.
  const bool whole = row_bytes == args.w_stride && args.prefetch < row_bytes;
  const long next_rows = whole ? nr * args.w_stride - row_bytes : 0;
  long chunk = 0;
  for (; chunk < full; ++chunk) {
    const char* from = w + chunk * chunk_bytes;
    const long ahead = args.prefetch + (chunk * chunk_bytes + args.prefetch < row_bytes ? 0 : next_rows);
#pragma GCC unroll 32
    for (int row = 0; row < nr; ++row)
#pragma GCC unroll 2
      for (long line = 0; line < chunk_bytes; line += 64)
        __builtin_prefetch(from + row * args.w_stride + ahead + line);
#pragma GCC unroll 2
    for (int panel = 0; panel < panels; ++panel)
      pack_chunk<Reader>(from + panel * 16 * args.w_stride, args.w_stride, 16, packed + panel * packed_bytes);
    multiply();
  }
  for (; chunk < (args.k + 31) / 32; ++chunk) {
    for (long panel = 0; panel < panels; ++panel) {
      const long left = args.rows - panel * 16;
      pack_panel<Reader>({.rows = w + panel * 16 * args.w_stride + chunk * chunk_bytes,
                          .stride = args.w_stride,
                          .count = left < 0    ? 0
                                   : left < 16 ? left
                                               : 16,
                          .k = args.k - chunk * 32,
                          .chunks = 1,
                          .out = packed + panel * packed_bytes});
    }
    multiply();
  }
  store_sums<mr, panels>(sums, args);
}

template <typename Panels, int mr, int panels>
void row_panel_kernel(const RowArgs& args) {
  constexpr int nr = panels * 16;
  RowArgs group = args;
  for (; group.rows > 0; group.rows -= nr) {
    multiply_row_panels<Panels, mr, panels>(group);
    group.w = static_cast<const char*>(group.w) + nr * group.w_stride;
    group.c += nr;
  }
}

}  // namespace
}  // namespace gemmtune::cpu
