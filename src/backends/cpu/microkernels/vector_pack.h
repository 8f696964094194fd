// Packing and epilogue of every vector instruction set: all conversions live here. Requires a vector header.
#pragma once

#include "backends/cpu/microkernels/micro.h"

namespace gemmtune::cpu {
namespace {

/// Readers turn storage into 32-bit units of the compute type: one float, or (pairs) two bf16 as they stand.
struct ReadF32 {
  static constexpr int bytes = 4, unit = 1;
  static IVec load(const char* from) { return load_as<IVec>(from); }
};
struct ReadBf16 {
  static constexpr int bytes = 2, unit = 1;
  static IVec load(const char* from) { return reinterpret_cast<IVec>(load_bf16(from)); }
};
struct ReadF16 {
  static constexpr int bytes = 2, unit = 1;
  static IVec load(const char* from) { return reinterpret_cast<IVec>(load_f16(from)); }
};
struct ReadPairs {
  static constexpr int bytes = 2, unit = 2;
  static IVec load(const char* from) { return load_as<IVec>(from); }
};

template <typename Reader>
void pack_x(const PackXArgs& args) {
  constexpr long vectors = 32 / Reader::unit / lanes;
  constexpr long out_row = 32 / Reader::unit * 4;
  constexpr long chunk_bytes = 32 * Reader::bytes;
  char* out = static_cast<char*>(args.out);
  const char* x = static_cast<const char*>(args.x);
  for (long chunk = 0; chunk < args.chunks; ++chunk)
    for (long m = 0; m < args.mr; ++m, out += out_row) {
      const long left = args.k - chunk * 32;
      char tail[chunk_bytes];
      const char* from = x + m * args.ldx + chunk * chunk_bytes;
      if (m >= args.rows || left <= 0) {
        __builtin_memset(out, 0, out_row);
        continue;
      }
      if (left < 32) {
        __builtin_memset(tail, 0, chunk_bytes);
        __builtin_memcpy(tail, from, static_cast<unsigned long>(left * Reader::bytes));
        from = tail;
      }
#pragma GCC unroll 8
      for (long v = 0; v < vectors; ++v)
        store_as(out + v * static_cast<long>(sizeof(Vec)),
                 Reader::load(from + v * lanes * Reader::unit * Reader::bytes));
    }
}

/// lanes × lanes 32-bit units. Each round of zips rotates the index (row, column) by one bit; log₂ lanes
/// rounds swap rows and columns.
inline __attribute__((always_inline)) void transpose(IVec (&block)[lanes]) {
#pragma GCC unroll 4
  for (int round = 1; round < lanes; round *= 2) {
    IVec next[lanes];
#pragma GCC unroll 16
    for (int i = 0; i < lanes / 2; ++i) {
      next[2 * i] = zip_low(block[i], block[i + lanes / 2]);
      next[2 * i + 1] = zip_high(block[i], block[i + lanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) block[i] = next[i];
  }
}

/// 16 rows × 32 elements at `from` into one chunk of a panel.
template <typename Reader>
inline void pack_chunk(const char* from, long stride, long count, char* out) {
  for (int group = 0; group < 16; group += lanes)
    for (int unit = 0; unit < 32 / Reader::unit; unit += lanes) {
      IVec block[lanes];
#pragma GCC unroll 16
      for (int row = 0; row < lanes; ++row)
        block[row] = group + row < count
                         ? Reader::load(from + (group + row) * stride + unit * Reader::unit * Reader::bytes)
                         : IVec{};
      transpose(block);
#pragma GCC unroll 16
      for (int row = 0; row < lanes; ++row) store_as(out + ((unit + row) * 16 + group) * 4, block[row]);
    }
}

template <typename Reader>
void pack_panel(const PackPanelArgs& args) {
  constexpr long chunk_bytes = 32 * Reader::bytes;
  constexpr long out_bytes = 32 / Reader::unit * 64;
  char* out = static_cast<char*>(args.out);
  const char* rows = static_cast<const char*>(args.rows);
  for (long chunk = 0; chunk < args.chunks; ++chunk, out += out_bytes) {
    const long left = args.k - chunk * 32;
    if (left >= 32) {
      pack_chunk<Reader>(rows + chunk * chunk_bytes, args.stride, args.count, out);
      continue;
    }
    char tail[16][chunk_bytes];
    __builtin_memset(tail, 0, sizeof(tail));
    if (left > 0)
      for (long row = 0; row < args.count; ++row)
        __builtin_memcpy(tail[row], rows + row * args.stride + chunk * chunk_bytes,
                         static_cast<unsigned long>(left * Reader::bytes));
    pack_chunk<Reader>(tail[0], chunk_bytes, 16, out);
  }
}

struct WriteF32 {
  static constexpr long bytes = 4;
  static Vec load(const char* from) { return load_as<Vec>(from); }
  static void store(char* to, Vec v) { store_as(to, v); }
  static void store(char* to, Vec first, Vec second) {
    store(to, first);
    store(to + lanes * bytes, second);
  }
};
struct WriteBf16 {
  static constexpr long bytes = 2;
  static Vec load(const char* from) { return load_bf16(from); }
  static void store(char* to, Vec v) { store_as(to, narrow_bf16(v)); }
  static void store(char* to, Vec first, Vec second) { store_bf16(to, first, second); }
};
struct WriteF16 {
  static constexpr long bytes = 2;
  static Vec load(const char* from) { return load_f16(from); }
  static void store(char* to, Vec v) { store_as(to, narrow_f16(v)); }
  static void store(char* to, Vec first, Vec second) {
    store(to, first);
    store(to + lanes * bytes, second);
  }
};

template <typename Writer>
void store_tile(const StoreArgs& args) {
  const char* bias = static_cast<const char*>(args.bias);
  const long full = args.columns / lanes * lanes;
  const auto rest = static_cast<unsigned long>((args.columns - full) * Writer::bytes);
  // Ends shorter than a vector pass through a copy, for reading bias and for writing y.
  char bias_tail[lanes * Writer::bytes] = {};
  if (bias != nullptr) __builtin_memcpy(bias_tail, bias + full * Writer::bytes, rest);
  for (long row = 0; row < args.rows; ++row) {
    const float* tile = args.tile + row * args.ldt;
    char* y = static_cast<char*>(args.y) + row * args.ldy * Writer::bytes;
    const auto value_of = [&](long column) __attribute__((always_inline)) {
      const Vec value = load_as<Vec>(tile + column);
      return bias == nullptr ? value : value + Writer::load(bias + column * Writer::bytes);
    };
    long column = 0;
    for (; column + 2 * lanes <= full; column += 2 * lanes)
      Writer::store(y + column * Writer::bytes, value_of(column), value_of(column + lanes));
    if (column < full) Writer::store(y + column * Writer::bytes, value_of(column));
    if (rest == 0) continue;
    Vec value{};
    __builtin_memcpy(&value, tile + full, static_cast<unsigned long>(args.columns - full) * sizeof(float));
    if (bias != nullptr) value += Writer::load(bias_tail);
    char y_tail[lanes * Writer::bytes];
    Writer::store(y_tail, value);
    __builtin_memcpy(y + full * Writer::bytes, y_tail, rest);
  }
}

}  // namespace
}  // namespace gemmtune::cpu
