// Decoding of small types for every vector instruction set. Requires a vector header.
#pragma once

#include "backends/cpu/microkernels/decode.h"
#include "backends/cpu/microkernels/vector_mixture.h"

namespace gemmtune::cpu {
namespace {

/// Interface of vector_sources.h over int16 pairs, but for its multiply, which an instruction set adds; the
/// sums are int32 lanes in registers that are called float.
struct PairLines {
  using V = IVec;
  static constexpr int steps = 1, k_per_line = 2, line_bytes = 64, x_bytes = 2;
  static void load_line(const char* line, int vector, V out[steps]) {
    out[0] = load_as<IVec>(line + vector * static_cast<int>(sizeof(IVec)));
  }
  static V broadcast_x(const char* x) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return IVec{} + pair;
  }
};

constexpr unsigned nan_bits = 0x7fc00000U;

/// As numbers/minifloat.h, lane by lane: codes without bits above the sign. Subnormals are counted in steps,
/// which spares the slow path of denormal arithmetic.
template <int magnitude_bits, int mantissa_bits, int bias>
inline UVec widen_minifloat(UVec code) {
  constexpr unsigned step_bits = static_cast<unsigned>(128 - bias - mantissa_bits) << 23;
  constexpr float step = __builtin_bit_cast(float, step_bits);
  const UVec magnitude = code & ((1U << magnitude_bits) - 1);
  const UVec normal = (magnitude << (23 - mantissa_bits)) + (static_cast<unsigned>(127 - bias) << 23);
  const UVec small =
      reinterpret_cast<UVec>(__builtin_convertvector(reinterpret_cast<IVec>(magnitude), Vec) * step);
  const UVec is_small = reinterpret_cast<UVec>(magnitude < (1U << mantissa_bits));
  return (normal & ~is_small) | (small & is_small) | (code >> magnitude_bits) << 31;
}

inline UVec or_nan(UVec value, UVec is_nan) { return (value & ~is_nan) | (nan_bits & is_nan); }

/// Codes of a stored type as float32 bits; element_bits of them in storage.
struct DecodeE4m3fn {
  static constexpr int element_bits = 8;
  static UVec widen(UVec code) {
    return or_nan(widen_minifloat<7, 3, 7>(code), reinterpret_cast<UVec>((code & 0x7fU) == 0x7fU));
  }
};
struct DecodeE4m3fnuz {
  static constexpr int element_bits = 8;
  static UVec widen(UVec code) {
    return or_nan(widen_minifloat<7, 3, 8>(code), reinterpret_cast<UVec>(code == 0x80U));
  }
};
struct DecodeI8 {
  static constexpr int element_bits = 8;
  static IVec integer(UVec code) { return reinterpret_cast<IVec>(code << 24) >> 24; }
  static UVec widen(UVec code) { return reinterpret_cast<UVec>(__builtin_convertvector(integer(code), Vec)); }
};
struct DecodeI4 {
  static constexpr int element_bits = 4;
  static UVec widen(UVec code) {
    return reinterpret_cast<UVec>(__builtin_convertvector(reinterpret_cast<IVec>(code << 28) >> 28, Vec));
  }
};
struct DecodeE2m1 {
  static constexpr int element_bits = 4;
  static UVec widen(UVec code) { return widen_minifloat<3, 1, 1>(code); }
};

/// Two neighbours in k, as one 32-bit unit of the compute type (or two, of float32).
struct ToF32 {
  static constexpr long element_bytes = 4;
  static constexpr bool pairs = false;
  template <typename Decoder>
  static UVec value(UVec code, Vec zero_point, Vec factor) {
    return reinterpret_cast<UVec>((reinterpret_cast<Vec>(Decoder::widen(code)) - zero_point) * factor);
  }
};
struct ToBf16 {
  static constexpr long element_bytes = 2;
  static constexpr bool pairs = true;
  template <typename Decoder>
  static UVec value(UVec code, Vec zero_point, Vec factor) {
    return ToF32::value<Decoder>(code, zero_point, factor) >> 16;
  }
};
struct ToI16 {
  static constexpr long element_bytes = 2;
  static constexpr bool pairs = true;
  template <typename Decoder>
  static UVec value(UVec code, Vec, Vec) {
    return reinterpret_cast<UVec>(Decoder::integer(code)) & 0xffffU;
  }
};

/// Codes of `lanes` neighbouring pairs: the even elements and the odd ones.
template <typename Decoder>
inline void load_pairs(const unsigned char* from, UVec& even, UVec& odd) {
  if constexpr (Decoder::element_bits == 4) {
    const UVec both = load_bytes(from);
    even = both & 15U;
    odd = both >> 4;
  } else {
    typedef unsigned short PairVec __attribute__((vector_size(2 * lanes)));
    const UVec both = __builtin_convertvector(load_as<PairVec>(from), UVec);
    even = both & 0xffU;
    odd = both >> 8;
  }
}

inline float power_of_two(unsigned char exponent) {
  const unsigned bits = exponent == 255 ? nan_bits
                        : exponent == 0 ? 0x00400000U
                                        : static_cast<unsigned>(exponent) << 23;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

/// What the 32 elements of a chunk are multiplied by, one for each pair of neighbours, and what is subtracted first. They are made in
/// registers: a vector that is loaded from elements stored one by one waits until they are in the cache.
struct ChunkFactors {
  Vec pairs[16 / lanes];
  Vec zero_point;
};

/// `first` for the first eight pairs, `second` for the others.
inline ChunkFactors factors_of_halves(float first, float second, float zero_point) {
  ChunkFactors factors;
  factors.zero_point = Vec{} + zero_point;
  if constexpr (lanes <= 8) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 16; pair += lanes)
      factors.pairs[pair / lanes] = Vec{} + (pair < 8 ? first : second);
  } else {
    IVec is_second;
    for (int lane = 0; lane < lanes; ++lane) is_second[lane] = -(lane / 8);
    factors.pairs[0] = is_second != 0 ? Vec{} + second : Vec{} + first;
  }
  return factors;
}

inline ChunkFactors factors_of(const DecodeRowArgs& args, long chunk) {
  const float zero_point = args.zero_points == nullptr ? 0.0F : args.zero_points[chunk];
  if (args.factors != nullptr)
    return factors_of_halves(args.factors[2 * chunk], args.factors[2 * chunk + 1], zero_point);
  const float factor = args.exponents == nullptr ? 1.0F : power_of_two(args.exponents[chunk]);
  return factors_of_halves(factor, factor, zero_point);
}

template <typename Decoder, typename To>
inline void decode_chunk(const unsigned char* from, char* to, const ChunkFactors& factors) {
#pragma GCC unroll 4
  for (int pair = 0; pair < 16; pair += lanes) {
    UVec even;
    UVec odd;
    load_pairs<Decoder>(from + pair * Decoder::element_bits / 4, even, odd);
    const Vec factor = factors.pairs[pair / lanes];
    const UVec low = To::template value<Decoder>(even, factors.zero_point, factor);
    const UVec high = To::template value<Decoder>(odd, factors.zero_point, factor);
    if constexpr (To::pairs) {
      store_as(to + pair * 4, low | high << 16);
    } else {
      const IVec a = reinterpret_cast<IVec>(low);
      const IVec b = reinterpret_cast<IVec>(high);
      store_as(to + pair * 8, zip_low(a, b));
      store_as(to + pair * 8 + static_cast<int>(sizeof(IVec)), zip_high(a, b));
    }
  }
}

template <typename Decoder, typename To>
void decode_row(const DecodeRowArgs& args) {
  constexpr long chunk_bytes = 32 * Decoder::element_bits / 8;
  const unsigned char* from = static_cast<const unsigned char*>(args.from);
  char* to = static_cast<char*>(args.to);
  const bool plain = args.exponents == nullptr && args.factors == nullptr && args.zero_points == nullptr;
  ChunkFactors factors = factors_of(args, 0);
  for (long first = 0; first < args.count; first += 32, from += chunk_bytes, to += 32 * To::element_bytes) {
    if (!plain) factors = factors_of(args, first / 32);
    const long left = args.count - first;
    if (left >= 32) {
      decode_chunk<Decoder, To>(from, to, factors);
      continue;
    }
    unsigned char tail[chunk_bytes] = {};
    __builtin_memcpy(tail, from, static_cast<unsigned long>((left * Decoder::element_bits + 7) / 8));
    decode_chunk<Decoder, To>(tail, to, factors);
    // With a zero point, what is behind the last element is none.
    for (long byte = left * To::element_bytes; byte < 32 * To::element_bytes; ++byte) to[byte] = 0;
  }
}

/// A line of the stored panel is 16 columns of 4 bytes; a lane stays in its column.
template <typename Decoder, typename To>
void decode_panel(const DecodePanelArgs& args) {
  constexpr int in_a_line = 32 / Decoder::element_bits;
  constexpr int lines = 32 / in_a_line;
  constexpr unsigned mask = (1U << Decoder::element_bits) - 1;
  const char* from = static_cast<const char*>(args.from);
  char* to = static_cast<char*>(args.to);
  const float none[16] = {};
  for (long chunk = 0; chunk < args.chunks; ++chunk) {
    float powers[16];
    for (long column = 0; column < 16; ++column)
      powers[column] = args.exponents == nullptr || column >= args.columns
                           ? 1.0F
                           : power_of_two(args.exponents[column * args.exponent_stride + chunk]);
    const float* zero_points = args.zero_points == nullptr ? none : args.zero_points + 16 * chunk;
    for (int line = 0; line < lines; ++line, from += 64) {
      const float* factors =
          args.factors == nullptr ? powers : args.factors + (2 * chunk + line / (lines / 2)) * 16;
      for (int group = 0; group < 16; group += lanes) {
        const UVec codes = load_as<UVec>(from + group * 4);
        const Vec factor = load_as<Vec>(factors + group);
        const Vec zero_point = load_as<Vec>(zero_points + group);
        char* out = to + group * 4;
#pragma GCC unroll 8
        for (int k = 0; k < in_a_line; k += 2) {
          const UVec low =
              To::template value<Decoder>((codes >> (k * Decoder::element_bits)) & mask, zero_point, factor);
          const UVec high = To::template value<Decoder>((codes >> ((k + 1) * Decoder::element_bits)) & mask,
                                                        zero_point, factor);
          if constexpr (To::pairs) {
            store_as(out + k * 32, low | high << 16);
          } else {
            store_as(out + k * 64, low);
            store_as(out + (k + 1) * 64, high);
          }
        }
      }
      to += in_a_line * 16 * To::element_bytes;
    }
  }
}

struct FloatTile {
  static Vec load(const char* from) { return load_as<Vec>(from); }
};
struct IntegerTile {
  static Vec load(const char* from) { return __builtin_convertvector(load_as<IVec>(from), Vec); }
};

template <typename Tile>
void scale_tile(const ScaleArgs& args) {
  for (long row = 0; row < args.rows; ++row) {
    const char* tile = static_cast<const char*>(args.tile) + row * args.columns * 4;
    float* out = args.out + row * args.columns;
    const Vec row_scale = Vec{} + args.row_scale[row * args.row_stride];
    for (long column = 0; column < args.columns; column += lanes) {
      const Vec scale = row_scale * load_as<Vec>(args.column_scale + column);
      const Vec value = Tile::load(tile + column * 4);
      store_as(out + column, args.add ? fma(value, scale, load_as<Vec>(out + column)) : value * scale);
    }
  }
}

/// The tables of one instruction set but for its integer panels.
template <typename To>
struct DecodeTables {
  static constexpr DecodeRow row(int stored) {
    constexpr DecodeRow all[] = {decode_row<DecodeE4m3fn, To>, decode_row<DecodeE4m3fnuz, To>,
                                 decode_row<DecodeI8, To>, decode_row<DecodeE2m1, To>,
                                 decode_row<DecodeI4, To>};
    return all[stored];
  }
  static constexpr DecodePanel panel(int stored) {
    constexpr DecodePanel all[] = {decode_panel<DecodeE4m3fn, To>, decode_panel<DecodeE4m3fnuz, To>,
                                   decode_panel<DecodeI8, To>, decode_panel<DecodeE2m1, To>,
                                   decode_panel<DecodeI4, To>};
    return all[stored];
  }
};

constexpr DecodeKernels decode_tables(PanelList integer_panels, PackX pack_x, PackPanel pack_panel) {
  using F32 = DecodeTables<ToF32>;
  using Bf16 = DecodeTables<ToBf16>;
  return {.row = {{F32::row(0), F32::row(1), F32::row(2), F32::row(3), F32::row(4)},
                  {Bf16::row(0), Bf16::row(1), Bf16::row(2), Bf16::row(3), Bf16::row(4)},
                  {nullptr, nullptr, decode_row<DecodeI8, ToI16>, nullptr, nullptr}},
          .panel = {{F32::panel(0), F32::panel(1), F32::panel(2), F32::panel(3), F32::panel(4)},
                    {Bf16::panel(0), Bf16::panel(1), Bf16::panel(2), Bf16::panel(3), Bf16::panel(4)},
                    {nullptr, nullptr, decode_panel<DecodeI8, ToI16>, nullptr, nullptr}},
          .integer_panels = integer_panels,
          .pack_integer_x = pack_x,
          .pack_integer_panel = pack_panel,
          .scale = scale_tile<FloatTile>,
          .scale_integer = scale_tile<IntegerTile>,
          .silu = activate_row<SiluGated>,
          .swiglu = activate_row<SwigluGated>,
          .add_row = add_row};
}

}  // namespace
}  // namespace gemmtune::cpu
