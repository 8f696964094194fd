// The two kernels of every vector instruction set, over a source (vector_sources.h). All loops over registers
// have constant bounds and are unrolled by force: accumulators must never live in memory.
#pragma once

#include "backends/cpu/microkernels/micro.h"

namespace gemmtune::cpu {
namespace {

constexpr int panel_vectors = 16 / lanes;

/// Where the sums of row m begin: at zero, or where the source says so.
template <typename Source>
inline __attribute__((always_inline)) Vec first_sum(const PanelArgs& args, int m) {
  if constexpr (requires { Source::start(0); }) return Source::start(args.start[m]);
  return Vec{};
}

/// One line of every panel: steps × mr broadcasts against panels × 16 columns.
template <typename Source, int mr, int panels>
inline __attribute__((always_inline)) void multiply_line(const char* x, const char* w, long stride,
                                                         Vec (&sums)[mr][panels * panel_vectors]) {
  constexpr int vectors = panels * panel_vectors;
  typename Source::V columns[vectors][Source::steps];
#pragma GCC unroll 32
  for (int v = 0; v < vectors; ++v)
    Source::load_line(w + v / panel_vectors * stride, v % panel_vectors, columns[v]);
#pragma GCC unroll 2
  for (int step = 0; step < Source::steps; ++step) {
#pragma GCC unroll 32
    for (int m = 0; m < mr; ++m) {
      const auto value = Source::broadcast_x(x + (m * 32 + step) * Source::x_bytes);
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) sums[m][v] = Source::multiply(value, columns[v][step], sums[m][v]);
    }
  }
}

template <typename Source, int mr, int panels>
void panel_kernel(const PanelArgs& args) {
  constexpr int vectors = panels * panel_vectors;
  constexpr int lines = 32 / Source::k_per_line;
  float* const c = args.c;
  Vec sums[mr][vectors];
  if (args.accumulate) {
#pragma GCC unroll 32
    for (int m = 0; m < mr; ++m)
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) sums[m][v] = load_as<Vec>(c + (m * vectors + v) * lanes);
  } else {
#pragma GCC unroll 32
    for (int m = 0; m < mr; ++m) {
      const Vec first = first_sum<Source>(args, m);
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) sums[m][v] = first;
    }
  }
  const char* x = static_cast<const char*>(args.x);
  const char* w = static_cast<const char*>(args.w);
  const long stride = args.w_stride;
  const long prefetch = args.prefetch;
  for (long chunk = 0; chunk < args.chunks; ++chunk) {
#pragma GCC unroll 2
    for (int line = 0; line < lines; ++line) {
#pragma GCC unroll 4
      for (int panel = 0; panel < panels; ++panel) __builtin_prefetch(w + panel * stride + prefetch);
      multiply_line<Source, mr, panels>(x + line * Source::k_per_line * Source::x_bytes, w, stride, sums);
      w += Source::line_bytes;
    }
    x += mr * 32 * Source::x_bytes;
  }
#pragma GCC unroll 32
  for (int m = 0; m < mr; ++m)
#pragma GCC unroll 32
    for (int v = 0; v < vectors; ++v) store_as(c + (m * vectors + v) * lanes, sums[m][v]);
}

template <typename Source, int mr, int nr>
inline __attribute__((always_inline)) void multiply_chunk(const char* x, const char* const (&w)[nr],
                                                          long offset, Vec (&sums)[mr][nr]) {
#pragma GCC unroll 8
  for (int k = 0; k < 32; k += Source::row_elements) {
    typename Source::V rows[nr];
#pragma GCC unroll 32
    for (int row = 0; row < nr; ++row) rows[row] = Source::load_row(w[row] + offset + k * Source::w_bytes);
#pragma GCC unroll 32
    for (int m = 0; m < mr; ++m) {
      const auto values = Source::load_x(x + (m * 32 + k) * Source::x_bytes);
#pragma GCC unroll 32
      for (int row = 0; row < nr; ++row) sums[m][row] = Source::multiply(values, rows[row], sums[m][row]);
    }
  }
}

/// c[m · ldc + row] (+)= the lanes of sums[m][row], added up; those of four rows of x at once.
template <int mr, int nr>
inline __attribute__((always_inline)) void put_sums(const Vec (&sums)[mr][nr], const RowArgs& args) {
  constexpr int fours = mr / 4 * 4;
#pragma GCC unroll 32
  for (int row = 0; row < nr; ++row) {
    if (row >= args.rows) continue;
    float totals[mr];
    if constexpr (fours > 0) {
#pragma GCC unroll 8
      for (int m = 0; m < fours; m += 4)
        sum_four(sums[m][row], sums[m + 1][row], sums[m + 2][row], sums[m + 3][row], totals + m);
    }
    if constexpr (mr % 4 > 0) {
#pragma GCC unroll 4
      for (int m = fours; m < mr; ++m) totals[m] = sum(sums[m][row]);
    }
#pragma GCC unroll 32
    for (int m = 0; m < mr; ++m) {
      float* c = args.c + m * args.ldc + row;
      *c = (args.accumulate ? *c : 0.0F) + totals[m];
    }
  }
}

/// Dot products of at most nr rows along k. Rows past args.rows repeat the last one and are dropped.
template <typename Source, int mr, int nr, int chains>
inline __attribute__((always_inline)) void multiply_rows(const RowArgs& args) {
  constexpr long chunk_bytes = 32 * Source::w_bytes;
  constexpr long x_bytes = mr * 32 * Source::x_bytes;
  Vec sums[chains][mr][nr];
#pragma GCC unroll 4
  for (int chain = 0; chain < chains; ++chain)
#pragma GCC unroll 32
    for (int m = 0; m < mr; ++m)
#pragma GCC unroll 32
      for (int row = 0; row < nr; ++row) sums[chain][m][row] = Vec{};
  const char* w[nr];
#pragma GCC unroll 32
  for (int row = 0; row < nr; ++row)
    w[row] = static_cast<const char*>(args.w) + (row < args.rows ? row : args.rows - 1) * args.w_stride;
  const char* x = static_cast<const char*>(args.x);
  const long full = args.k / 32;
  long chunk = 0;
  for (; chunk + chains <= full; chunk += chains)
#pragma GCC unroll 4
    for (int chain = 0; chain < chains; ++chain, x += x_bytes) {
      const long offset = (chunk + chain) * chunk_bytes;
#pragma GCC unroll 32
      for (int row = 0; row < nr; ++row) __builtin_prefetch(w[row] + offset + args.prefetch);
      multiply_chunk<Source, mr, nr>(x, w, offset, sums[chain]);
    }
  for (; chunk < full; ++chunk, x += x_bytes)
    multiply_chunk<Source, mr, nr>(x, w, chunk * chunk_bytes, sums[0]);
  if (args.k % 32 != 0) {
    // The last elements go through a zero-padded copy: nothing past a row's end is read.
    char tail[nr][chunk_bytes];
    const char* tails[nr];
    for (int row = 0; row < nr; ++row) {
      __builtin_memset(tail[row], 0, chunk_bytes);
      __builtin_memcpy(tail[row], w[row] + full * chunk_bytes,
                       static_cast<unsigned long>(args.k % 32 * Source::w_bytes));
      tails[row] = tail[row];
    }
    multiply_chunk<Source, mr, nr>(x, tails, 0, sums[0]);
  }
  if constexpr (chains > 1) {
#pragma GCC unroll 4
    for (int chain = 1; chain < chains; ++chain)
#pragma GCC unroll 32
      for (int m = 0; m < mr; ++m)
#pragma GCC unroll 32
        for (int row = 0; row < nr; ++row) sums[0][m][row] += sums[chain][m][row];
  }
  put_sums<mr, nr>(sums[0], args);
}

/// Dot products along k, nr rows at a time. Sums of a tile that leaves registers free are kept in `chains`
/// parts, so that they do not wait for each other.
template <typename Source, int mr, int nr, int chains = 1>
void row_kernel(const RowArgs& args) {
  RowArgs group = args;
  for (; group.rows > 0; group.rows -= nr) {
    multiply_rows<Source, mr, nr, chains>(group);
    group.w = static_cast<const char*>(group.w) + nr * group.w_stride;
    group.c += nr;
  }
}

}  // namespace
}  // namespace gemmtune::cpu
