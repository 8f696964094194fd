#include "problem/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gemmtune {
namespace {

constexpr std::uintptr_t base = 1000;

std::vector<bool> bytes_of_lines(const MemoryLines& lines) {
  std::vector<bool> taken(600, false);
  for (std::int64_t group = 0; group < lines.groups; ++group)
    for (std::int64_t line = 0; line < lines.lines; ++line)
      for (std::int64_t byte = 0; byte < lines.line_bytes; ++byte)
        taken.at(lines.begin - base +
                 static_cast<std::size_t>(group * lines.group_pitch + line * lines.pitch + byte)) = true;
  return taken;
}

bool overlap_by_bytes(const MemoryLines& a, const MemoryLines& b) {
  const std::vector<bool> in_a = bytes_of_lines(a);
  const std::vector<bool> in_b = bytes_of_lines(b);
  for (std::size_t i = 0; i < in_a.size(); ++i)
    if (in_a[i] && in_b[i]) return true;
  return false;
}

TEST(Overlap, IsThatOfTheBytes) {
  constexpr unsigned seed = 7;
  std::mt19937 random(seed);
  const auto below = [&](int limit) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(limit));
  };
  int overlaps = 0;
  for (int i = 0; i < 5000; ++i) {
    MemoryLines matrices[2];
    const std::int64_t common = below(30);
    for (MemoryLines& one : matrices) {
      one = {base + static_cast<std::uintptr_t>(below(150)),
             below(12),
             below(5),
             below(30),
             1 + below(3),
             below(60)};
      if (below(2) == 0) one.pitch = common;
    }
    const bool expected = overlap_by_bytes(matrices[0], matrices[1]);
    overlaps += expected ? 1 : 0;
    ASSERT_EQ(share_a_byte(matrices[0], matrices[1]), expected) << "case " << i << " of seed " << seed;
    ASSERT_EQ(share_a_byte(matrices[1], matrices[0]), expected) << "case " << i << " of seed " << seed;
  }
  EXPECT_GT(overlaps, 1000);
  EXPECT_LT(overlaps, 4000);
}

TEST(Overlap, OfMatricesOfBillionsOfRowsIsFoundAtOnce) {
  const MemoryLines a{1 << 20, 64, std::int64_t{1} << 31, 128};
  MemoryLines b = a;
  b.begin += 64;
  EXPECT_FALSE(share_a_byte(a, b));
  b.line_bytes = 65;
  EXPECT_TRUE(share_a_byte(a, b));
}

}  // namespace
}  // namespace gemmtune
