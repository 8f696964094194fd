// Triton configs as tables: AITER's files, where they are here, and many files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <map>

#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_lookup.h"
#include "resolve/table_set.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// AITER's real files: the bucket of every M that a look-up finds.
TEST(TritonFixtures, AreLookedUp) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const std::string head = fixtures + "/aiter/ops/triton/configs";
  // The files of FP4 batches are of no operation here; the others answer.
  const TableSet tables = load_table_set({{OperationForm(Operation::a16w16), head}});
  ASSERT_TRUE(tables.first_fault().ok()) << tables.describe();
  EXPECT_THAT(tables.sources, SizeIs(7));
  std::size_t buckets = 0;
  for (const TableSource& source : tables.sources) buckets += source.rows;
  EXPECT_EQ(buckets, 45U);
  std::map<std::string, int> answers;
  const auto ask = [&](const std::string& gfx, Problem problem, std::int64_t n, std::int64_t k) {
    problem.n = n;
    problem.k = k;
    for (const std::int64_t m : {1, 8, 9, 16, 17, 64, 100, 255, 256, 512, 513, 1023, 1024, 100000}) {
      problem.m = m;
      const auto hits = tables.lookup({gfx, 256, problem});
      ASSERT_THAT(hits, SizeIs(1)) << gfx << ' ' << m;
      const TunedEntry& row = *hits[0].entry;
      // By AITER's own rule in the file that its path rule finds.
      const auto file = read_triton_json(tables.path_of(row));
      ASSERT_TRUE(file.ok());
      const auto match = find_bucket(*file, m);
      ASSERT_TRUE(match);
      EXPECT_EQ(row.bucket, match->bucket->key) << m;
      EXPECT_EQ(row.kernel_name, triton_config_text(match->bucket->config));
      ++answers[std::filesystem::path(tables.path_of(row)).filename().string()];
    }
  };
  const Problem blockscale = default_problem(Operation::a8w8_blockscale);
  ask("gfx950", blockscale, 2112, 7168);
  ask("gfx950", blockscale, 512, 7168);
  ask("gfx942", blockscale, 2112, 7168);
  ask("gfx1201", blockscale, 2112, 7168);
  ask("gfx1201", blockscale, 2112, 7169);
  ask("gfx950", default_problem(Operation::a4w4_blockscale), 512, 512);
  Problem moe = default_problem(Operation::fused_moe);
  moe.x_type = moe.w_type = DataType::f8_e4m3fnuz;
  moe.moe.experts = 8;
  ask("gfx942", moe, 256, 512);
  EXPECT_THAT(answers, ElementsAre(std::pair("DEFAULT.json", 14),
                                   std::pair("gfx1201-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json", 14),
                                   std::pair("gfx1201-GEMM-A8W8_BLOCKSCALE.json", 14),
                                   std::pair("gfx942-GEMM-A8W8_BLOCKSCALE.json", 14),
                                   std::pair("gfx942-MOE-FP8_W8A8.json", 14),
                                   std::pair("gfx950-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json", 14),
                                   std::pair("gfx950-GEMM-A8W8_BLOCKSCALE.json", 14)));
}

/// The scheme before December 2025, under its own names.
TEST(TritonFixtures, OfTheOldSchemeAreLookedUp) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const TableSet tables = load_table_set({{std::nullopt, fixtures + "/legacy-2025-12-triton"}});
  ASSERT_THAT(tables.sources, SizeIs(3));
  Problem problem = default_problem(Operation::a8w8_blockscale);
  problem.n = 2112;
  problem.k = 7168;
  for (const auto& [m, key] : {std::pair(31, "small"),
                               {32, "medium_M32"},
                               {33, "medium_M64"},
                               {128, "medium_M128"},
                               {129, "any"},
                               {5000, "any"}}) {
    problem.m = m;
    const auto hits = tables.lookup({"gfx950", 256, problem});
    ASSERT_THAT(hits, SizeIs(1)) << m;
    EXPECT_EQ(hits[0].entry->bucket, key) << m;
  }
}

/// Files of no operation here, and files that are none, are said; a folder's other files are read.
TEST(TritonTables, WhatCannotBeReadIsSaid) {
  test::TemporaryFolder folder;
  folder.write("c/gfx950-GEMM-A16WFP6.json", R"({"any": {}})");
  folder.write("c/gfx950-GEMM-A8W8.json", R"({"any": {}})");
  folder.write("c/moe/gfx950-MOE-DEFAULT.json", R"({"any": 3})");
  folder.write("empty/x.txt", "");
  const TableSet tables = load_table_set({{std::nullopt, folder.file("c")}});
  ASSERT_THAT(tables.sources, SizeIs(2));
  EXPECT_TRUE(tables.sources[0].state.ok());
  EXPECT_THAT(tables.first_fault().message(), HasSubstr("gfx950-MOE-DEFAULT.json:1: column any: value '3'"));
  const auto state = [&](const std::string& path) {
    return load_table_set({{std::nullopt, folder.file(path)}}).sources[0].state.message();
  };
  EXPECT_THAT(state("c/gfx950-GEMM-A16WFP6.json"),
              HasSubstr("'GEMM-A16WFP6', which is no operation of gemmtune"));
  EXPECT_THAT(state("empty"), HasSubstr("no Triton config in this folder"));
  EXPECT_THAT(state("empty/x.txt"), HasSubstr("expected a Triton config"));
  EXPECT_THAT(state("none"), HasSubstr("no such file"));
  EXPECT_THAT(load_table_set({{std::nullopt, folder.file("none")}}).describe(OperationForm(Operation::a8w8)),
              HasSubstr("none: no such file"))
      << "whatever the operation";
}

/// Folders with thousands of files are read at once.
TEST(TritonFolders, ThousandsOfFilesAreReadQuickly) {
  test::TemporaryFolder folder;
  for (int n = 1; n <= 2000; ++n) {
    folder.write("gemm/gfx950-GEMM-A8W8-N=" + std::to_string(n) + "-K=64.json",
                 R"({"M_LEQ_8": {"kernelName": "tiled_r1_a1"}, "any": {"BLOCK_SIZE_M": 16}})");
  }
  const std::clock_t begin = std::clock();
  const TableSet tables = load_table_set({{std::nullopt, folder.path()}});
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;  // of this process alone
  EXPECT_THAT(tables.sources, SizeIs(2000));
  Problem problem = default_problem(Operation::a8w8);
  problem.m = 5;
  problem.n = 1234;
  problem.k = 64;
  EXPECT_THAT(tables.lookup({"gfx950", 8, problem}), SizeIs(1));
  EXPECT_LT(seconds, 5) << "some 0.1 s";
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds));
}

}  // namespace
}  // namespace gemmtune
