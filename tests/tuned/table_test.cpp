#include "tuned/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string_view>

#include "base/random.h"

namespace gemmtune::table_test {
namespace {

TunedEntry row(std::int64_t m, double us, const std::string& kernel = "tiled_r1_mr8") {
  TunedEntry entry;
  entry.gfx = "gfx950";
  entry.cu_num = 256;
  entry.problem.m = m;
  entry.problem.n = 2048;
  entry.problem.k = 1024;
  entry.us = us;
  entry.kernel_name = kernel;
  return entry;
}

LookupKey key_for(const TunedEntry& entry, std::int64_t m) {
  LookupKey key{entry.gfx, entry.cu_num, entry.problem};
  key.problem.m = m;
  return key;
}

std::string levels(std::span<const LookupHit> hits) {
  std::string text;
  for (const LookupHit& hit : hits) {
    text += std::string(to_string(hit.match)) + ":" + std::to_string(hit.hit_m) + " ";
  }
  return text;
}

TEST(Verdicts, EveryWordIsReadBack) {
  std::set<std::string_view> words;
  for (const Verdict verdict : all_verdicts()) {
    EXPECT_EQ(parse_verdict(to_string(verdict)), verdict);
    EXPECT_TRUE(words.insert(to_string(verdict)).second) << to_string(verdict);
  }
  EXPECT_EQ(words.size(), static_cast<std::size_t>(Verdict::default_untimed) + 1);
  EXPECT_EQ(to_string(Verdict::keep_default), "default");
  EXPECT_FALSE(parse_verdict("Win").has_value());
}

TEST(Table, LevelsComeInAitersOrder) {
  const TunedTable table({row(4, 1), row(16, 1), row(3, 1)});
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 3))), "exact:3 fine:16 coarse:4 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 2))), "fine:16 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 16))), "exact:16 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 17))), "");
}

TunedEntry row_of_class(std::int64_t m, const char* bits) {
  TunedEntry entry = row(m, 1);
  entry.bits = bits;
  return entry;
}

TEST(InvariantGroup, EveryMIsAnsweredByTheNearestRowOfTheClass) {
  const TunedTable table({row_of_class(4, "f32-a"), row_of_class(16, "f32-a"), row_of_class(100, "f32-a")});
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 16))), "exact:16 range:4 range:100 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 1))), "range:4 range:16 range:100 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 8))), "range:16 range:4 range:100 ") << "8 / 4 is 16 / 8";
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 7))), "range:4 range:16 range:100 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), max_dimension))), "range:100 range:16 range:4 ");
  EXPECT_EQ(levels(table.lookup_invariant(key_for(row(0, 1), 7))), "range:4 range:16 range:100 ");
}

TEST(InvariantGroup, RowsWithoutTheClassDoNotAnswer) {
  TunedEntry range = row(64, 1);
  range.m_from = 2;
  const TunedTable table(
      {row_of_class(4, "f32-a"), row_of_class(8, "f32-b"), row_of_class(16, "f32-b"), row(3, 1), range});
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 3))), "range:8 range:16 ")
      << "the class with the most rows";
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 64))), "range:16 range:8 ");
}

TEST(InvariantGroup, ALookUpHasAllRowsWhereTheFirstOnesCannotRun) {
  std::vector<TunedEntry> rows;
  for (std::int64_t m = 1; m <= 12; ++m) rows.push_back(row_of_class(m, "f32-a"));
  const TunedTable table(std::move(rows));
  EXPECT_LT(table.lookup(key_for(row(0, 1), 5)).size(), 12U);
  EXPECT_EQ(table.lookup_invariant(key_for(row(0, 1), 5)).size(), 12U);
}

TEST(InvariantGroup, OthersAreLookedUpAsEver) {
  TunedEntry other = row_of_class(4, "f32-a");
  other.problem.n = 64;
  const TunedTable table({other, row(4, 1)});
  EXPECT_TRUE(table.lookup_invariant(key_for(row(0, 1), 4)).empty());
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 3))), "coarse:4 ");
}

TEST(Table, CoarseRoundsDownAboveEightThousandForWideOutputsOnly) {
  TunedEntry wide = row(8192, 100);
  wide.problem.n = 8192;
  const TunedTable table({wide, row(8192, 100)});
  EXPECT_EQ(levels(table.lookup(key_for(wide, 20000))), "coarse:8192 ");
  EXPECT_EQ(levels(table.lookup(key_for(wide, max_dimension))), "coarse:8192 ");
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), 20000))), "");
  EXPECT_EQ(table.lookup(key_for(wide, max_dimension))[0].entry, &table.entries()[0]);
}

TEST(Table, RangeComesAfterExactAndBeforePadding) {
  TunedEntry range = row(48, 1);
  range.m_from = 20;
  const TunedTable table({range, row(32, 1), row(64, 1)});
  EXPECT_EQ(levels(table.lookup(key_for(range, 19))), "fine:32 ");
  EXPECT_EQ(levels(table.lookup(key_for(range, 20))), "range:48 fine:32 ");
  EXPECT_EQ(levels(table.lookup(key_for(range, 32))), "exact:32 range:48 ");
  EXPECT_EQ(levels(table.lookup(key_for(range, 40))), "range:48 coarse:64 ");
  EXPECT_EQ(levels(table.lookup(key_for(range, 49))), "fine:64 ");
}

TEST(Table, NonsenseRangesArePlainRows) {
  TunedEntry above = row(48, 1);
  above.m_from = 49;
  TunedEntry negative = row(96, 1);
  negative.m_from = -5;
  const TunedTable table({above, negative});
  EXPECT_EQ(levels(table.lookup(key_for(above, 48))), "exact:48 ");
  EXPECT_EQ(levels(table.lookup(key_for(above, 1))), "");
}

TEST(Table, SmallestValidTimeWinsAndTiesKeepTheFirst) {
  const double infinity = std::numeric_limits<double>::infinity();
  const TunedTable table({row(1, 0, "a"), row(1, 5, "b"), row(1, 3, "c"), row(1, 3, "d"), row(1, -1, "e"),
                          row(1, infinity, "f"), row(1, std::nan(""), "g"), row(2, 1, "h")});
  const auto hits = table.lookup(key_for(row(0, 1), 1));
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].entry->kernel_name, "c");
  EXPECT_EQ(table.entries().size(), 8U);
}

TEST(Table, InvalidTimesNeverAnswer) {
  const TunedTable table({row(16, 0), row(32, -1), row(64, std::numeric_limits<double>::infinity())});
  for (const std::int64_t m : {1, 16, 32, 64}) EXPECT_TRUE(table.lookup(key_for(row(0, 1), m)).empty()) << m;
}

// Issue 19, 18: us = 1e-6 beats every good row, and serves hundreds of times slower.
TEST(Table, ImpossibleRatesAndErrorsAboveTheLimitNeverAnswer) {
  TunedEntry wrong = row(16, 1, "wrong");
  wrong.err_ratio = 0.06;
  const TunedTable table({row(16, 1e-6, "impossible"), wrong, row(16, 9, "good"), row(64, 1e-6)});
  const auto hits = table.lookup(key_for(row(0, 1), 16));
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].entry->kernel_name, "good");
  EXPECT_TRUE(table.lookup(key_for(row(0, 1), 64)).empty());
  EXPECT_EQ(table.entries().size(), 4U);
}

// Issue 19, 10: a type that is not known here is a text of the key.
TEST(Table, UnknownTypesAreLookedUpAsText) {
  TunedEntry unknown = row(16, 1, "of_uint32");
  unknown.unknown_types = "q_dtype_w=torch.uint32";
  const TunedTable table({row(16, 9, "known"), unknown});
  LookupKey key = key_for(row(0, 1), 16);
  EXPECT_EQ(table.lookup(key)[0].entry->kernel_name, "known");
  key.unknown_types = unknown.unknown_types;
  EXPECT_EQ(table.lookup(key)[0].entry->kernel_name, "of_uint32");
  key.unknown_types = "q_dtype_w=torch.uint64";
  EXPECT_TRUE(table.lookup(key).empty());
}

TEST(Table, RowsWithoutGfxAnswerAmdDevicesOnly) {
  TunedEntry legacy = row(16, 1, "legacy");
  legacy.gfx.clear();
  TunedEntry legacy_too = row(32, 1, "legacy32");
  legacy_too.gfx.clear();
  const TunedTable table({legacy, row(16, 9, "named"), legacy_too});
  LookupKey key = key_for(row(0, 1), 16);
  EXPECT_EQ(table.lookup(key)[0].entry->kernel_name, "named");
  key.problem.m = 32;
  EXPECT_EQ(table.lookup(key)[0].entry->kernel_name, "legacy32");
  key.gfx = "gfx1250";
  key.problem.m = 16;
  EXPECT_EQ(table.lookup(key)[0].entry->kernel_name, "legacy");
  for (const char* other : {"x86-avx2", "sm_90"}) {
    key.gfx = other;
    EXPECT_TRUE(table.lookup(key).empty()) << other;
  }
  key.gfx = "gfx950";
  key.cu_num = 80;
  EXPECT_TRUE(table.lookup(key).empty());
}

TEST(Table, EveryKeyColumnSeparatesGroups) {
  const TunedEntry base = row(16, 1);
  const TunedTable table({base});
  std::vector<LookupKey> others(10, key_for(base, 16));
  others[0].gfx = "gfx942";
  others[1].cu_num = 255;
  others[2].problem.n = 2049;
  others[3].problem.k = 1025;
  others[4].problem.bias = true;
  others[5].problem.x_type = others[5].problem.w_type = DataType::f16;
  others[6].problem.y_type = DataType::f32;
  others[7].problem.scale_ab = true;
  others[8].problem.weight_layout = WeightLayout::any;
  others[9].problem.w_order = Order::column_major;
  for (std::size_t index = 0; index < others.size(); ++index) {
    EXPECT_TRUE(table.lookup(others[index]).empty()) << index;
  }
  // Layout and alignment are no part of the key: the kernel's name holds the layout.
  LookupKey aligned = key_for(base, 16);
  aligned.problem.alignment = 64;
  EXPECT_EQ(table.lookup(aligned).size(), 1U);
}

TEST(Table, AnEmptyTableAndOutOfRangeMAreUntuned) {
  const TunedTable empty({});
  EXPECT_TRUE(empty.lookup(key_for(row(0, 1), 1)).empty());
  const TunedTable table({row(1, 1), row(max_dimension, 1e7)});
  for (const std::int64_t m : {std::int64_t{0}, std::int64_t{-1}, max_dimension + 1}) {
    EXPECT_TRUE(table.lookup(key_for(row(0, 1), m)).empty()) << m;
  }
  EXPECT_EQ(levels(table.lookup(key_for(row(0, 1), max_dimension))), "exact:2147483647 ");
  EXPECT_TRUE(table.lookup(key_for(row(0, 1), max_dimension - 1)).empty());
}

// ---- an independent model: the rules, row by row ----------------------------------------------------------

std::int64_t model_fine(std::int64_t m) {
  const std::int64_t step = m <= 256 ? 16 : m <= 1024 ? 32 : m <= 4096 ? 64 : 128;
  while (m % step != 0) ++m;
  return m;
}

std::int64_t model_coarse(std::int64_t m, std::int64_t n) {
  if (m > 8192 && n > 4096) return 8192;
  std::int64_t power = 1;
  while (power < m) power <<= 1;
  return power;
}

const TunedEntry* model_at(const std::vector<TunedEntry>& entries, std::int64_t m) {
  const TunedEntry* best = nullptr;
  for (const TunedEntry& entry : entries) {
    if (entry.problem.m != m || !(entry.us > 0) || std::isinf(entry.us)) continue;
    if (best == nullptr || entry.us < best->us) best = &entry;
  }
  return best;
}

std::vector<LookupHit> model(const std::vector<TunedEntry>& entries, std::int64_t m, std::int64_t n) {
  std::vector<LookupHit> hits;
  const auto add = [&](Match match, const TunedEntry* entry) {
    if (entry == nullptr) return;
    for (const LookupHit& hit : hits) {
      if (hit.entry == entry) return;
    }
    hits.push_back({match, entry->problem.m, entry});
  };
  add(Match::exact, model_at(entries, m));
  const TunedEntry* range = nullptr;
  for (const TunedEntry& entry : entries) {
    if (!entry.m_from || *entry.m_from > m || m > entry.problem.m) continue;
    if (model_at(entries, entry.problem.m) != &entry) continue;
    if (range == nullptr || entry.problem.m < range->problem.m) range = &entry;
  }
  add(Match::range, range);
  add(Match::fine, model_at(entries, model_fine(m)));
  add(Match::coarse, model_at(entries, model_coarse(m, n)));
  return hits;
}

std::vector<TunedEntry> random_rows(Random& random, std::int64_t n) {
  std::vector<TunedEntry> entries;
  const auto count = 1 + random.below(40);
  for (std::uint64_t index = 0; index < count; ++index) {
    // Plain sizes, multiples of the steps and powers of two, so that every level has something to find.
    std::int64_t m = 1 + static_cast<std::int64_t>(random.below(300));
    const auto kind = random.below(4);
    if (kind == 1) m *= 64;
    if (kind == 2) m = std::int64_t{1} << random.below(15);
    if (kind == 3) m *= 16;
    const double times[] = {200, 100, 100, 300, 0};
    TunedEntry entry = row(m, times[random.below(5)]);
    entry.problem.n = n;
    if (random.below(4) == 0) entry.m_from = 1 + static_cast<std::int64_t>(random.below(m));
    entries.push_back(entry);
  }
  return entries;
}

TEST(Table, AgreesWithTheRulesOnRandomTables) {
  Random random(17);
  for (int round = 0; round < 25; ++round) {
    const std::int64_t n = round % 2 == 0 ? 4096 : 4097;
    const TunedTable table(random_rows(random, n));
    const auto& entries = table.entries();
    LookupKey key = key_for(entries[0], 1);
    const std::int64_t step = round < 3 ? 1 : 1 + static_cast<std::int64_t>(random.below(23));
    for (std::int64_t m = 1; m <= 20000; m += step) {
      key.problem.m = m;
      const auto expected = model(entries, m, n);
      const auto hits = table.lookup(key);
      ASSERT_EQ(levels(hits), levels(expected)) << "round " << round << " m " << m;
      for (std::size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i].entry, expected[i].entry) << m;
    }
  }
}

// ---- fewer threads ------------------------------------------------------------------------------------------

TunedEntry cpu_row(std::int64_t m, int threads, std::string name) {
  TunedEntry one = row(m, 1, std::move(name));
  one.gfx = "x86-avx2";
  one.cu_num = threads;
  one.us = 1e5;  // a CPU takes that long
  return one;
}

std::string fewer_threads(const TunedTable& table, int threads, std::int64_t m,
                          const char* gfx = "x86-avx2") {
  LookupKey key = key_for(cpu_row(0, threads, ""), m);
  key.gfx = gfx;
  const auto hit = table.lookup_fewer_threads(key);
  if (!hit) return "";
  EXPECT_EQ(hit->match, Match::fewer_threads);
  return hit->entry->kernel_name + ":" + std::to_string(hit->hit_m);
}

TEST(Table, FewerThreadsAreTheNearestSmallerNumberThatHasAnAnswer) {
  const TunedTable table({cpu_row(16, 1, "one"), cpu_row(4, 2, "two"), cpu_row(16, 8, "eight")});
  EXPECT_EQ(fewer_threads(table, 4, 4), "two:4");
  EXPECT_EQ(fewer_threads(table, 4, 16), "one:16") << "two threads have no row of this M";
  EXPECT_EQ(fewer_threads(table, 4, 3), "two:4") << "padded as among rows of its own";
  EXPECT_EQ(fewer_threads(table, 2, 16), "one:16");
  EXPECT_EQ(fewer_threads(table, 1, 16), "") << "more threads do not answer";
  EXPECT_EQ(fewer_threads(table, 16, 16), "eight:16");
  EXPECT_EQ(fewer_threads(table, 4, 16, "x86-avx512"), "");
  EXPECT_TRUE(table.lookup(key_for(cpu_row(0, 4, ""), 16)).empty()) << "no level of an ordinary look-up";
}

TEST(Table, FewerComputeUnitsOfAGpuAnswerNothing) {
  TunedEntry fewer = row(16, 1, "fewer");
  fewer.cu_num = 80;
  const TunedTable table({fewer});
  LookupKey key = key_for(fewer, 16);
  key.cu_num = 304;
  EXPECT_FALSE(table.lookup_fewer_threads(key));
}

}  // namespace
}  // namespace gemmtune::table_test
