// 8-bit and 4-bit floats as bit patterns: exact widening, round-to-nearest-even narrowing that saturates.
// Free of ISA extensions.
//   OCP 8-bit Floating Point Specification 1.0: e4m3 ("fn": no infinity, NaN is S.1111.111, largest 448)
//   the fnuz form of AMD gfx94x: bias 8, no negative zero, NaN is 0x80, largest 240
//   OCP Microscaling Formats 1.0: e2m1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives) and e8m0 (a power of
//   two)
#pragma once

#include <bit>
#include <cstdint>

namespace gemmtune {

/// Sign, exponent and mantissa in this order from the top; codes above `max_code` are no numbers.
template <int exponent_bits, int mantissa_bits, int exponent_bias, unsigned max_code>
struct Minifloat {
  static constexpr unsigned sign_bit = 1U << (exponent_bits + mantissa_bits);
  static constexpr int shift = 23 - mantissa_bits;
  static constexpr unsigned rebias = static_cast<unsigned>(127 - exponent_bias) << 23;
  // The distance of subnormals, 2^(1 − bias − mantissa bits), as a float.
  static constexpr float step =
      std::bit_cast<float>(static_cast<std::uint32_t>(128 - exponent_bias - mantissa_bits) << 23);

  /// Requires a magnitude of at most max_code.
  static constexpr float widen(unsigned magnitude) {
    if (magnitude >> mantissa_bits == 0) return static_cast<float>(magnitude) * step;
    return std::bit_cast<float>((magnitude << shift) + rebias);
  }
  /// The nearest code of a number ≥ 0, ties to even; above the largest: the largest.
  static constexpr unsigned narrow(float magnitude) {
    const auto bits = std::bit_cast<std::uint32_t>(magnitude);
    constexpr std::uint32_t smallest_normal = (1U << 23) + rebias;
    std::uint32_t code = 0;
    if (bits < smallest_normal) {
      // The sum's last bit is one step: the adder rounds for us.
      const float shifted = magnitude + step * 0x1p23F;
      code = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(step * 0x1p23F);
    } else {
      code = (bits - rebias + (1U << (shift - 1)) - 1 + ((bits >> shift) & 1U)) >> shift;
    }
    return code < max_code ? code : max_code;
  }
};

using E4m3fn = Minifloat<4, 3, 7, 0x7e>;
using E4m3fnuz = Minifloat<4, 3, 8, 0x7f>;
using E2m1 = Minifloat<2, 1, 1, 0x7>;

inline bool is_nan_bits(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU) > 0x7f800000U;
}
inline unsigned sign_of(float value) { return std::bit_cast<std::uint32_t>(value) >> 31; }
inline float magnitude_of(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
}
inline float quiet_nan() { return std::bit_cast<float>(0x7fc00000U); }

inline float f8_e4m3fn_to_f32(std::uint8_t bits) {
  const unsigned magnitude = bits & 0x7fU;
  const float value = magnitude == 0x7f ? quiet_nan() : E4m3fn::widen(magnitude);
  return (bits & 0x80U) != 0 ? -value : value;
}
/// Beyond ±448, infinities too: ±448. NaN stays NaN.
inline std::uint8_t f32_to_f8_e4m3fn(float value) {
  const unsigned magnitude = is_nan_bits(value) ? 0x7fU : E4m3fn::narrow(magnitude_of(value));
  return static_cast<std::uint8_t>(magnitude | sign_of(value) << 7);
}

inline float f8_e4m3fnuz_to_f32(std::uint8_t bits) {
  if (bits == 0x80) return quiet_nan();
  const float value = E4m3fnuz::widen(bits & 0x7fU);
  return (bits & 0x80U) != 0 ? -value : value;
}
/// Beyond ±240, infinities too: ±240. NaN is 0x80; what rounds to −0 becomes 0.
inline std::uint8_t f32_to_f8_e4m3fnuz(float value) {
  if (is_nan_bits(value)) return 0x80;
  const unsigned magnitude = E4m3fnuz::narrow(magnitude_of(value));
  return static_cast<std::uint8_t>(magnitude == 0 ? 0 : magnitude | sign_of(value) << 7);
}

/// The low four bits count.
inline float e2m1_to_f32(std::uint8_t bits) {
  const float value = E2m1::widen(bits & 0x7U);
  return (bits & 0x8U) != 0 ? -value : value;
}
/// Beyond ±6: ±6. NaN, for which there is no code: 6.
inline std::uint8_t f32_to_e2m1(float value) {
  if (is_nan_bits(value)) return 0x7;
  return static_cast<std::uint8_t>(E2m1::narrow(magnitude_of(value)) | sign_of(value) << 3);
}

/// 2^(bits − 127); 255 is NaN.
inline float e8m0_to_f32(std::uint8_t bits) {
  if (bits == 255) return quiet_nan();
  return std::bit_cast<float>(bits == 0 ? 0x00400000U : static_cast<std::uint32_t>(bits) << 23);
}

}  // namespace gemmtune
