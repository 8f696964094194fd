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

TEST(TablePaths, DefaultIsTheFolderAndItsModelFiles) {
  const test::TemporaryFolder folder;
  folder.write("model_configs/llama_bf16_tuned_gemm.csv", "");
  folder.write("model_configs/bf16_tuned_gemm_qwen.csv", "");
  folder.write("model_configs/llama_bf16_untuned_gemm.csv", "");
  folder.write("model_configs/bf16_tuned_gemm_untuned.csv", "");
  folder.write("model_configs/a8w8_tuned_gemm.csv", "");
  folder.write("model_configs/bf16_tuned_gemm.txt", "");
  folder.write("model_configs/bf16_tuned_gemm_folder.csv/inside", "");
  EXPECT_THAT(default_table_paths(folder.path()),
              ElementsAre(folder / "bf16_tuned_gemm.csv", folder / "model_configs/bf16_tuned_gemm_qwen.csv",
                          folder / "model_configs/llama_bf16_tuned_gemm.csv"));
}

TEST(TablePaths, OptionsWinOverTheVariableWhichReplacesTheDefault) {
  ContextOptions options;
  Environment environment;
  environment.config_folder = "/env";
  EXPECT_THAT(context_table_paths(options, environment), ElementsAre("/env/bf16_tuned_gemm.csv"));
  options.config_folder = "/option";
  EXPECT_THAT(context_table_paths(options, environment), ElementsAre("/option/bf16_tuned_gemm.csv"));
  environment.config_a16w16 = "/a.csv:/b.csv";
  EXPECT_THAT(context_table_paths(options, environment), ElementsAre("/a.csv", "/b.csv"));
  options.tuned_files_a16w16 = ":/c.csv:";
  EXPECT_THAT(context_table_paths(options, environment), ElementsAre("/c.csv"));
}

TEST(TablePaths, BothVariableNamesWorkAndOursWins) {
  ::setenv("AITER_CONFIG_GEMM_BF16", "/theirs.csv", 1);
  ::unsetenv("GEMMTUNE_CONFIG_A16W16");
  EXPECT_THAT(context_table_paths({}, read_environment()), ElementsAre("/theirs.csv"));
  ::setenv("GEMMTUNE_CONFIG_A16W16", "/ours.csv", 1);
  EXPECT_THAT(context_table_paths({}, read_environment()), ElementsAre("/ours.csv"));
  ::unsetenv("AITER_CONFIG_GEMM_BF16");
  ::unsetenv("GEMMTUNE_CONFIG_A16W16");
}

TEST(TableSets, MergeTakesTheSmallestTimeAndRemembersTheFile) {
  const test::TemporaryFolder folder;
  const auto slow = test::write_rows(folder, "slow.csv", {row(small_problem(8), "alpha_r1_a1", 20)});
  const auto fast = test::write_rows(folder, "fast.csv", {row(small_problem(8), "alpha_r1_a2", 10)});
  const TableSet set = load_table_set({slow, fast});
  const auto hits = set.table.lookup({"x86-fake", 2, small_problem(8)});
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].entry->kernel_name, "alpha_r1_a2");
  EXPECT_EQ(set.path_of(*hits[0].entry), fast);
}

TEST(TableSets, MissingFilesAreListedAndNoFault) {
  const test::TemporaryFolder folder;
  const auto file = test::write_rows(folder, "t.csv", {row(small_problem(8), "alpha_r1_a1")});
  const TableSet set = load_table_set({folder / "none.csv", file});
  EXPECT_TRUE(set.first_fault().ok());
  EXPECT_EQ(set.sources[0].state.code(), StatusCode::not_found);
  EXPECT_EQ(set.sources[1].rows, 1U);
  EXPECT_EQ(set.describe(), folder / "none.csv: no such file\n" + file + ": 1 rows");
}

TEST(TableSets, AFileThatIsNoTunedFileIsAFaultThatNamesIt) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("t.csv", "colour,size\nred,3\n");
  const TableSet set = load_table_set({file});
  EXPECT_EQ(set.first_fault().code(), StatusCode::invalid_argument);
  EXPECT_THAT(set.first_fault().message(), HasSubstr("t.csv"));
  EXPECT_TRUE(set.table.entries().empty());
}

}  // namespace
}  // namespace gemmtune
