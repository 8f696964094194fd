// Conversions of small floats against tables made here from the formats' definitions, over all values: every
// code widens to the table's number, and every number, every midpoint and the floats around them narrow to
// the nearest.
#include "numbers/minifloat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "numbers/bfloat16.h"

namespace gemmtune {
namespace {

/// A format by its definition: magnitudes in the order of their codes.
struct Format {
  std::string name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  unsigned largest;        // the code of the largest finite number
  bool overflows = false;  // to infinity (IEEE), else it saturates
  std::function<float(unsigned)> widen;
  std::function<unsigned(float)> narrow;
  bool negative_zero = true;

  double number(unsigned code) const {
    const unsigned exponent = code >> mantissa_bits;
    const double mantissa = code & ((1U << mantissa_bits) - 1);
    const double scale = std::ldexp(1.0, -mantissa_bits);
    if (exponent == 0) return std::ldexp(mantissa * scale, 1 - bias);
    return std::ldexp(1 + mantissa * scale, static_cast<int>(exponent) - bias);
  }
  unsigned sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }

  /// The code of the number nearest to `value`, the even one of two: found in the table, not computed.
  unsigned nearest(float value) const {
    const double magnitude = std::fabs(static_cast<double>(value));
    unsigned low = 0;
    unsigned high = largest;
    while (low + 1 < high) {
      const unsigned middle = (low + high) / 2;
      (number(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - number(low);
    const double above = number(high) - magnitude;
    unsigned code = below < above || (below == above && low % 2 == 0) ? low : high;
    if (magnitude > number(largest)) {
      const double next = 2 * number(largest) - number(largest - 1);
      const double half_way = (number(largest) + next) / 2;
      code = overflows && magnitude >= half_way ? largest + 1 : largest;
    }
    if (!std::signbit(value) || (code == 0 && !negative_zero)) return code;
    return code | sign_bit();
  }
};

std::vector<Format> formats() {
  return {
      {"f8_e4m3fn", 4, 3, 7, 0x7e, false,
       [](unsigned b) { return f8_e4m3fn_to_f32(static_cast<std::uint8_t>(b)); },
       [](float v) -> unsigned { return f32_to_f8_e4m3fn(v); }},
      {"f8_e4m3fnuz", 4, 3, 8, 0x7f, false,
       [](unsigned b) { return f8_e4m3fnuz_to_f32(static_cast<std::uint8_t>(b)); },
       [](float v) -> unsigned { return f32_to_f8_e4m3fnuz(v); }, false},
      {"e2m1", 2, 1, 1, 0x7, false, [](unsigned b) { return e2m1_to_f32(static_cast<std::uint8_t>(b)); },
       [](float v) -> unsigned { return f32_to_e2m1(v); }},
      {"bf16", 8, 7, 127, 0x7f7f, true, [](unsigned b) { return bf16_to_f32(static_cast<std::uint16_t>(b)); },
       [](float v) -> unsigned { return f32_to_bf16(v); }},
      {"f16", 5, 10, 15, 0x7bff, true, [](unsigned b) { return f16_to_f32(static_cast<std::uint16_t>(b)); },
       [](float v) -> unsigned { return f32_to_f16(v); }},
  };
}

class Conversions : public ::testing::TestWithParam<Format> {};

TEST_P(Conversions, WidenEveryCode) {
  const Format& format = GetParam();
  for (unsigned code = 0; code <= format.largest; ++code) {
    ASSERT_EQ(static_cast<double>(format.widen(code)), format.number(code)) << code;
    if (code == 0 && !format.negative_zero) continue;
    const float negative = format.widen(code | format.sign_bit());
    ASSERT_EQ(static_cast<double>(negative), -format.number(code)) << code;
    ASSERT_TRUE(std::signbit(negative)) << code;
  }
}

TEST_P(Conversions, NarrowEveryNumberMidpointAndNeighbour) {
  const Format& format = GetParam();
  const auto check = [&](float value) {
    for (const float signed_value : {value, -value})
      ASSERT_EQ(format.narrow(signed_value), format.nearest(signed_value)) << signed_value;
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (unsigned code = 0; code < format.largest; ++code) {
    const auto number = static_cast<float>(format.number(code));
    const auto middle = static_cast<float>((format.number(code) + format.number(code + 1)) / 2);
    for (const float value : {number, middle}) {
      check(value);
      if (value > 0) check(std::nextafter(value, 0.0F));
      check(std::nextafter(value, infinity));
    }
  }
  const auto largest = static_cast<float>(format.number(format.largest));
  for (const float value : {largest, std::nextafter(largest, infinity), largest * 1.0001F, largest * 1.05F,
                            std::numeric_limits<float>::max(), infinity})
    check(value);
}

TEST_P(Conversions, NarrowRandomFloats) {
  const Format& format = GetParam();
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(format.narrow(value), format.nearest(value)) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Conversions, ::testing::ValuesIn(formats()),
                         [](const auto& test) { return test.param.name; });

TEST(Minifloat, NotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(f8_e4m3fn_to_f32(0x7f)));
  EXPECT_TRUE(std::isnan(f8_e4m3fn_to_f32(0xff)));
  EXPECT_TRUE(std::isnan(f8_e4m3fnuz_to_f32(0x80)));
  EXPECT_EQ(f32_to_f8_e4m3fn(nan) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_f8_e4m3fnuz(nan), 0x80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(nan))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(nan))));
  EXPECT_EQ(f32_to_e2m1(nan), 0x7);
}

TEST(Minifloat, E8m0IsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const double value = std::ldexp(1.0, code - 127);
    EXPECT_EQ(static_cast<double>(e8m0_to_f32(static_cast<std::uint8_t>(code))), value);
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

}  // namespace
}  // namespace gemmtune
