// The kernel over rows of a 4-bit weight for every vector instruction set, over a decoder. Requires a vector header.
//
// A decoder is made of a format and an arithmetic:
//   V, vectors    what a line becomes: `vectors` of V, which meet as many vectors of x
//   Sum           what products are added in; widen() makes it float32
//   x_line_bytes  of a row of x
//   first(x)      where the sum of a line begins
//   decode(codes, zero_points, out), multiply(sum, x, w)
#pragma once

#include "backends/cpu/microkernels/vector_decode.h"
#include "backends/cpu/microkernels/w4.h"

namespace gemmtune::cpu {
namespace {

/// Values of the codes of a format.
struct E2m1Values {
  static constexpr bool zero_points = false;
  static constexpr float value(int code) {
    constexpr float magnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return code < 8 ? magnitudes[code] : -magnitudes[code - 8];
  }
};
template <bool with_zero_points>
struct I4Values {
  static constexpr bool zero_points = with_zero_points;
  static constexpr float value(int code) { return static_cast<float>(code < 8 ? code : code - 16); }
};

/// Of a value that bf16 holds.
constexpr unsigned short bf16_of(float value) {
  return static_cast<unsigned short>(__builtin_bit_cast(unsigned, value) >> 16);
}

/// Lines of nr rows at `w` times one line of x of all mr rows.
template <typename Decoder, int mr, int nr>
inline __attribute__((always_inline)) void multiply_w4_line(const Decoder& decoder, const W4Args& args,
                                                            const char* x, const char* const (&w)[nr],
                                                            long line, IVec scale_of_lane,
                                                            Vec (&totals)[mr][nr]) {
  const long scale = line * lanes >> args.lane_shift;
  typename Decoder::V values[nr][Decoder::vectors];
  Vec scales[nr];
#pragma GCC unroll 4
  for (int row = 0; row < nr; ++row) {
    IVec zero_points{};
    if constexpr (Decoder::zero_points)
      zero_points =
          __builtin_shuffle(load_as<IVec>(args.zero_points + row * args.scale_stride + scale), scale_of_lane);
    decoder.decode(load_as<IVec>(w[row]), zero_points, values[row]);
    scales[row] =
        __builtin_shuffle(load_as<Vec>(args.scales + row * args.scale_stride + scale), scale_of_lane);
  }
#pragma GCC unroll 16
  for (int m = 0; m < mr; ++m, x += Decoder::x_line_bytes) {
    typename Decoder::Sum sums[nr];
#pragma GCC unroll 4
    for (int row = 0; row < nr; ++row) sums[row] = Decoder::first(x);
#pragma GCC unroll 8
    for (int v = 0; v < Decoder::vectors; ++v)
#pragma GCC unroll 4
      for (int row = 0; row < nr; ++row)
        sums[row] = Decoder::multiply(sums[row], x + v * static_cast<int>(sizeof(Vec)), values[row][v]);
#pragma GCC unroll 4
    for (int row = 0; row < nr; ++row)
      totals[m][row] = fma(Decoder::widen(sums[row]), scales[row], totals[m][row]);
  }
}

/// Rows past args.rows repeat the last one and are dropped.
template <typename Decoder, int mr, int nr>
void w4_kernel(const W4Args& args) {
  constexpr long line_bytes = sizeof(IVec);
  const Decoder decoder;
  const char* rows[nr];
#pragma GCC unroll 4
  for (int row = 0; row < nr; ++row)
    rows[row] = static_cast<const char*>(args.w) + (row < args.rows ? row : args.rows - 1) * args.w_stride;
  IVec scale_of_lane;
  for (int lane = 0; lane < lanes; ++lane)
    scale_of_lane[lane] = lane >> (args.lane_shift < 31 ? args.lane_shift : 31);
  Vec totals[mr][nr];
#pragma GCC unroll 16
  for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
    for (int row = 0; row < nr; ++row) totals[m][row] = Vec{};
  const char* x = static_cast<const char*>(args.x);
  const long full = args.bytes / line_bytes;
  for (long line = 0; line < full; ++line, x += mr * Decoder::x_line_bytes) {
    const char* w[nr];
#pragma GCC unroll 4
    for (int row = 0; row < nr; ++row) {
      w[row] = rows[row] + line * line_bytes;
      __builtin_prefetch(w[row] + args.prefetch);
    }
    multiply_w4_line<Decoder, mr, nr>(decoder, args, x, w, line, scale_of_lane, totals);
  }
  if (const long rest = args.bytes % line_bytes; rest != 0) {
    // The last elements go through a zero-padded copy: nothing past a row's end is read.
    char tail[nr][line_bytes];
    const char* w[nr];
    for (int row = 0; row < nr; ++row) {
      __builtin_memset(tail[row], 0, line_bytes);
      __builtin_memcpy(tail[row], rows[row] + full * line_bytes, static_cast<unsigned long>(rest));
      w[row] = tail[row];
    }
    multiply_w4_line<Decoder, mr, nr>(decoder, args, x, w, full, scale_of_lane, totals);
  }
#pragma GCC unroll 16
  for (int m = 0; m < mr; ++m)
#pragma GCC unroll 4
    for (int row = 0; row < nr; ++row)
      if (row < args.rows) args.c[m * args.ldc + row] = sum(totals[m][row]);
}

/// Vector j of a line has element j of each lane; with pairs, elements j and j + 4.
template <typename Element, bool pairs>
void pack_w4_x(const W4PackArgs& args) {
  constexpr int vectors = pairs ? 4 : 8;
  const auto* from = static_cast<const Element*>(args.x);
  char* to = static_cast<char*>(args.out);
  for (long line = 0; line < args.lines; ++line, to += args.line_bytes, from += lanes * lane_elements)
    for (int j = 0; j < vectors; ++j) {
      auto* out = reinterpret_cast<Element*>(to + j * static_cast<int>(sizeof(Vec)));
      for (int lane = 0; lane < lanes; ++lane) {
        if constexpr (pairs) {
          out[2 * lane] = from[lane * lane_elements + j];
          out[2 * lane + 1] = from[lane * lane_elements + j + 4];
        } else {
          out[lane] = from[lane * lane_elements + j];
        }
      }
    }
}

/// As numbers/minifloat.h: 0 is 2^−127, which is subnormal, 255 is NaN.
struct E8m0Bits {
  static UVec widen(UVec code) {
    const UVec is_end = reinterpret_cast<UVec>((code == 0U) | (code == 255U));
    return code << 23 | (is_end & 0x00400000U);
  }
};
/// Zero point + 8 in each of four bytes.
struct ZeroPointBytes {
  static UVec widen(UVec code) { return ((code + 8U) & 0xffU) * 0x01010101U; }
};

template <typename Bits>
void widen_w4_bytes(const W4BytesArgs& args) {
  const auto* from = static_cast<const unsigned char*>(args.from);
  auto* to = static_cast<unsigned*>(args.to);
  const long whole = args.count / lanes * lanes;
  for (long i = 0; i < whole; i += lanes) store_as(to + i, Bits::widen(load_bytes(from + i)));
  if (whole == args.count) return;
  unsigned char rest[lanes] = {};
  __builtin_memcpy(rest, from + whole, static_cast<unsigned long>(args.count - whole));
  store_as(to + whole, Bits::widen(load_bytes(rest)));
}

/// Weights of int8 products are offset so that they are not negative, whatever the zero point.
constexpr int w4_offset = 16;

/// The even elements of each lane, the odd ones, then for each lane −offset · the sum of both.
inline void pack_w4_bytes(const W4PackArgs& args) {
  const auto* from = static_cast<const signed char*>(args.x);
  char* to = static_cast<char*>(args.out);
  for (long line = 0; line < args.lines; ++line, to += args.line_bytes)
    for (int lane = 0; lane < lanes; ++lane, from += lane_elements) {
      int total = 0;
      for (int i = 0; i < lane_elements; ++i) {
        to[i % 2 * static_cast<int>(sizeof(Vec)) + lane * 4 + i / 2] = static_cast<char>(from[i]);
        total += from[i];
      }
      const int start = -w4_offset * total;
      __builtin_memcpy(to + 2 * sizeof(Vec) + static_cast<unsigned long>(lane) * 4, &start, sizeof(start));
    }
}

/// The register tiles of 32 registers, and of 16.
template <typename Decoder>
struct W4Tiles {
  static constexpr W4Entry entries[] = {
      {1, 1, w4_kernel<Decoder, 1, 1>}, {1, 2, w4_kernel<Decoder, 1, 2>}, {2, 1, w4_kernel<Decoder, 2, 1>},
      {2, 2, w4_kernel<Decoder, 2, 2>}, {4, 1, w4_kernel<Decoder, 4, 1>}, {4, 2, w4_kernel<Decoder, 4, 2>},
      {8, 1, w4_kernel<Decoder, 8, 1>}, {8, 2, w4_kernel<Decoder, 8, 2>}, {16, 1, w4_kernel<Decoder, 16, 1>}};
  static constexpr W4List list = {entries, 9};
};
template <typename Decoder>
struct W4FewTiles {
  static constexpr W4Entry entries[] = {{1, 1, w4_kernel<Decoder, 1, 1>},
                                        {1, 2, w4_kernel<Decoder, 1, 2>},
                                        {2, 1, w4_kernel<Decoder, 2, 1>},
                                        {4, 1, w4_kernel<Decoder, 4, 1>},
                                        {8, 1, w4_kernel<Decoder, 8, 1>}};
  static constexpr W4List list = {entries, 5};
};

/// The tiles over `Decoder<Values>` for each format.
template <template <typename> class Tiles, template <typename> class Decoder>
constexpr W4Kernels w4_float_kernels(W4Pack pack) {
  using E2m1 = Decoder<E2m1Values>;
  using I4 = Decoder<I4Values<false>>;
  using I4ZeroPoints = Decoder<I4Values<true>>;
  return {.tiles = {Tiles<E2m1>::list, Tiles<I4>::list, Tiles<I4ZeroPoints>::list},
          .pack = pack,
          .widen_e4m3 = widen_w4_bytes<DecodeE4m3fn>,
          .widen_e8m0 = widen_w4_bytes<E8m0Bits>,
          .widen_zero_points = widen_w4_bytes<ZeroPointBytes>,
          .line_elements = lanes * lane_elements,
          .x_line_bytes = E2m1::x_line_bytes,
          .units = {E2m1::unit, I4::unit, I4ZeroPoints::unit}};
}
template <template <typename> class Tiles, template <typename> class Decoder>
constexpr W4Kernels w4_byte_kernels() {
  using I4 = Decoder<I4Values<false>>;
  return {.tiles = {{}, Tiles<I4>::list, Tiles<Decoder<I4Values<true>>>::list},
          .pack = pack_w4_bytes,
          .widen_e4m3 = widen_w4_bytes<DecodeE4m3fn>,
          .widen_e8m0 = widen_w4_bytes<E8m0Bits>,
          .widen_zero_points = widen_w4_bytes<ZeroPointBytes>,
          .line_elements = lanes * lane_elements,
          .x_line_bytes = I4::x_line_bytes};
}

}  // namespace
}  // namespace gemmtune::cpu
