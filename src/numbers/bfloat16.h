// bf16 and fp16 as bit patterns: exact widening, round-to-nearest-even narrowing. Free of ISA extensions.
#pragma once

#include <bit>
#include <cstdint>

namespace gemmtune {

inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest, ties to even; a NaN stays a (quiet) NaN, overflow becomes infinity.
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/// IEEE 754 binary16 to binary32, subnormals and NaN included.
inline float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  // The exponents differ by 112: scaling by 2¹¹² as a float handles subnormals too, and exactly.
  return std::bit_cast<float>(
      sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1.0p112f));
}

/// Round to nearest, ties to even; above 65504 + half a step becomes infinity; NaN stays NaN.
inline std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    // Subnormal or zero: adding 0.5 puts the result's last bit at 2⁻²⁴, where the adder rounds for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  magnitude += 0xc8000fffU + ((magnitude >> 13) & 1U);  // exponent − 112, round half to even
  return static_cast<std::uint16_t>(sign | (magnitude >> 13));
}

}  // namespace gemmtune
