// How a processor reads rows of a weight, and what skinny makes of it on a pretended processor.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "backends/cpu/families/skinny/skinny.h"

namespace gemmtune::cpu {
namespace {

KernelSet processor(Isa level, RowReads row_reads) {
  KernelSet set = kernel_set(level);
  set.row_reads = row_reads;
  return set;
}

Problem plain(std::int64_t m, std::int64_t n, std::int64_t k, DataType type) {
  return {.m = m, .n = n, .k = k, .x_type = type, .w_type = type, .y_type = type};
}

std::string tile_and_prefetch(const Problem& problem, RowReads row_reads) {
  const Config config = make_skinny_family(processor(Isa::avx512bf16, row_reads), 2)->default_config(problem);
  return fmt::format("mr{} nr{} pf{}", config.word("mr"), config.word("nr"), config.word("pf"));
}

class RowReadsOfAProcessor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernel_set(Isa::avx512bf16).at(Isa::avx512bf16) == nullptr) GTEST_SKIP() << "no kernels of x86";
  }
};

TEST(RowReads, AreInTurnOnZen5AndUnaidedOnZen4Alone) {
  EXPECT_EQ(row_reads_of("AuthenticAMD", 0x00b00f21), RowReads::in_turn) << "Zen 5";
  for (const std::uint32_t zen_4 : {0x00a10f11U, 0x00a60f12U, 0x00a70f41U, 0x00aa0f02U})
    EXPECT_EQ(row_reads_of("AuthenticAMD", zen_4), RowReads::unaided) << "Zen 4";
  for (const std::uint32_t zen_3 : {0x00a00f11U, 0x00a20f10U, 0x00a50f00U})
    EXPECT_EQ(row_reads_of("AuthenticAMD", zen_3), RowReads::side_by_side) << "Zen 3";
  EXPECT_EQ(row_reads_of("AuthenticAMD", 0x01000a21), RowReads::side_by_side)
      << "an extended family that does not count";
  EXPECT_EQ(row_reads_of("GenuineIntel", 0x000806f8), RowReads::side_by_side) << "Sapphire Rapids";
  EXPECT_EQ(row_reads_of("GenuineIntel", 0x00b00f21), RowReads::side_by_side)
      << "another vendor's family 1Ah";
  EXPECT_EQ(row_reads_of("GenuineIntel", 0x00a10f11), RowReads::side_by_side)
      << "another vendor's family 19h";
  EXPECT_EQ(kernel_set(Isa::scalar).row_reads, detect_row_reads());
}

TEST_F(RowReadsOfAProcessor, SkinnyReadsASingleRunWhereTheCoreReadsRowsInTurn) {
  for (const auto& [m, in_turn, side_by_side] : {std::tuple{1, "mr1 nr1 pf4096", "mr1 nr8 pf1024"},
                                                 {2, "mr2 nr1 pf4096", "mr2 nr8 pf1024"},
                                                 {3, "mr4 nr1 pf4096", "mr4 nr4 pf1024"},
                                                 {4, "mr4 nr1 pf4096", "mr4 nr4 pf1024"}})
    for (const DataType type : {DataType::bf16, DataType::f16}) {
      const Problem problem = plain(m, 3072, 1536, type);
      EXPECT_EQ(tile_and_prefetch(problem, RowReads::in_turn), in_turn) << print(problem);
      EXPECT_EQ(tile_and_prefetch(problem, RowReads::side_by_side), side_by_side) << print(problem);
    }
}

/// What was the fastest, or within a few percent of it, in bench/results/epyc_zen4/few_rows_unaided.csv.
TEST_F(RowReadsOfAProcessor, FewRowsAreReadAsTheProcessorPrefetchesWhereItReadsUnaided) {
  for (const auto& [m, k, expected] : {std::tuple{1, 1024, "mr1 nr1 pf0"},
                                       {1, 2048, "mr1 nr1 pf0"},
                                       {1, 8192, "mr1 nr8 pf0"},
                                       {2, 3072, "mr2 nr1 pf0"},
                                       {2, 8192, "mr2 nr8 pf0"},
                                       {4, 2048, "mr4 nr1 pf0"},
                                       {4, 3072, "mr2 nr8 pf0"},
                                       {8, 1024, "mr8 nr1 pf4096"},
                                       {8, 2048, "mr2 nr8 pf0"},
                                       {16, 1024, "mr16 nr16 pf1024"},
                                       {16, 2048, "mr16 nr16 pf1024"},
                                       {32, 2048, "mr2 nr8 pf0"}})
    EXPECT_EQ(tile_and_prefetch(plain(m, 4096, k, DataType::bf16), RowReads::unaided), expected)
        << m << " " << k;
  for (const auto& [m, expected] :
       {std::pair{1, "mr1 nr64 pf0"}, {4, "mr4 nr64 pf0"}, {8, "mr8 nr48 pf0"}, {16, "mr16 nr16 pf4096"}}) {
    Problem packed = plain(m, 4096, 2048, DataType::bf16);
    packed.weight_layout = WeightLayout::panel16;
    EXPECT_EQ(tile_and_prefetch(packed, RowReads::unaided), expected) << m << ", packed";
  }
  for (const DataType type : {DataType::f32, DataType::f16})
    EXPECT_EQ(tile_and_prefetch(plain(1, 3072, 2048, type), RowReads::unaided),
              tile_and_prefetch(plain(1, 3072, 2048, type), RowReads::side_by_side))
        << "not measured";
}

TEST_F(RowReadsOfAProcessor, OneAndTwoRowsRunVectorsWhereTilesAre) {
  if (kernel_set(Isa::amx).at(Isa::amx) == nullptr) GTEST_SKIP() << "no AMX kernels";
  const auto family = make_skinny_family(processor(Isa::amx, RowReads::side_by_side), 2);
  for (const auto& [m, isa] : {std::pair{1, "avx512bf16"}, {2, "avx512bf16"}, {4, "amx"}, {16, "amx"}}) {
    Problem problem = plain(m, 3072, 2048, DataType::bf16);
    EXPECT_EQ(family->default_config(problem).word("isa"), isa) << m;
    problem.weight_layout = WeightLayout::panel16;
    EXPECT_EQ(family->default_config(problem).word("isa"), isa) << m << ", packed";
  }
}

TEST_F(RowReadsOfAProcessor, ThirteenAndFourteenRowsHaveATileOfFourteen) {
  for (const int m : {13, 14}) {
    EXPECT_EQ(tile_and_prefetch(plain(m, 3072, 896, DataType::bf16), RowReads::in_turn), "mr14 nr1 pf4096");
    EXPECT_EQ(tile_and_prefetch(plain(m, 3072, 2048, DataType::bf16), RowReads::in_turn), "mr14 nr16 pf512");
  }
}

TEST_F(RowReadsOfAProcessor, EightRowsSideBySideAreFetchedNearWhereTheCoreReadsRowsInTurn) {
  for (const auto& [m, in_turn] :
       {std::pair{7, "mr8 nr16 pf512"}, {12, "mr12 nr16 pf512"}, {16, "mr16 nr16 pf512"}}) {
    const Problem problem = plain(m, 3072, 8192, DataType::bf16);
    EXPECT_EQ(tile_and_prefetch(problem, RowReads::in_turn), in_turn);
    EXPECT_THAT(tile_and_prefetch(problem, RowReads::side_by_side), ::testing::EndsWith("pf1024"));
  }
}

TEST_F(RowReadsOfAProcessor, ChangeNothingWhereASingleRunGainsNothing) {
  Problem packed = plain(1, 3072, 2048, DataType::bf16);
  packed.weight_layout = WeightLayout::panel16;
  const std::pair<const char*, Problem> cases[] = {
      {"f32", plain(1, 3072, 2048, DataType::f32)},
      {"packed", packed},
      {"32 KiB of packed x", plain(1, 2048, 16384, DataType::bf16)},
      {"32 KiB of packed x, two rows", plain(2, 2048, 8192, DataType::bf16)},
      {"32 KiB of packed x, four rows", plain(4, 4096, 4096, DataType::bf16)},
      {"32 KiB of x widened to f32", plain(1, 2048, 8192, DataType::f16)},
      {"several passes", plain(32, 3072, 512, DataType::bf16)}};
  for (const auto& [what, problem] : cases)
    EXPECT_EQ(tile_and_prefetch(problem, RowReads::in_turn),
              tile_and_prefetch(problem, RowReads::side_by_side))
        << what;
  EXPECT_EQ(tile_and_prefetch(plain(2, 2048, 8160, DataType::bf16), RowReads::in_turn), "mr2 nr1 pf4096")
      << "64 elements less";
}

/// bench/results/epyc_zen4/few_rows.csv, epyc_zen5/few_rows_untuned.csv and xeon_amx/few_rows_untuned.csv: ahead at each size.
TEST(RowReads, DecideUpToHowManyRowsSkinnyLeadsUntuned) {
  const auto rows_led = [](DataType type, std::int64_t k, RowReads row_reads,
                           std::string_view architecture = "x86-avx512bf16") {
    int rows = 0;
    for (int m = 1; m <= 600; ++m)
      if (skinny_leads_untuned(plain(m, 2048, k, type), architecture, row_reads)) {
        EXPECT_EQ(rows, m - 1) << "fewer rows lead too";
        rows = m;
      }
    return rows;
  };
  const std::tuple<DataType, std::int64_t, int, int> cases[] = {
      {DataType::bf16, 256, 16, 2}, {DataType::bf16, 8192, 16, 2}, {DataType::f16, 512, 0, 0},
      {DataType::f16, 896, 16, 0},  {DataType::f32, 256, 1, 1},    {DataType::f32, 8192, 1, 1}};
  for (const auto& [type, k, in_turn, side_by_side] : cases) {
    EXPECT_EQ(rows_led(type, k, RowReads::in_turn), in_turn) << to_string(type) << " " << k;
    EXPECT_EQ(rows_led(type, k, RowReads::side_by_side), side_by_side) << to_string(type) << " " << k;
    EXPECT_EQ(rows_led(type, k, RowReads::unaided), type == DataType::bf16 ? 16 : side_by_side)
        << to_string(type) << " " << k;
    for (const char* other : {"x86-scalar", "x86-avx2", "x86-avx512"})
      EXPECT_EQ(rows_led(type, k, RowReads::in_turn, other), 0) << other;
    for (const RowReads row_reads : {RowReads::in_turn, RowReads::side_by_side})
      EXPECT_EQ(rows_led(type, k, row_reads, "x86-amx"), type != DataType::bf16 ? 0
                                                         : k > 512              ? 600
                                                                                : 32)
          << to_string(type);
  }
  EXPECT_TRUE(skinny_leads_untuned(plain(8192, 1024, 2048, DataType::bf16), "x86-amx", RowReads::in_turn));
  Problem other = plain(1, 2048, 2048, DataType::bf16);
  other.y_type = DataType::f32;
  EXPECT_FALSE(skinny_leads_untuned(other, "x86-avx512bf16", RowReads::in_turn));
  other = plain(1, 2048, 2048, DataType::bf16);
  other.weight_layout = WeightLayout::any;
  EXPECT_FALSE(skinny_leads_untuned(other, "x86-avx512bf16", RowReads::in_turn));
  for (const auto& [m, k, leads] :
       {std::tuple{1, 2048, true}, {16, 513, true}, {17, 2048, false}, {1, 512, false}}) {
    other.m = m;
    other.k = k;
    EXPECT_EQ(skinny_leads_untuned(other, "x86-avx512bf16", RowReads::unaided), leads) << m << " " << k;
  }
}

/// What a search tries first and what an untuned call runs are one order.
TEST_F(RowReadsOfAProcessor, NoConfigOfTheSpaceIsPredictedFasterThanTheDefault) {
  for (const RowReads row_reads : {RowReads::in_turn, RowReads::side_by_side, RowReads::unaided})
    for (const Isa level : {Isa::avx2, Isa::avx512, Isa::avx512bf16})
      for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16})
        for (const std::int64_t m : {1, 2, 4})
          for (const std::int64_t k : {256, 896, 4096, 8192}) {
            const Problem problem = plain(m, 3072, k, type);
            const auto family = make_skinny_family(processor(level, row_reads), 2);
            const Config standard = family->default_config(problem);
            const double predicted = family->predicted_microseconds(problem, standard);
            for (const Config& config : family->space(problem).enumerate())
              EXPECT_GE(family->predicted_microseconds(problem, config), predicted)
                  << print(problem) << " " << to_string(level) << " " << config.text() << " before "
                  << standard.text();
          }
}

}  // namespace
}  // namespace gemmtune::cpu
