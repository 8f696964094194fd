// Which tuned files are read, and what becomes of those that are not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "dispatch/context.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The paths of an operation's tables.
std::vector<std::string> paths_of(const std::vector<TablePath>& tables,
                                  OperationForm operation = Operation::a16w16) {
  std::vector<std::string> paths;
  for (const TablePath& table : tables) {
    if (table.operation == operation) paths.push_back(table.path);
  }
  return paths;
}

TEST(TablePaths, DefaultIsTheFolderAndItsModelFiles) {
  const test::TemporaryFolder folder;
  folder.write("model_configs/llama_bf16_tuned_gemm.csv", "");
  folder.write("model_configs/bf16_tuned_gemm_qwen.csv", "");
  folder.write("model_configs/llama_bf16_untuned_gemm.csv", "");
  folder.write("model_configs/bf16_tuned_gemm_untuned.csv", "");
  folder.write("model_configs/a8w8_tuned_gemm.csv", "");
  folder.write("model_configs/bf16_tuned_gemm.txt", "");
  folder.write("model_configs/bf16_tuned_gemm_folder.csv/inside", "");
  EXPECT_THAT(
      paths_of(all_table_paths({}, {}, folder.path())),
      ElementsAre(folder.file("bf16_tuned_gemm.csv"), folder.file("model_configs/bf16_tuned_gemm_qwen.csv"),
                  folder.file("model_configs/llama_bf16_tuned_gemm.csv")));
}

TEST(TablePaths, OptionsWinOverTheVariableWhichReplacesTheDefault) {
  ContextOptions options;
  Environment environment;
  environment.config_folder = "/env";
  EXPECT_THAT(paths_of(context_table_paths(options, environment)), ElementsAre("/env/bf16_tuned_gemm.csv"));
  options.config_folder = "/option";
  EXPECT_THAT(paths_of(context_table_paths(options, environment)),
              ElementsAre("/option/bf16_tuned_gemm.csv"));
  environment.config_variables["GEMMTUNE_CONFIG_A16W16"] = "/a.csv:/b.csv";
  EXPECT_THAT(paths_of(context_table_paths(options, environment)), ElementsAre("/a.csv", "/b.csv"));
  options.tuned_files[Operation::a16w16] = ":/c.csv:";
  EXPECT_THAT(paths_of(context_table_paths(options, environment)), ElementsAre("/c.csv"));
}

TEST(TablePaths, EveryOperationHasItsFileItsVariablesAndItsModelFiles) {
  struct Case {
    OperationForm operation;
    const char* ours;
    const char* aiters;  // null: AITER has no such table
    const char* file;
  };
  const Case cases[] = {
      {Operation::a16w16, "GEMMTUNE_CONFIG_A16W16", "AITER_CONFIG_GEMM_BF16", "bf16_tuned_gemm"},
      {Operation::a8w8, "GEMMTUNE_CONFIG_A8W8", "AITER_CONFIG_GEMM_A8W8", "a8w8_tuned_gemm"},
      {OperationForm(Operation::a8w8, true), "GEMMTUNE_CONFIG_A8W8_BPRESHUFFLE",
       "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE", "a8w8_bpreshuffle_tuned_gemm"},
      {Operation::a8w8_blockscale, "GEMMTUNE_CONFIG_A8W8_BLOCKSCALE", "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE",
       "a8w8_blockscale_tuned_gemm"},
      {OperationForm(Operation::a8w8_blockscale, true), "GEMMTUNE_CONFIG_A8W8_BLOCKSCALE_BPRESHUFFLE",
       "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE", "a8w8_blockscale_bpreshuffle_tuned_gemm"},
      {Operation::a4w4_blockscale, "GEMMTUNE_CONFIG_A4W4_BLOCKSCALE", "AITER_CONFIG_GEMM_A4W4",
       "a4w4_blockscale_tuned_gemm"},
      {Operation::batched_bf16, "GEMMTUNE_CONFIG_BATCHED_BF16", "AITER_CONFIG_BF16_BATCHED_GEMM",
       "bf16_tuned_batched_gemm"},
      {Operation::batched_a8w8, "GEMMTUNE_CONFIG_BATCHED_A8W8", "AITER_CONFIG_A8W8_BATCHED_GEMM",
       "a8w8_tuned_batched_gemm"},
      {Operation::fused_moe, "GEMMTUNE_CONFIG_FUSED_MOE", "AITER_CONFIG_FMOE", "tuned_fmoe"},
      {Operation::a16w4, "GEMMTUNE_CONFIG_A16W4", "AITER_CONFIG_GEMM_A16W4", "a16w4_tuned_gemm"},
      {Operation::a8w4, "GEMMTUNE_CONFIG_A8W4", "AITER_CONFIG_GEMM_A8W4", "a8w4_tuned_gemm"},
      {Operation::a16w4_nvfp4, "GEMMTUNE_CONFIG_A16W4_NVFP4", nullptr, "a16w4_nvfp4_tuned_gemm"},
      {Operation::a8w4_nvfp4, "GEMMTUNE_CONFIG_A8W4_NVFP4", nullptr, "a8w4_nvfp4_tuned_gemm"},
      {Operation::a4w4_nvfp4, "GEMMTUNE_CONFIG_A4W4_NVFP4", nullptr, "a4w4_nvfp4_tuned_gemm"},
      {Operation::a16w4_int4, "GEMMTUNE_CONFIG_A16W4_INT4", nullptr, "a16w4_int4_tuned_gemm"},
      {Operation::a8w4_int4, "GEMMTUNE_CONFIG_A8W4_INT4", nullptr, "a8w4_int4_tuned_gemm"},
  };
  const test::TemporaryFolder folder;
  for (const Case& one : cases) folder.write(std::string("model_configs/m_") + one.file + ".csv", "");
  Environment empty;
  empty.config_folder = folder.path();
  for (const Case& one : cases) {
    EXPECT_THAT(paths_of(context_table_paths({}, empty), one.operation),
                ElementsAre(folder.file(std::string(one.file) + ".csv"),
                            folder.file(std::string("model_configs/m_") + one.file + ".csv")));
    if (one.aiters != nullptr) {
      ::setenv(one.aiters, "/theirs.csv", 1);
      EXPECT_THAT(paths_of(context_table_paths({}, read_environment()), one.operation),
                  ElementsAre("/theirs.csv"));
    }
    ::setenv(one.ours, "/ours.csv", 1);
    EXPECT_THAT(paths_of(context_table_paths({}, read_environment()), one.operation),
                ElementsAre("/ours.csv"));
    if (one.aiters != nullptr) ::unsetenv(one.aiters);
    ::unsetenv(one.ours);
  }
}

TEST(TablePaths, BothVariableNamesWorkAndOursWins) {
  ::setenv("AITER_CONFIG_GEMM_BF16", "/theirs.csv", 1);
  ::unsetenv("GEMMTUNE_CONFIG_A16W16");
  EXPECT_THAT(paths_of(context_table_paths({}, read_environment())), ElementsAre("/theirs.csv"));
  ::setenv("GEMMTUNE_CONFIG_A16W16", "/ours.csv", 1);
  EXPECT_THAT(paths_of(context_table_paths({}, read_environment())), ElementsAre("/ours.csv"));
  ::setenv("GEMMTUNE_CONFIG_A16W16", "", 1);
  EXPECT_THAT(paths_of(context_table_paths({}, read_environment())), ElementsAre("/theirs.csv"));
  ::unsetenv("AITER_CONFIG_GEMM_BF16");
  ::unsetenv("GEMMTUNE_CONFIG_A16W16");
}

TEST(TableSets, MergeTakesTheSmallestTimeAndRemembersTheFile) {
  const test::TemporaryFolder folder;
  const auto slow = test::write_rows(folder, "slow.csv", {row(small_problem(8), "alpha_r1_a1", 20)});
  const auto fast = test::write_rows(folder, "fast.csv", {row(small_problem(8), "alpha_r1_a2", 10)});
  const TableSet set = load_table_set({test::table(slow), test::table(fast)});
  const auto hits = set.table.lookup({"x86-fake", 2, small_problem(8)});
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].entry->kernel_name, "alpha_r1_a2");
  EXPECT_EQ(set.path_of(*hits[0].entry), fast);
}

TEST(TableSets, MissingFilesAreListedAndNoFault) {
  const test::TemporaryFolder folder;
  const auto file = test::write_rows(folder, "t.csv", {row(small_problem(8), "alpha_r1_a1")});
  const TableSet set = load_table_set({test::table(folder.file("none.csv")), test::table(file)});
  EXPECT_TRUE(set.first_fault().ok());
  EXPECT_EQ(set.sources[0].state.code(), StatusCode::not_found);
  EXPECT_EQ(set.sources[1].rows, 1U);
  EXPECT_EQ(set.describe(), folder.file("none.csv: no such file\n") + file + ": 1 rows");
}

TEST(TableSets, AFileThatIsNoTunedFileIsAFaultThatNamesIt) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("t.csv", "colour,size\nred,3\n");
  const TableSet set = load_table_set({test::table(file)});
  EXPECT_EQ(set.first_fault().code(), StatusCode::invalid_argument);
  EXPECT_THAT(set.first_fault().message(), HasSubstr("t.csv"));
  EXPECT_TRUE(set.table.entries().empty());
}

}  // namespace
}  // namespace gemmtune
