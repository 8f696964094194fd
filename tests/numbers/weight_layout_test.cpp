#include "numbers/weight_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

namespace gemmtune {
namespace {

TEST(WeightLayout, NamesReadBack) {
  std::set<std::string_view> names;
  for (const WeightLayout layout : all_weight_layouts()) {
    EXPECT_EQ(parse_weight_layout(to_string(layout)), layout);
    EXPECT_TRUE(names.insert(to_string(layout)).second) << to_string(layout);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(WeightLayout::fragment64) + 1);
  EXPECT_EQ(to_string(WeightLayout::panel16), "panel16");
  EXPECT_EQ(parse_weight_layout("panel"), std::nullopt);
  EXPECT_EQ(parse_weight_layout(""), std::nullopt);
}

TEST(Panel16, SizesRoundUp) {
  const Panel16 shape{.n = 17, .k = 33, .element_bytes = 2, .pair = 2};
  EXPECT_EQ(shape.panels(), 2);
  EXPECT_EQ(shape.padded_k(), 64);
  EXPECT_EQ(shape.panel_bytes(), 64 * 16 * 2);
  EXPECT_EQ(shape.bytes(), 2 * 64 * 16 * 2);
}

class Panel16Shapes : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(Panel16Shapes, EveryElementStandsWhereTheLayoutSaysAndComesBack) {
  const auto [n, k, bytes] = GetParam();
  const Panel16 shape{.n = n, .k = k, .element_bytes = bytes, .pair = bytes == 2 ? 2 : 1};
  std::vector<unsigned char> plain(static_cast<std::size_t>(n) * k * bytes);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<unsigned char>(i * 7 % 255 + 1);
  std::vector<unsigned char> packed(static_cast<std::size_t>(shape.bytes()), 0xee);
  pack_panel16(shape, plain.data(), packed.data());

  // By the header's words: [panel][step of `pair` k][column][k within the step].
  const unsigned char* at = packed.data();
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel)
    for (std::int64_t step = 0; step < shape.padded_k() / shape.pair; ++step)
      for (std::int64_t column = 0; column < 16; ++column)
        for (std::int64_t inner = 0; inner < shape.pair; ++inner, at += bytes) {
          const std::int64_t row = panel * 16 + column;
          const std::int64_t depth = step * shape.pair + inner;
          const std::vector<unsigned char> zero(4, 0);
          const bool real = row < n && depth < k;
          const unsigned char* expected =
              real ? &plain[static_cast<std::size_t>((row * k + depth) * bytes)] : zero.data();
          ASSERT_EQ(std::memcmp(at, expected, static_cast<std::size_t>(bytes)), 0) << row << "," << depth;
        }

  std::vector<unsigned char> back(plain.size(), 0);
  unpack_panel16(shape, packed.data(), back.data());
  EXPECT_EQ(back, plain);
}

INSTANTIATE_TEST_SUITE_P(Awkward, Panel16Shapes,
                         ::testing::Combine(::testing::Values(1, 15, 16, 17, 33),
                                            ::testing::Values(1, 2, 31, 32, 33, 257),
                                            ::testing::Values(1, 2, 4)));

/// AITER's shuffle_weight(w, (16, 16)) as it is written there: a view [N/16, 16, K/32, 32/P, P] with P = 16
/// bytes, permuted to [N/16, K/32, 32/P, 16, P].
TEST(Tile16, IsThePermutationOfAiterAndRoundTrips) {
  for (const int size : {1, 2}) {
    const Tile16 shape{.n = 48, .k = 96, .element_bytes = size};
    ASSERT_TRUE(shape.fits());
    const std::int64_t chunk = 16 / size;
    std::vector<unsigned char> plain(static_cast<std::size_t>(shape.bytes()));
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<unsigned char>(i * 7 + i / 256);
    std::vector<unsigned char> expected;
    for (std::int64_t a = 0; a < shape.n / 16; ++a)
      for (std::int64_t b = 0; b < shape.k / 32; ++b)
        for (std::int64_t c = 0; c < 32 / chunk; ++c)
          for (std::int64_t row = 0; row < 16; ++row)
            for (std::int64_t byte = 0; byte < 16; ++byte)
              expected.push_back(plain[static_cast<std::size_t>(
                  ((a * 16 + row) * shape.k + b * 32 + c * chunk) * size + byte)]);
    std::vector<unsigned char> shuffled(plain.size());
    shuffle_tile16(shape, plain.data(), shuffled.data());
    EXPECT_EQ(shuffled, expected);
    std::vector<unsigned char> back(plain.size());
    unshuffle_tile16(shape, shuffled.data(), back.data());
    EXPECT_EQ(back, plain);
  }
}

TEST(Tile16, RefusesWhatIsNoMultiple) {
  EXPECT_FALSE((Tile16{.n = 24, .k = 64}).fits());
  EXPECT_FALSE((Tile16{.n = 32, .k = 48}).fits());
}

class Tile64Shapes : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(Tile64Shapes, EveryByteStandsWhereTheLayoutSaysAndComesBack) {
  const auto [n, k, bytes] = GetParam();
  const Tile64 shape{.n = n, .k = k, .element_bytes = bytes};
  EXPECT_EQ(shape.bytes() % (4 * 8192), 0);
  std::vector<unsigned char> plain(static_cast<std::size_t>(n) * k * bytes);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<unsigned char>(i * 7 % 255 + 1);
  std::vector<unsigned char> packed(static_cast<std::size_t>(shape.bytes()), 0xee);
  pack_tile64(shape, plain.data(), packed.data());

  // By the header's words: [tile of 64 rows][chunk of 128 bytes][row][unit of 16 bytes, swizzled].
  const unsigned char* at = packed.data();
  const std::int64_t row_bytes = std::int64_t{k} * bytes;
  for (std::int64_t tile = 0; tile < (n + 63) / 64; ++tile)
    for (std::int64_t chunk = 0; chunk < shape.row_chunks(); ++chunk)
      for (std::int64_t row = tile * 64; row < tile * 64 + 64; ++row)
        for (std::int64_t place = 0; place < 128; ++place, ++at) {
          const std::int64_t of_row = chunk * 128 + ((place / 16) ^ (row % 8)) * 16 + place % 16;
          const bool real = row < n && of_row < row_bytes;
          const int expected = real ? plain[static_cast<std::size_t>(row * row_bytes + of_row)] : 0;
          ASSERT_EQ(*at, expected) << row << "," << of_row;
        }
  EXPECT_EQ(at, packed.data() + packed.size());

  std::vector<unsigned char> back(plain.size(), 0);
  unpack_tile64(shape, packed.data(), back.data());
  EXPECT_EQ(back, plain);
}

INSTANTIATE_TEST_SUITE_P(Awkward, Tile64Shapes,
                         ::testing::Values(std::tuple{1, 1, 2}, std::tuple{64, 256, 2},
                                           std::tuple{65, 257, 2}, std::tuple{130, 512, 1},
                                           std::tuple{7, 77, 4}, std::tuple{200, 8, 1}));

}  // namespace
}  // namespace gemmtune
