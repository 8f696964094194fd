// Ranges beside each other: what new ones leave of old ones, and overlaps undone without another answer.
#include "tuned/range_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/random.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The range that answers, as look-up has it: the one with the smallest M.
std::optional<std::size_t> answering(const std::vector<RowSpan>& ranges, std::int64_t m) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].m_from > m || ranges[i].m < m) continue;
    if (!best || ranges[i].m < ranges[*best].m) best = i;
  }
  return best;
}

TEST(RangeRows, ACoveredRangeGoes) {
  EXPECT_TRUE(update_range({10, 20}, {{1, 15}, {16, 40}}).removed);
  EXPECT_THAT(update_range({10, 20}, {{1, 15}, {16, 40}}).lost, IsEmpty());
  EXPECT_TRUE(update_range({20, 20}, {{1, 40}}).removed);
}

TEST(RangeRows, ARangeIsCutFromBelow) {
  const RangeUpdate update = update_range({10, 50}, {{1, 20}});
  EXPECT_FALSE(update.removed);
  EXPECT_EQ(update.m_from, 21);
  EXPECT_THAT(update.lost, IsEmpty());
}

TEST(RangeRows, WhatLosesItsAnchorIsSaid) {
  EXPECT_THAT(update_range({10, 50}, {{30, 80}}).lost, ElementsAre(RowSpan{10, 29}));
  const RangeUpdate nested = update_range({10, 50}, {{20, 30}});
  EXPECT_FALSE(nested.removed);
  EXPECT_EQ(nested.m_from, 31);
  EXPECT_THAT(nested.lost, ElementsAre(RowSpan{10, 19}));
}

TEST(RangeRows, RowsOfOneMAndStrangersLeaveItAlone) {
  for (const std::vector<RowSpan>& fresh :
       {std::vector<RowSpan>{{20, 20}}, std::vector<RowSpan>{{1, 9}, {51, 60}}, std::vector<RowSpan>{}}) {
    const RangeUpdate update = update_range({10, 50}, fresh);
    EXPECT_FALSE(update.removed);
    EXPECT_EQ(update.m_from, 10);
    EXPECT_THAT(update.lost, IsEmpty());
  }
}

TEST(RangeRows, DisjointStartsKeepEveryAnswer) {
  const std::vector<RowSpan> two = {{1, 64}, {33, 128}};
  EXPECT_THAT(disjoint_starts(two), ElementsAre(1, 65));
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<RowSpan> ranges;
    for (std::int64_t m = 5; m <= 60; m += 5) {
      if (random.below(2) == 0)
        ranges.push_back({1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(m))), m});
    }
    const auto starts = disjoint_starts(ranges);
    std::vector<RowSpan> parted = ranges;
    for (std::size_t i = 0; i < ranges.size(); ++i) parted[i].m_from = starts[i];
    for (std::int64_t m = 1; m <= 61; ++m) ASSERT_EQ(answering(parted, m), answering(ranges, m)) << m;
  }
}

}  // namespace
}  // namespace gemmtune
