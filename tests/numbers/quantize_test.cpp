#include "numbers/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "numbers/minifloat.h"

namespace gemmtune {
namespace {

constexpr std::int64_t rows = 150;
constexpr std::int64_t columns = 300;
constexpr std::int64_t leading = 310;

std::vector<float> numbers() {
  Random random(11);
  std::vector<float> values(rows * leading);
  for (float& value : values)
    value = static_cast<float>((random.uniform() - 0.5) * std::exp2(random.uniform() * 8));
  return values;
}

double dequantized(QuantizedType type, std::uint8_t code) {
  if (type == QuantizedType::i8) return static_cast<std::int8_t>(code);
  return static_cast<double>(type == QuantizedType::f8_e4m3fn ? f8_e4m3fn_to_f32(code)
                                                              : f8_e4m3fnuz_to_f32(code));
}

/// Half the distance of neighbouring numbers around a magnitude, in units of the scale.
double half_step(QuantizedType type, double magnitude) {
  if (type == QuantizedType::i8) return 0.5;
  return std::max(magnitude * 0x1p-4, 0x1p-10);
}

struct Granularity {
  std::int64_t block_rows;
  std::int64_t block_columns;
  void (*quantize)(const FloatMatrix&, QuantizedType, void*, float*);
};

const Granularity granularities[] = {{rows, columns, quantize_per_tensor},
                                     {1, columns, quantize_per_token},
                                     {1, 128, quantize_1x128},
                                     {128, 128, quantize_128x128}};

TEST(Quantize, EachElementIsTheNearestUnderTheScaleOfItsBlock) {
  const std::vector<float> values = numbers();
  for (const Granularity& granularity : granularities)
    for (const auto type : {QuantizedType::i8, QuantizedType::f8_e4m3fn, QuantizedType::f8_e4m3fnuz}) {
      const std::int64_t across = (columns + granularity.block_columns - 1) / granularity.block_columns;
      const std::int64_t down = (rows + granularity.block_rows - 1) / granularity.block_rows;
      std::vector<std::uint8_t> elements(rows * columns);
      std::vector<float> scales(static_cast<std::size_t>(across * down), -1);
      std::vector<double> largest(scales.size());
      granularity.quantize({values.data(), rows, columns, leading}, type, elements.data(), scales.data());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto at =
              static_cast<std::size_t>(r / granularity.block_rows * across + c / granularity.block_columns);
          const double scale = scales[at];
          const double value = values[static_cast<std::size_t>(r * leading + c)];
          const double got = dequantized(type, elements[static_cast<std::size_t>(r * columns + c)]);
          ASSERT_NEAR(got, value / scale, half_step(type, std::fabs(value / scale)) * 1.0001)
              << r << ' ' << c;
          largest[at] = std::max(largest[at], std::fabs(got));
        }
      for (const double most : largest) EXPECT_EQ(most, static_cast<double>(largest_number(type)));
    }
}

TEST(Quantize, ZerosHaveTheScaleOne) {
  const std::vector<float> zeros(256);
  std::vector<std::uint8_t> elements(256, 7);
  float scales[2] = {};
  quantize_1x128({zeros.data(), 1, 256, 256}, QuantizedType::f8_e4m3fn, elements.data(), scales);
  EXPECT_EQ(scales[0], 1);
  EXPECT_EQ(scales[1], 1);
  EXPECT_TRUE(std::all_of(elements.begin(), elements.end(), [](std::uint8_t e) { return e == 0; }));
  std::uint8_t exponents[8] = {};
  quantize_mxfp4({zeros.data(), 1, 256, 256}, elements.data(), exponents);
  EXPECT_EQ(exponents[7], 127);
}

TEST(Quantize, Mxfp4HasThePowerOfTwoOfTheSpecification) {
  std::vector<float> values = numbers();
  values[0] = 1000;  // ⌊log₂⌋ = 9: scale 2⁷, and 1000 / 128 = 7.8 saturates at 6
  constexpr std::int64_t width = 288;
  std::vector<std::uint8_t> elements(rows * width / 2);
  std::vector<std::uint8_t> scales(rows * width / 32);
  quantize_mxfp4({values.data(), rows, width, leading}, elements.data(), scales.data());
  EXPECT_EQ(scales[0], 127 + 7);
  EXPECT_EQ(elements[0] & 15, 7);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c) {
      double largest = 0;
      for (std::int64_t i = 0; i < 32; ++i)
        largest = std::max(
            largest,
            std::fabs(static_cast<double>(values[static_cast<std::size_t>(r * leading + c / 32 * 32 + i)])));
      const int exponent = static_cast<int>(std::floor(std::log2(largest))) - 2;
      ASSERT_EQ(scales[static_cast<std::size_t>(r * (width / 32) + c / 32)], exponent + 127);
      const std::uint8_t byte = elements[static_cast<std::size_t>((r * width + c) / 2)];
      const auto code = static_cast<std::uint8_t>(c % 2 == 0 ? byte & 15 : byte >> 4);
      const double wanted =
          std::ldexp(static_cast<double>(values[static_cast<std::size_t>(r * leading + c)]), -exponent);
      const double nearest = std::clamp(wanted, -6.0, 6.0);
      const double step = std::fabs(nearest) > 4 ? 1 : std::fabs(nearest) > 2 ? 0.5 : 0.25;
      ASSERT_NEAR(static_cast<double>(e2m1_to_f32(code)), nearest, step) << r << ' ' << c;
    }
}

}  // namespace
}  // namespace gemmtune
