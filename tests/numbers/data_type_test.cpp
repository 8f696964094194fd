#include "numbers/data_type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace gemmtune {
namespace {

std::uint32_t codes_of(const DataTypeTraits& row) { return row.bits == 32 ? 0 : 1U << row.bits; }

TEST(DataTypeTraits, EveryNumberOfATypeIsItsOwnNearestElement) {
  for (const DataTypeTraits& row : all_data_types()) {
    if (row.to_f32 == nullptr) continue;
    for (std::uint32_t code = 0; code < codes_of(row); ++code) {
      const float value = row.to_f32(code);
      if (!std::isfinite(value)) continue;
      // Quantized operands are symmetric.
      if ((row.type == DataType::i8 && value == -128) || (row.type == DataType::i4 && value == -8)) continue;
      EXPECT_EQ(row.to_f32(row.from_f32(value)), value) << row.name << ' ' << code;
      EXPECT_EQ(round_to(row.type, static_cast<double>(value)), static_cast<double>(value)) << row.name;
    }
  }
}

TEST(DataTypeTraits, WideningAnArrayIsReadingItsElements) {
  for (const DataTypeTraits& row : all_data_types()) {
    EXPECT_EQ(row.to_f32 == nullptr, row.widen == nullptr) << row.name;
    EXPECT_EQ(row.to_f32 == nullptr, row.from_f32 == nullptr) << row.name;
    if (row.widen == nullptr) continue;
    std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(row.type, 300)));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(37 * i + i / 7);
    for (const std::int64_t first : {0, 1, 37}) {
      std::vector<float> wide(200);
      row.widen(bytes, first, wide);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        const float one =
            row.to_f32(element_bits(row.type, bytes.data(), first + static_cast<std::int64_t>(i)));
        ASSERT_TRUE(wide[i] == one || (std::isnan(wide[i]) && std::isnan(one))) << row.name << ' ' << i;
      }
    }
  }
}

TEST(DataTypeTraits, NumbersOfTheTypes) {
  EXPECT_EQ(traits(DataType::bf16).to_f32(0x3f80), 1.0F);
  EXPECT_EQ(traits(DataType::f16).to_f32(0x3c00), 1.0F);
  EXPECT_EQ(traits(DataType::f8_e4m3fn).to_f32(0x7e), 448.0F);
  EXPECT_EQ(traits(DataType::f8_e4m3fnuz).to_f32(0x7f), 240.0F);
  EXPECT_EQ(traits(DataType::i8).to_f32(0xff), -1.0F);
  EXPECT_EQ(traits(DataType::f4_e2m1).to_f32(0xf), -6.0F);
  EXPECT_EQ(traits(DataType::i8).from_f32(1e9F), 127U);
  EXPECT_EQ(traits(DataType::i8).from_f32(-1e9F), 0x81U);
  EXPECT_TRUE(std::isinf(round_to(DataType::bf16, 1e300)));
  const std::uint8_t pair = 0x2f;  // elements 0xf and 0x2
  EXPECT_EQ(element_bits(DataType::f4_e2m1, &pair, 0), 0xfU);
  EXPECT_EQ(element_bits(DataType::f4_e2m1, &pair, 1), 0x2U);
}

// The one place that decides what the word of a type means on a device.
TEST(DataTypeTraits, TheWordFp8IsTheDevices) {
  for (const char* const word : {"fp8", "FP8", "f8", "torch.fp8", "dtypes.fp8"}) {
    EXPECT_EQ(data_type_on("gfx942", word), DataType::f8_e4m3fnuz) << word;
    for (const char* const architecture : {"", "gfx950", "gfx90a", "sm_90", "x86-avx2"})
      EXPECT_EQ(data_type_on(architecture, word), DataType::f8_e4m3fn) << word << " on " << architecture;
    EXPECT_EQ(parse_data_type(word), DataType::f8_e4m3fn) << word;
  }
  for (const DataTypeTraits& type : all_data_types()) {
    for (const char* const architecture : {"gfx942", "gfx950"}) {
      EXPECT_EQ(data_type_on(architecture, type.name), type.type) << "a full name says its form";
      EXPECT_EQ(data_type_on(architecture, type.torch), type.type);
    }
  }
}

}  // namespace
}  // namespace gemmtune
