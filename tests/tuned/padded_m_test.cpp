#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "support/fixtures.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

TEST(PaddedM, StepsAtTheirBorders) {
  EXPECT_EQ(padded_m(1, 1, 0), 16);
  EXPECT_EQ(padded_m(256, 1, 0), 256);
  EXPECT_EQ(padded_m(257, 1, 0), 288);
  EXPECT_EQ(padded_m(1024, 1, 0), 1024);
  EXPECT_EQ(padded_m(1025, 1, 0), 1088);
  EXPECT_EQ(padded_m(4097, 1, 0), 4224);
  EXPECT_EQ(padded_m(0, 1, 1), 1);
  EXPECT_EQ(padded_m(3, 1, 1), 4);
  EXPECT_EQ(padded_m(8193, 4096, 1), 16384);
  EXPECT_EQ(padded_m(8193, 4097, 1), 8192);
  EXPECT_EQ(padded_m(max_dimension, 1, 1), std::int64_t{1} << 31);
}

TEST(PaddedM, AgreesWithTheOracle) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const auto content = read_file(folder + "/oracle_padded_m.csv");
  ASSERT_TRUE(content.ok()) << content.message();
  int checked = 0;
  for (const std::string_view line : split(*content, '\n')) {
    const auto cells = split(trim(line), ',');
    if (cells.size() < 4 || cells[0] == "M") continue;
    const std::int64_t m = *parse_integer(cells[0]);
    const std::int64_t n = *parse_integer(cells[1]);
    EXPECT_EQ(padded_m(m, n, 0), *parse_integer(cells[2])) << line;
    EXPECT_EQ(padded_m(m, n, 1), *parse_integer(cells[3])) << line;
    ++checked;
  }
  EXPECT_EQ(checked, 192);
}

}  // namespace
}  // namespace gemmtune
