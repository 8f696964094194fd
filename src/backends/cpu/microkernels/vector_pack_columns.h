// Packing of column-major matrices, which lie in memory as [k, rows]. The formats are those of vector_pack.h, which
// comes before it.
#pragma once

#include "backends/cpu/microkernels/micro.h"

namespace gemmtune::cpu {
namespace {

/// `lanes` neighbouring rows, `k` ≤ 32 elements deep, whose elements of k are `stride` bytes apart. Where fewer than
/// `lanes` rows may be read it refers to a copy, whose other rows are zero.
template <typename Reader>
struct ColumnBlock {
  static constexpr long line_bytes = lanes * Reader::bytes;
  const char* from;
  long stride;
  char copy[32 * line_bytes];

  ColumnBlock(const char* at, long apart, long readable, long k) : from(at), stride(apart) {
    if (readable >= lanes) return;
    __builtin_memset(copy, 0, sizeof(copy));
    if (readable > 0) {
      for (long i = 0; i < k; ++i)
        __builtin_memcpy(copy + i * line_bytes, at + i * apart,
                         static_cast<unsigned long>(readable * Reader::bytes));
    }
    from = copy;
    stride = line_bytes;
  }

  /// Unit `unit` of each row, as Reader::load; zero from element `k` on.
  inline __attribute__((always_inline)) IVec load(long unit, long k) const {
    const long first = unit * Reader::unit;
    const char* const line = from + first * stride;
    if constexpr (Reader::unit == 1) {
      return first < k ? Reader::load(line) : IVec{};
    } else {
      const UVec even = first < k ? __builtin_convertvector(load_as<HVec>(line), UVec) : UVec{};
      const UVec odd = first + 1 < k ? __builtin_convertvector(load_as<HVec>(line + stride), UVec) : UVec{};
      return reinterpret_cast<IVec>(even | odd << 16);
    }
  }
};

/// Of a matrix `k` deep in a chunk: 32, or what is left.
inline long depth_of_chunk(long k, long chunk) {
  const long left = k - chunk * 32;
  return left < 0 ? 0 : left < 32 ? left : 32;
}

/// `count` rows of a block into rows of packed x.
template <typename Reader>
inline __attribute__((always_inline)) void put_rows(const ColumnBlock<Reader>& source, long k, long count,
                                                    char* out) {
  constexpr long out_row = 32 / Reader::unit * 4;
  for (long unit = 0; unit < 32 / Reader::unit; unit += lanes) {
    IVec block[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) block[i] = source.load(unit + i, k);
    transpose(block);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i)
      if (i < count) store_as(out + i * out_row + unit * 4, block[i]);
  }
}

template <typename Reader>
void pack_x_columns(const PackXArgs& args) {
  constexpr long out_row = 32 / Reader::unit * 4;
  char* out = static_cast<char*>(args.out);
  const char* x = static_cast<const char*>(args.x);
  for (long chunk = 0; chunk < args.chunks; ++chunk, out += args.mr * out_row) {
    const long k = depth_of_chunk(args.k, chunk);
    for (long m = 0; m < args.mr; m += lanes) {
      // Rows behind the tile's are read and dropped; if the tile misses rows they must be zero.
      const long readable = (args.rows < args.mr ? args.rows : args.readable) - m;
      const long count = args.mr - m < lanes ? args.mr - m : lanes;
      const ColumnBlock<Reader> source(x + chunk * 32 * args.ldx + m * Reader::bytes, args.ldx, readable, k);
      if (k == 32) {
        put_rows(source, 32, count, out + m * out_row);
      } else {
        put_rows(source, k, count, out + m * out_row);
      }
    }
  }
}

/// `lanes` columns of a panel's chunk: a line of the panel is a line of memory.
template <typename Reader>
inline __attribute__((always_inline)) void put_lines(const ColumnBlock<Reader>& source, long k, char* out) {
#pragma GCC unroll 32
  for (long unit = 0; unit < 32 / Reader::unit; ++unit) store_as(out + unit * 64, source.load(unit, k));
}

template <typename Reader>
void pack_panel_columns(const PackPanelArgs& args) {
  constexpr long out_bytes = 32 / Reader::unit * 64;
  char* out = static_cast<char*>(args.out);
  const char* rows = static_cast<const char*>(args.rows);
  for (long chunk = 0; chunk < args.chunks; ++chunk, out += out_bytes) {
    const long k = depth_of_chunk(args.k, chunk);
    for (long row = 0; row < 16; row += lanes) {
      const ColumnBlock<Reader> source(rows + chunk * 32 * args.stride + row * Reader::bytes, args.stride,
                                       args.count - row, k);
      if (k == 32) {
        put_lines(source, 32, out + row * 4);
      } else {
        put_lines(source, k, out + row * 4);
      }
    }
  }
}

}  // namespace
}  // namespace gemmtune::cpu
