// Rows of a 4-bit weight as they lie, decoded into AMX tiles: 16 rows of the weight by 32 elements are a tile, and yᵀ = w · xᵀ. One
// look-up in a table of bf16 decodes a row's chunk; formats differ in the table alone, which may have the scale or the zero
// point in it. Over an AMX tile as tile_kernels.h; requires vector_avx512.h, vector_pack.h and w4_kernels.h.
#pragma once

#include "backends/cpu/microkernels/tile_kernels.h"
#include "backends/cpu/microkernels/w4.h"

namespace gemmtune::cpu {
namespace {

constexpr long w4_chunk_bytes = 16;  // of a row of the weight
constexpr long w4_step_bytes = 2 * tile_bytes;

/// bf16 of all codes for each of `count` scales or zero points.
template <int count>
struct CodeTables {
  alignas(64) unsigned short words[count][16];
};

template <typename Values>
constexpr CodeTables<1> plain_codes() {
  CodeTables<1> tables{};
  for (int code = 0; code < 16; ++code) tables.words[0][code] = bf16_of(Values::value(code));
  return tables;
}
/// By a zero point's byte, of −8 … 8.
constexpr CodeTables<256> codes_of_zero_points() {
  CodeTables<256> tables{};
  for (int point = -8; point <= 8; ++point)
    for (int code = 0; code < 16; ++code)
      tables.words[point & 255][code] = bf16_of(I4Values<true>::value(code) - static_cast<float>(point));
  return tables;
}
constexpr float e4m3_value(int code) {
  const int exponent = code >> 3 & 15;
  float value = static_cast<float>(exponent == 0 ? code & 7 : (code & 7) + 8) / 512;
  for (int i = 1; i < exponent; ++i) value *= 2;
  return code < 128 ? value : -value;
}
constexpr unsigned short bf16_nan = 0x7fc0;
constexpr CodeTables<256> codes_of_e4m3() {
  CodeTables<256> tables{};
  for (int scale = 0; scale < 256; ++scale)
    for (int code = 0; code < 16; ++code)
      tables.words[scale][code] =
          (scale & 127) == 127 ? bf16_nan : bf16_of(E2m1Values::value(code) * e4m3_value(scale));
  return tables;
}
/// Elements are normal with scales within E8m0Range; others have no table.
constexpr CodeTables<256> codes_of_e8m0() {
  CodeTables<256> tables{};
  for (int scale = 2; scale <= 252; ++scale)
    for (int code = 0; code < 16; ++code) {
      const int word = bf16_of(E2m1Values::value(code));
      tables.words[scale][code] =
          static_cast<unsigned short>((code & 7) == 0 ? word : word + (scale - 127) * 128);
    }
  return tables;
}

/// Where a chunk of all rows is read: in the weight, or in a copy if it is cut off.
struct W4Chunk {
  const char* w;
  long w_stride;
  const unsigned char* tables;
  long table_stride;
  char w_copy[w4_tile_rows][w4_chunk_bytes];
  unsigned char table_copy[w4_tile_rows][2];
};

/// Rows and elements that are not there are copied as codes of 0 (x is 0 there), their tables as the last ones.
inline __attribute__((noinline)) void copy_w4_chunk(const W4TileArgs& args, long byte, long tables,
                                                    W4Chunk& chunk) {
  const long left = args.bytes - byte < w4_chunk_bytes ? args.bytes - byte : w4_chunk_bytes;
  __builtin_memset(chunk.w_copy, 0, sizeof(chunk.w_copy));
  for (long row = 0; row < w4_tile_rows; ++row) {
    const long from = row < args.rows ? row : args.rows - 1;
    __builtin_memcpy(chunk.w_copy[row], chunk.w + from * chunk.w_stride, static_cast<unsigned long>(left));
    for (long i = 0; i < 2 && args.bytes_of_tables != nullptr; ++i)
      chunk.table_copy[row][i] = chunk.tables[from * args.table_stride + (i < tables ? i : tables - 1)];
  }
  chunk.w = chunk.w_copy[0];
  chunk.w_stride = w4_chunk_bytes;
  chunk.tables = chunk.table_copy[0];
  chunk.table_stride = 2;
}

/// Chunk `at` of all rows as two tiles: block b of 8 words of a tile's row has elements 4 · w + b.
template <W4Tables kind>
inline __attribute__((always_inline)) void decode_w4_chunk(const W4TileArgs& args, long at, char* to) {
  const long byte = at * w4_chunk_bytes;
  const long table = kind == W4Tables::by_half   ? 2 * at
                     : kind == W4Tables::by_byte ? at / args.table_chunks
                                                 : 0;
  W4Chunk chunk;
  chunk.w = static_cast<const char*>(args.w) + byte;
  chunk.w_stride = args.w_stride;
  chunk.tables = args.bytes_of_tables + table;
  chunk.table_stride = args.table_stride;
  const bool is_cut = args.rows < w4_tile_rows || args.bytes < byte + w4_chunk_bytes ||
                      (kind == W4Tables::by_half && args.table_count < table + 2);
  if (__builtin_expect(static_cast<long>(is_cut), 0) != 0)
    copy_w4_chunk(args, byte, args.table_count - table, chunk);
  const __m512i shifts = _mm512_set_epi64(0x000c000c000c000c, 0x000c000c000c000c, 0x0008000800080008,
                                          0x0008000800080008, 0x0004000400040004, 0x0004000400040004, 0, 0);
  // An index takes five bits: of halves the lowest four, and which half a word is of.
  const __m512i halves = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 0, 0, 0, 16, 16, 16, 16));
  const __m512i code = _mm512_set1_epi16(15);
  const char* tables = static_cast<const char*>(args.tables);
  // Four chunks are a line: a quarter of the rows beside each.
  if (args.prefetch != 0)
    for (long row = at % 4 * 8; row < at % 4 * 8 + 8; ++row)
      __builtin_prefetch(static_cast<const char*>(args.w) + row * args.w_stride + byte + args.prefetch);
  const auto table_of = [&](long row, long half) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(
        tables + 32 * static_cast<long>(chunk.tables[row * chunk.table_stride + half])));
  };
  __m512i words = _mm512_setzero_si512();
  if constexpr (kind == W4Tables::one)
    words = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(tables)));
#pragma GCC unroll 8
  for (long row = 0; row < w4_tile_rows; ++row) {
    const char* from = chunk.w + row * chunk.w_stride;
    const __m512i codes = _mm512_srlv_epi16(
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), shifts);
    __m512i index = codes;
    if constexpr (kind == W4Tables::by_byte) words = _mm512_broadcast_i64x4(table_of(row, 0));
    if constexpr (kind == W4Tables::by_half) {
      words = _mm512_inserti64x4(_mm512_castsi256_si512(table_of(row, 0)), table_of(row, 1), 1);
      index = _mm512_ternarylogic_epi32(codes, code, halves, 0xea);  // codes & code | halves
    }
    _mm512_store_si512(to + row * 64, _mm512_permutexvar_epi16(index, words));
  }
}

/// Sums of a group times their scales, into c. Tiles are [half of the rows][panel] in `sums`.
template <int panels>
inline __attribute__((always_inline)) void add_w4_sums(const W4TileArgs& args, long group, const float* sums,
                                                       float* c) {
  const bool add = args.accumulate || group > 0;
  for (int half = 0; half < 2; ++half)
    for (long row = 0; row < 16; ++row) {
      const Vec scale = Vec{} + args.scales[(half * 16 + row) * args.scale_stride + group];
#pragma GCC unroll 2
      for (int panel = 0; panel < panels; ++panel) {
        float* to = c + (panel * 2 + half) * 256 + row * 16;
        store_as(to, fma(load_as<Vec>(sums + (half * panels + panel) * 256 + row * 16), scale,
                         add ? load_as<Vec>(to) : Vec{}));
      }
    }
}

/// With `decodes` into args.decoded, else from there.
template <typename Tile, W4Tables kind, int panels, bool decodes>
__attribute__((noinline)) void multiply_w4_panels(const W4TileArgs& args, long first) {
  const char* x = static_cast<const char*>(args.x) + first * args.x_stride;
  char* const decoded = static_cast<char*>(args.decoded);
  float* const c = args.c + first * 512;
  const long slots = args.x_panels > 2 ? -1 : 1;
  const auto tiles_at = [&](float* base, auto half, auto panel) {
    return base + (panel.get * 2 + half.get) * 256;
  };
  const auto zero = [&]() __attribute__((always_inline)) {
    for_tiles<2, panels>([&](auto half, auto panel) {
      Tile::template zero<decltype(half)::get * panels + decltype(panel)::get>();
    });
  };
  const auto multiply = [&](long at) __attribute__((always_inline)) {
    const char* w = decoded + (at & slots) * w4_step_bytes;
    for_tiles<2, panels>([&](auto half, auto panel) {
      constexpr int w_tile = 4 + decltype(half)::get;
      constexpr int x_tile = 6 + decltype(panel)::get;
      if constexpr (decltype(half)::get == 0)
        Tile::template load<x_tile>(x + panel.get * args.x_stride + at * tile_bytes, 64);
      if constexpr (decltype(panel)::get == 0) Tile::template load<w_tile>(w + half.get * tile_bytes, 64);
      Tile::template multiply<decltype(half)::get * panels + decltype(panel)::get, w_tile, x_tile>();
    });
  };
  alignas(64) float sums[2 * panels * 256];
  if (args.scales == nullptr && args.accumulate)
    for_tiles<2, panels>([&](auto half, auto panel) {
      Tile::template load<decltype(half)::get * panels + decltype(panel)::get>(tiles_at(c, half, panel), 64);
    });
  else
    zero();
  if constexpr (decodes) decode_w4_chunk<kind>(args, 0, decoded);
  for (long at = 0; at < args.chunks; ++at) {
    // Tiles first: vectors decode while they are multiplied.
    multiply(at);
    keep_stores_awake<Tile, 4>(at, args.chunks);
    const bool group_ends =
        args.scales != nullptr && ((at + 1) % args.scale_chunks == 0 || at + 1 == args.chunks);
    if (group_ends) {
      for_tiles<2, panels>([&](auto half, auto panel) {
        constexpr int tile = decltype(half)::get * panels + decltype(panel)::get;
        Tile::template store<tile>(sums + tile * 256, 64);
      });
      zero();
    }
    if (decodes && at + 1 < args.chunks)
      decode_w4_chunk<kind>(args, at + 1, decoded + ((at + 1) & slots) * w4_step_bytes);
    if (group_ends) add_w4_sums<panels>(args, at / args.scale_chunks, sums, c);
  }
  if (args.scales == nullptr)
    for_tiles<2, panels>([&](auto half, auto panel) {
      Tile::template store<decltype(half)::get * panels + decltype(panel)::get>(tiles_at(c, half, panel), 64);
    });
}

/// The first two panels decode; the others multiply what they decoded.
template <typename Tile, W4Tables kind>
void w4_tile_kernel(const W4TileArgs& args) {
  if (args.x_panels == 1) return multiply_w4_panels<Tile, kind, 1, true>(args, 0);
  multiply_w4_panels<Tile, kind, 2, true>(args, 0);
  long panel = 2;
  for (; panel + 1 < args.x_panels; panel += 2) multiply_w4_panels<Tile, kind, 2, false>(args, panel);
  if (panel < args.x_panels) multiply_w4_panels<Tile, kind, 1, false>(args, panel);
}

inline void w4_tile_sums(const W4TileSumsArgs& args) {
  for (int half = 0; half < 2; ++half) {
    IVec block[lanes];
    for (int row = 0; row < 16; ++row) {
      const float scale =
          args.row_scales == nullptr ? 1.0F : args.row_scales[(half * 16 + row) * args.scale_stride];
      block[row] = reinterpret_cast<IVec>(load_as<Vec>(args.c + half * 256 + row * 16) * (Vec{} + scale));
    }
    transpose(block);
    for (long m = 0; m < args.rows; ++m)
      store_as(args.out + m * args.ldc + half * 16,
               reinterpret_cast<Vec>(block[m]) * (Vec{} + args.factors[m] * args.factor));
  }
}

/// A row of x, chunk after chunk, each in the order of decode_w4_chunk().
inline void pack_w4_chunks(const W4PackArgs& args) {
  alignas(64) static constexpr unsigned short order[32] = {0,  4,  8,  12, 16, 20, 24, 28, 1,  5,  9,
                                                           13, 17, 21, 25, 29, 2,  6,  10, 14, 18, 22,
                                                           26, 30, 3,  7,  11, 15, 19, 23, 27, 31};
  const __m512i elements = _mm512_load_si512(order);
  const char* from = static_cast<const char*>(args.x);
  char* to = static_cast<char*>(args.out);
  for (long chunk = 0; chunk < args.lines; ++chunk, from += 64, to += args.line_bytes)
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(elements, _mm512_loadu_si512(from)));
}

constexpr W4Entry w4_tile_entries[] = {{w4_panel_rows, w4_tile_rows, nullptr}};

/// x of int8 is multiplied as bf16, exactly.
template <typename Tile>
struct W4TileTables {
  static constexpr CodeTables<1> e2m1 = plain_codes<E2m1Values>();
  static constexpr CodeTables<1> i4 = plain_codes<I4Values<false>>();
  static constexpr CodeTables<256> zero_points = codes_of_zero_points();
  static constexpr CodeTables<256> e4m3 = codes_of_e4m3();
  static constexpr CodeTables<256> e8m0 = codes_of_e8m0();
  static constexpr W4TileKernels kernels = {
      .run = {w4_tile_kernel<Tile, W4Tables::one>, w4_tile_kernel<Tile, W4Tables::by_byte>,
              w4_tile_kernel<Tile, W4Tables::by_half>},
      .sums = w4_tile_sums,
      .plain = {e2m1.words, i4.words, zero_points.words},
      .e4m3 = e4m3.words,
      .e8m0 = e8m0.words};
  static constexpr W4Kernels floats() {
    constexpr W4List list = {w4_tile_entries, 1};
    return {.tiles = {list, list, list},
            .pack = pack_w4_chunks,
            .widen_e4m3 = widen_w4_bytes<DecodeE4m3fn>,
            .widen_e8m0 = widen_w4_bytes<E8m0Bits>,
            .widen_zero_points = nullptr,
            .line_elements = chunk_elements,
            .x_line_bytes = 2 * chunk_elements,
            .amx = &kernels};
  }
  static constexpr W4Set set() { return {.floats = floats(), .bytes = floats()}; }
};

}  // namespace
}  // namespace gemmtune::cpu
