#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"
#include "tuned/compress.h"
#include "tuned/coverage.h"
#include "tuned/difference.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

TunedEntry row(std::int64_t m, double us, const std::string& kernel = "asm_a", std::int64_t n = 2048) {
  TunedEntry entry;
  entry.gfx = "gfx950";
  entry.cu_num = 256;
  entry.problem.m = m;
  entry.problem.n = n;
  entry.problem.k = 1024;
  entry.us = us;
  entry.libtype = "asm";
  entry.kernel_name = kernel;
  return entry;
}

/// "M from m_from" of each row that stays.
std::string ranges(const std::vector<TunedEntry>& entries) {
  std::string text;
  for (const RangeRow& range : compress(entries)) {
    text += std::to_string(entries[range.entry].problem.m) + "<" + std::to_string(range.m_from) + " ";
  }
  return text;
}

std::vector<TunedEntry> compressed(const std::vector<TunedEntry>& entries) {
  std::vector<TunedEntry> rows;
  for (const RangeRow& range : compress(entries)) {
    rows.push_back(entries[range.entry]);
    if (range.m_from != 0) rows.back().m_from = range.m_from;
  }
  return rows;
}

TEST(Compress, NeighboursWithOneWinnerBecomeARange) {
  EXPECT_EQ(ranges({row(1, 5), row(2, 5), row(4, 6), row(8, 6, "asm_b"), row(16, 7)}), "4<1 8<0 16<0 ");
  EXPECT_EQ(ranges({row(16, 7), row(1, 5), row(8, 6)}), "16<1 ");
}

TEST(Compress, SplitIndexAndOtherGroupsKeepRowsApart) {
  TunedEntry split = row(2, 5);
  split.split_k = 2;
  TunedEntry index = row(4, 5);
  index.solidx = 7;
  EXPECT_EQ(ranges({row(1, 5), split, index, row(8, 5, "asm_a", 4096)}), "1<0 2<0 4<0 8<0 ");
}

TEST(Compress, FailedRowsStayAndAreNoPartOfARange) {
  EXPECT_EQ(ranges({row(1, 5), row(2, -1), row(4, 6)}), "2<0 4<1 ");
}

TEST(Compress, KnownRangesAreJoined) {
  TunedEntry range = row(8, 5);
  range.m_from = 3;
  EXPECT_EQ(ranges({range, row(16, 5)}), "16<3 ");
}

// What is padded to a merged row below the range is answered by the range.
TEST(Compress, ARangeBeginsWhereItsRowsWerePaddedTo) {
  EXPECT_EQ(ranges({row(64, 5), row(128, 6)}), "128<33 ");
  EXPECT_EQ(ranges({row(20, 5, "asm_b"), row(32, 5), row(48, 6)}), "20<0 48<17 ");
}

TEST(Compress, ARowThatARangeCannotAnswerForStays) {
  // Wide outputs: every M above 8192 is padded down to the row.
  EXPECT_EQ(ranges({row(8192, 500, "asm_a", 8192), row(16384, 900, "asm_a", 8192)}), "8192<0 16384<0 ");
  // M = 65 to 80 and 97 to 112 are padded to 128, M = 81 to 95 to 96.
  EXPECT_EQ(ranges({row(96, 5, "asm_b"), row(128, 6), row(160, 7)}), "96<0 128<0 160<0 ");
}

TEST(Compress, AnotherRangeKeepsWhatItAnswers) {
  TunedEntry wide = row(200, 9, "asm_b");
  wide.m_from = 1;
  EXPECT_EQ(ranges({row(16, 5), row(80, 6), wide}), "16<0 80<0 200<0 ");
}

TEST(Compress, EveryTunedMHasItsWinner) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<TunedEntry> entries;
    std::int64_t m = 0;
    for (int count = 0; count < 30; ++count) {
      m += 1 + static_cast<std::int64_t>(random.below(40));
      entries.push_back(row(m, 5 + random.uniform(), "asm_" + std::to_string(random.below(3)),
                            random.below(2) == 0 ? 512 : 8192));
      if (random.below(6) == 0) entries.back().gfx.clear();
    }
    const auto rows = compressed(entries);
    const Status same = check_same_winners(entries, rows);
    EXPECT_TRUE(same.ok()) << same.message();
  }
}

TEST(Compress, ALostPaddedAnswerIsSeen) {
  TunedEntry range = row(128, 6);
  range.m_from = 64;
  const Status status = check_same_winners({row(64, 5), row(128, 6)}, {range});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("M = 33: answered by no row, expected asm_a"));
}

TEST(Compress, ALostWinnerIsSeen) {
  const Status status = check_same_winners({row(1, 5), row(2, 5, "asm_b")}, {row(2, 5, "asm_b")});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("expected asm_a"));
}

std::string changes(const std::vector<TunedEntry>& before, const std::vector<TunedEntry>& after) {
  std::string text;
  for (const RowChange& change : compare_rows(before, after, 0.03).changes) {
    text += std::string(to_string(change.kind)) + ":" + std::to_string(change.row().problem.m) + " ";
  }
  return text;
}

TEST(Compare, EveryKindOfChange) {
  EXPECT_EQ(changes({row(1, 5), row(2, 10), row(4, 10), row(8, 5)},
                    {row(2, 10.4), row(4, 9.6), row(8, 5, "asm_b"), row(16, 5)}),
            "removed:1 slower:2 faster:4 winner:8 added:16 ");
}

TEST(Compare, WithinToleranceOrSpreadIsEqual) {
  EXPECT_EQ(changes({row(1, 10)}, {row(1, 10.29)}), "");
  TunedEntry before = row(1, 10);
  TunedEntry after = row(1, 10.3);
  before.spread = after.spread = 0.1;
  EXPECT_EQ(changes({before}, {after}), "slower:1 ");
  before.spread = 0.25;
  EXPECT_EQ(changes({before}, {after}), "");
}

// Issue 19, 8: a kernelId is a position in the candidate list of one build.
TEST(Compare, TheNumberOfANamedKernelIsNoWinner) {
  TunedEntry renumbered = row(1, 10);
  renumbered.solidx = 7;
  EXPECT_EQ(changes({row(1, 10)}, {renumbered}), "");
  TunedEntry by_number = row(1, 10);
  by_number.libtype = "hipblaslt";
  TunedEntry other = by_number;
  other.solidx = 7;
  EXPECT_EQ(changes({by_number}, {other}), "winner:1 ");
}

TEST(Compare, TheChosenRowOfAKeyCounts) {
  EXPECT_EQ(changes({row(1, 20, "asm_b"), row(1, 10)}, {row(1, 10)}), "");
  EXPECT_EQ(changes({row(1, 10)}, {row(1, -1)}), "untimed:1 ");
  EXPECT_EQ(changes({row(1, 0)}, {row(1, 10)}), "timed:1 ");
}

TEST(Compare, ARowWithoutGfxIsItsArchitectures) {
  TunedEntry without = row(1, 10);
  without.gfx.clear();
  EXPECT_EQ(changes({without}, {row(1, 10)}), "");
  without.cu_num = 128;
  EXPECT_EQ(changes({without}, {row(1, 10)}), "removed:1 added:1 ");
}

WorkloadShape shape(std::int64_t m, std::int64_t calls, std::int64_t n = 2048) {
  return {row(m, 0, "", n).problem, calls};
}

TEST(Coverage, LevelsAreWeightedByCallsAndTime) {
  TunedEntry range = row(64, 20, "asm_b");
  range.m_from = 40;
  const TunedTable table({row(4, 10), range, row(16, 12)});
  const std::vector<WorkloadShape> workload{shape(4, 100), shape(50, 10), shape(3, 5), shape(3, 1, 512)};
  const Coverage coverage = cover(table, "gfx950", 256, workload);
  EXPECT_EQ(coverage.at(Match::exact).us, 1000);
  EXPECT_EQ(coverage.at(Match::range).us, 200);
  EXPECT_EQ(coverage.at(Match::fine).us, 60);
  EXPECT_EQ(coverage.at(Match::untuned).calls, 1);
  EXPECT_EQ(coverage.total.calls, 116);
  const ServedShape& miss = coverage.shapes.back();
  EXPECT_TRUE(miss.estimated);
  // The median of 1.68, 13.4 and 5.59 TFLOP/s is that of M = 16.
  EXPECT_DOUBLE_EQ(miss.us, flops(miss.shape->problem) / (flops(row(16, 0).problem) / 12));
}

TEST(Coverage, MissesAreListedByCalls) {
  const std::vector<WorkloadShape> workload{shape(1, 5), shape(2, 50), shape(3, 7)};
  const Coverage coverage = cover(TunedTable({}), "gfx950", 256, workload);
  const auto misses = worst_misses(coverage, 2);
  ASSERT_EQ(misses.size(), 2U);
  EXPECT_EQ(misses[0]->shape->calls, 50);
  EXPECT_EQ(misses[1]->shape->calls, 7);
  EXPECT_EQ(misses[0]->us, 0);
  EXPECT_FALSE(misses[0]->estimated);
}

}  // namespace
}  // namespace gemmtune
