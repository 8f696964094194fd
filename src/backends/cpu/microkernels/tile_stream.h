// Weights of small types that stream by an AMX tile: a tile of weights (32 elements of k, 16 columns) is
// decoded to bf16 into memory that stays in the inner cache and multiplied from there, while the next one is
// decoded. Each byte is decoded once for all rows of x. Over an AMX tile as tile_kernels.h; requires
// vector_avx512.h, stream_fp8.h and VBMI.
#pragma once

#include "backends/cpu/microkernels/stream.h"
#include "backends/cpu/microkernels/tile_kernels.h"

namespace gemmtune::cpu {
namespace {

/// A format decodes `stored_bytes` of a panel into a tile. Rows 0-7 of an fp8 tile are elements (0, 2) of
/// each dword of k, rows 8-15 elements (1, 3): pack_fp8's order.
template <typename Type, bool block_scaled>
struct TileOfFp8 {
  static constexpr long stored_bytes = 512;
  static constexpr long tiles_of_step = 1;
  static constexpr bool scaled_sums = block_scaled;
  static constexpr bool scaled_weights = false;
  Fp8Decoder<Type> decoder;

  inline __attribute__((always_inline)) void decode(const char* from, long ahead, __m128i, char* tile) const {
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      __builtin_prefetch(from + line * 64 + ahead);
      __m512i even;
      __m512i odd;
      decoder.decode(_mm512_loadu_si512(from + line * 64), even, odd);
      _mm512_store_si512(tile + line * 64, even);
      _mm512_store_si512(tile + 512 + line * 64, odd);
    }
  }
};

/// Row 4 · i + line of a tile is elements (i, 4 + i) of each dword of a line. A tile is as deep as a scale.
struct TileOfF4 {
  static constexpr long stored_bytes = 256;
  static constexpr long tiles_of_step = 2;
  static constexpr bool scaled_sums = false;
  static constexpr bool scaled_weights = true;
  F4Decoder decoder;

  inline __attribute__((always_inline)) void decode(const char* from, long ahead, __m128i exponents,
                                                    char* tile) const {
    const __m512i away = F4Decoder::away_of_columns(exponents);
    if (__builtin_expect(static_cast<long>(!F4Decoder::in_range(away)), 0) != 0)
      return decode_slowly(from, exponents, tile);
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line) {
      __builtin_prefetch(from + line * 64 + ahead);
      const __m512i codes = _mm512_loadu_si512(from + line * 64);
      _mm512_store_si512(tile + line * 64, decoder.decode(codes, away));
      _mm512_store_si512(tile + line * 64 + 256, decoder.decode(_mm512_srli_epi16(codes, 4), away));
      _mm512_store_si512(tile + line * 64 + 512, decoder.decode(_mm512_srli_epi16(codes, 8), away));
      _mm512_store_si512(tile + line * 64 + 768, decoder.decode(_mm512_srli_epi16(codes, 12), away));
    }
  }

  static __attribute__((noinline)) void decode_slowly(const char* from, __m128i exponents, char* tile) {
    const __m512 scales = powers_of_two(exponents);
    for (unsigned line = 0; line < 4; ++line)
      for (unsigned i = 0; i < 4; ++i) {
        const __m512i codes = _mm512_loadu_si512(from + line * 64);
        const __m512i low = slow_f4(_mm512_srli_epi32(codes, 4 * i), scales);
        const __m512i high = slow_f4(_mm512_srli_epi32(codes, 16 + 4 * i), scales);
        _mm512_store_si512(tile + (i * 4 + line) * 64, pairs_of_upper_halves(low, high));
      }
  }
};

/// 32 elements of a row of x in the order of TileOfF4, scaled by 2^(exponent − 127).
inline void pack_f4_tile_row(const F4Decoder& decoder, __m128i bytes, unsigned char exponent, char* out) {
  const __m512i four = _mm512_broadcast_i32x4(bytes);
  const __m512i away =
      F4Decoder::away(_mm512_set1_epi16(static_cast<short>(static_cast<int>(exponent) << 7)));
  if (exponent >= min_f4_exponent && exponent <= max_f4_exponent) {
    const __m512i shifts = _mm512_set_epi64(0x000c000c000c000c, 0x000c000c000c000c, 0x0008000800080008,
                                            0x0008000800080008, 0x0004000400040004, 0x0004000400040004, 0, 0);
    return _mm512_storeu_si512(out, decoder.decode(_mm512_srlv_epi16(four, shifts), away));
  }
  const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  const __m512i codes = _mm512_srlv_epi32(four, shifts);
  const __m512 factor = powers_of_two(_mm_set1_epi8(static_cast<char>(exponent)));
  _mm512_storeu_si512(
      out, pairs_of_upper_halves(slow_f4(codes, factor), slow_f4(_mm512_srli_epi32(codes, 16), factor)));
}

/// fp4 with its scales as bf16.
inline void pack_f4_tiles(const StreamPackArgs& args) {
  const F4Decoder decoder;
  char* out = static_cast<char*>(args.out);
  for (long tile = 0; tile < 2 * args.steps; ++tile)
    for (long m = 0; m < args.mr; ++m, out += 64) {
      // Whole blocks of 32 elements are there, or none.
      const bool there = m < args.rows && tile * 16 < args.bytes;
      if (!there) {
        _mm512_storeu_si512(out, _mm512_setzero_si512());
        continue;
      }
      const char* row = static_cast<const char*>(args.x) + m * args.stride + tile * 16;
      pack_f4_tile_row(decoder, _mm_loadu_si128(reinterpret_cast<const __m128i*>(row)),
                       args.exponents[m * args.exponent_stride + tile], out);
    }
}

/// 16 scales of a panel's columns from scale `first` on.
inline __attribute__((always_inline)) void load_panel_exponents(const StreamScaleArgs& all, long panel,
                                                                long first, Exponents& out) {
  load_exponents({.exponents = all.exponents + panel * panel_columns * all.stride,
                  .stride = all.stride,
                  .rows = all.rows - panel * panel_columns,
                  .count = all.count,
                  .out = nullptr},
                 first, out);
}

/// c (+)= sums · scales, of `rows` rows of `panels` vectors.
template <int rows, int panels>
inline void add_scaled_sums(const float* sums, const float* x_scales, float w_scale, bool add, float* c) {
#pragma GCC unroll 4
  for (int m = 0; m < rows; ++m) {
    const __m512 factor = _mm512_set1_ps(x_scales[m] * w_scale);
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const int at = (m * panels + p) * 16;
      const __m512 before = add ? _mm512_loadu_ps(c + at) : _mm512_setzero_ps();
      _mm512_storeu_ps(c + at, _mm512_fmadd_ps(_mm512_load_ps(sums + at), factor, before));
    }
  }
}

template <typename Tile, typename Format, int tiles_m, int panels>
void tile_stream_kernel(const StreamArgs& args) {
  constexpr long c_stride = panels * 64;
  constexpr long x_bytes = tiles_m * tile_bytes;
  // x comes from the second cache; one tile of it between decoding is in time by itself.
  constexpr long x_ahead = tiles_m > 1 ? 4 * x_bytes : 0;
  const Format format;
  const char* x = static_cast<const char*>(args.x);
  const char* w = static_cast<const char*>(args.w);
  alignas(64) char decoded[2][panels][tile_bytes];
  Exponents exponents[panels];
  const auto decode = [&](long at) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      __m128i columns = _mm_setzero_si128();
      if constexpr (Format::scaled_weights) {
        if (at % 16 == 0) load_panel_exponents(*args.w_exponents, p, at, exponents[p]);
        columns = exponents[p].of(at % 16);
      }
      format.decode(w + p * args.w_stride + at * Format::stored_bytes, args.prefetch, columns,
                    decoded[at % 2][p]);
    }
  };
  const auto multiply = [&](long at) __attribute__((always_inline)) {
    tile_step<Tile, TilesOfPairs, tiles_m, panels>(x + at * x_bytes, decoded[at % 2][0], tile_bytes, 0,
                                                   x_ahead);
  };
  const auto zero = [&]() __attribute__((always_inline)) {
    for_tiles<tiles_m, panels>(
        [&](auto m, auto n) { Tile::template zero<decltype(m)::get * panels + decltype(n)::get>(); });
  };
  const auto store = [&](float* to) __attribute__((always_inline)) {
    for_tiles<tiles_m, panels>([&](auto m, auto n) {
      Tile::template store<decltype(m)::get * panels + decltype(n)::get>(
          reinterpret_cast<char*>(to) + m.get * 16 * c_stride + n.get * 64, c_stride);
    });
  };
  alignas(64) float sums[tiles_m * 16 * panels * 16];
  const auto scale_sums = [&](long scale) __attribute__((always_inline)) {
    add_scaled_sums<tiles_m * 16, panels>(sums, args.x_scales + scale * tiles_m * 16, args.w_scales[scale],
                                          args.accumulate || scale > 0, args.c);
  };
  const long tiles = args.steps * Format::tiles_of_step;
  if (Format::scaled_sums || !args.accumulate)
    zero();
  else
    for_tiles<tiles_m, panels>([&](auto m, auto n) {
      Tile::template load<decltype(m)::get * panels + decltype(n)::get>(
          reinterpret_cast<char*>(args.c) + m.get * 16 * c_stride + n.get * 64, c_stride);
    });
  decode(0);
  for (long at = 1; at < tiles; ++at) {
    // Tiles first: vectors decode while they are multiplied.
    multiply(at - 1);
    if constexpr (!Format::scaled_sums) keep_stores_awake<Tile, 4>(at, tiles);
    const bool scale_ends = Format::scaled_sums && at % steps_of_scale == 0;
    if (scale_ends) {
      store(sums);
      zero();
    }
    decode(at);
    if (scale_ends) scale_sums(at / steps_of_scale - 1);
  }
  multiply(tiles - 1);
  if constexpr (Format::scaled_sums) {
    store(sums);
    scale_sums((tiles - 1) / steps_of_scale);
  } else {
    store(args.c);
  }
}

template <typename Tile, typename Format>
struct TileStreamTable {
  static constexpr StreamEntry entries[] = {
      {16, 1, tile_stream_kernel<Tile, Format, 1, 1>}, {16, 2, tile_stream_kernel<Tile, Format, 1, 2>},
      {16, 4, tile_stream_kernel<Tile, Format, 1, 4>}, {32, 1, tile_stream_kernel<Tile, Format, 2, 1>},
      {32, 2, tile_stream_kernel<Tile, Format, 2, 2>}, {48, 1, tile_stream_kernel<Tile, Format, 3, 1>},
      {64, 1, tile_stream_kernel<Tile, Format, 4, 1>}};
  static constexpr int count = 7;
};

/// Everything but int8, whose panels AMX tiles read as they are (`tiled`).
template <typename Tile>
constexpr StreamKernels tile_stream_kernels() {
  using Fn = TileStreamTable<Tile, TileOfFp8<E4m3fnBytes, false>>;
  using Fnuz = TileStreamTable<Tile, TileOfFp8<E4m3fnuzBytes, false>>;
  using FnBlock = TileStreamTable<Tile, TileOfFp8<E4m3fnBytes, true>>;
  using FnuzBlock = TileStreamTable<Tile, TileOfFp8<E4m3fnuzBytes, true>>;
  using F4 = TileStreamTable<Tile, TileOfF4>;
  return {.entries = {Fn::entries, Fnuz::entries, FnBlock::entries, FnuzBlock::entries, nullptr, F4::entries},
          .counts = {Fn::count, Fnuz::count, FnBlock::count, FnuzBlock::count, 0, F4::count},
          .pack = {pack_fp8<E4m3fnBytes>, pack_fp8<E4m3fnuzBytes>, pack_fp8<E4m3fnBytes>,
                   pack_fp8<E4m3fnuzBytes>, nullptr, pack_f4_tiles},
          .scales = stream_scales,
          .scales_packed_f4 = true};
}

}  // namespace
}  // namespace gemmtune::cpu
