#include "verify/element.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "numbers/bfloat16.h"

namespace gemmtune {
namespace {

using Table8 = std::array<float, 256>;

// OCP 8-bit floating point, E4M3: bias 7, no infinity, NaN is S.1111.111. The fnuz form of AMD gfx94x: bias
// 8, no negative zero, NaN is 0x80.
Table8 decode_table(bool fnuz) {
  Table8 table{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    const int bias = fnuz ? 8 : 7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - 3)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - bias - 3);
    if (fnuz ? bits == 0x80 : (bits & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<std::size_t>(bits)] = (bits & 0x80) != 0 ? -value : value;
  }
  return table;
}

Table8 int8_table() {
  Table8 table{};
  for (int bits = 0; bits < 256; ++bits)
    table[static_cast<std::size_t>(bits)] = static_cast<float>(bits - (bits >> 7) * 256);
  return table;
}

const Table8& table_of(DataType type) {
  static const Table8 fn = decode_table(false);
  static const Table8 fnuz = decode_table(true);
  static const Table8 i8 = int8_table();
  if (type == DataType::i8) return i8;
  return type == DataType::f8_e4m3fn ? fn : fnuz;
}

// OCP Microscaling Formats 1.0: sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> e2m1_table = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                              -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

std::uint32_t encode_f4(float value) {
  std::uint32_t best = 0;
  for (std::uint32_t bits = 0; bits < 16; ++bits)
    if (std::fabs(e2m1_table[bits] - value) < std::fabs(e2m1_table[best] - value)) best = bits;
  return best;
}

void read_f4(std::span<const std::byte> bytes, std::int64_t first, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::size_t>(first) + i;
    const auto pair = std::to_integer<unsigned>(bytes[at / 2]);
    out[i] = e2m1_table[at % 2 == 0 ? pair & 15U : pair >> 4];  // the even element is the low half
  }
}

// Slow and plain: only used for tables of a few thousand values.
std::uint32_t encode_f8(DataType type, float value) {  // and int8
  const Table8& table = table_of(type);
  std::uint32_t best = 0;
  for (std::uint32_t bits = 0; bits < 256; ++bits)
    if (std::fabs(table[bits] - value) < std::fabs(table[best] - value)) best = bits;
  return best;
}

}  // namespace

bool readable(DataType type) {
  return type == DataType::f32 || type == DataType::f16 || type == DataType::bf16 ||
         type == DataType::f8_e4m3fn || type == DataType::f8_e4m3fnuz || type == DataType::i8 ||
         type == DataType::f4_e2m1;
}

std::size_t element_bytes(DataType type) {
  if (type == DataType::f32) return 4;
  return type == DataType::f16 || type == DataType::bf16 ? 2 : 1;
}

void read_elements(DataType type, std::span<const std::byte> bytes, std::int64_t first,
                   std::span<float> out) {
  if (type == DataType::f4_e2m1) return read_f4(bytes, first, out);
  const std::byte* source = bytes.data() + static_cast<std::size_t>(first) * element_bytes(type);
  if (type == DataType::f32) {
    std::memcpy(out.data(), source, out.size_bytes());
    return;
  }
  if (element_bytes(type) == 1) {
    const Table8& table = table_of(type);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = table[std::to_integer<std::size_t>(source[i])];
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t element = 0;
    std::memcpy(&element, source + 2 * i, 2);
    out[i] = type == DataType::bf16 ? bf16_to_f32(element) : f16_to_f32(element);
  }
}

double round_to(DataType type, double value) {
  // Through float32, as kernels do: "added in float32 before the result is rounded" (docs/guide.md).
  const auto single = static_cast<float>(value);
  if (type == DataType::bf16) return bf16_to_f32(f32_to_bf16(single));
  if (type == DataType::f16) return f16_to_f32(f32_to_f16(single));
  return single;
}

std::uint32_t encode_element(DataType type, float value) {
  if (type == DataType::bf16) return f32_to_bf16(value);
  if (type == DataType::f16) return f32_to_f16(value);
  if (type == DataType::f32) return std::bit_cast<std::uint32_t>(value);
  return type == DataType::f4_e2m1 ? encode_f4(value) : encode_f8(type, value);
}

}  // namespace gemmtune
