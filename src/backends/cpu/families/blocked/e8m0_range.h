// The e8m0 scales with which every element of a small type is a normal number of bf16, and so of every type that is multiplied.
// A block of 32 elements beyond that is decoded with the nearest scale that is within, and its sum is multiplied by the rest.
#pragma once

#include <bit>
#include <cstdint>

#include "numbers/data_type.h"

namespace gemmtune::cpu {

class E8m0Range {
 public:
  /// Of e2m1: 0.5 · 2^(least − 127) is 2^−126, 6 · 2^(most − 127) is 1.5 · 2^127. Of fp8 both forms have room.
  explicit E8m0Range(DataType type)
      : min_(type == DataType::f4_e2m1 ? 2 : 11),
        max_(type == DataType::f4_e2m1 ? 252 : 246),
        magnitude_(type == DataType::f4_e2m1     ? 0x77
                   : type == DataType::f8_e4m3fn ? 0x7f
                                                 : 0xff) {}
  /// Of weights whose sums have float32 scales of x to follow: sums of 128 products with elements of fp8 are finite, and each product is normal.
  static E8m0Range before_float_scales(DataType type) {
    E8m0Range range(type);
    range.min_ = 20;
    range.max_ = 228;
    return range;
  }

  /// True also of 255, NaN, which needs no other scale.
  bool contains(std::uint8_t code) const { return clamped(code) == code; }
  bool contains_all(const std::uint8_t* codes, std::int64_t count) const {
    unsigned beyond = 0;
    for (std::int64_t i = 0; i < count; ++i)
      beyond |= static_cast<unsigned>(codes[i] < min_) | static_cast<unsigned>(codes[i] > max_);
    return beyond == 0;
  }
  std::uint8_t clamped(std::uint8_t code) const {
    if (code < min_) return min_;
    return code > max_ && code != nan_code ? max_ : code;
  }
  /// What a sum with the clamped scale is multiplied by.
  float rest(std::uint8_t code) const {
    const int exponent = int{code} - int{clamped(code)};
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
  }
  /// Whether one of the bytes holds an element that is not zero: zeros need no other scale.
  bool any_element(const void* bytes, std::int64_t count) const {
    unsigned all = 0;
    for (std::int64_t i = 0; i < count; ++i) all |= static_cast<const std::uint8_t*>(bytes)[i];
    return (all & magnitude_) != 0;
  }

 private:
  static constexpr std::uint8_t nan_code = 255;

  std::uint8_t min_;
  std::uint8_t max_;
  unsigned magnitude_;  // the bits of a byte that are none of a sign
};

}  // namespace gemmtune::cpu
