// Parquet files by a Python beside this process: what it is given, and every way in which it may fail.
#include "formats/parquet/parquet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <optional>

#include "base/child_process.h"
#include "base/file.h"
#include "formats/aic/aic_csv.h"
#include "support/temporary_folder.h"

namespace gemmtune::parquet_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string aic_data(const std::string& name) {
  auto content = read_file(std::string(GEMMTUNE_TEST_DATA) + "/aic/" + name);
  EXPECT_TRUE(content.ok()) << content.message();
  return content.ok() ? std::move(*content) : std::string();
}

/// A program in place of Python.
class Parquet : public ::testing::Test {
 protected:
  std::string program(const std::string& lines) const {
    const std::string path = folder_.write("python", "#!/bin/sh\n" + lines + "\n");
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return path;
  }
  Result<std::string> csv_by(const std::string& lines, ParquetReader reader = {}) const {
    reader.python = program(lines);
    return csv_of_parquet("t/gemm_perf.parquet", "PAR1 content", reader);
  }
  test::TemporaryFolder folder_;
};

TEST_F(Parquet, PythonIsIsolatedAndGetsTheContentAlone) {
  const auto csv = csv_by("echo \"$1 $2 $#\"; cat");
  ASSERT_TRUE(csv.ok()) << csv.message();
  EXPECT_THAT(*csv, HasSubstr("-I -c 3\nPAR1 content"));
}

TEST_F(Parquet, WithoutPyarrowTheCommandThatConvertsIsNamed) {
  const std::string remedy =
      "set GEMMTUNE_PYTHON to one that has pyarrow, or convert the file: python3 -c \"import pandas; "
      "pandas.read_parquet('t/gemm_perf.parquet').to_csv('table.csv', index=False)\"";
  const auto none = csv_of_parquet("t/gemm_perf.parquet", "PAR1", {.python = folder_.file("none")});
  EXPECT_THAT(none.message(), AllOf(HasSubstr("t/gemm_perf.parquet: is parquet"), HasSubstr("No such file"),
                                    HasSubstr(remedy)));
  const auto without = csv_by("echo \"No module named 'pyarrow'\" >&2; exit 3");
  EXPECT_THAT(without.message(), AllOf(HasSubstr("No module named 'pyarrow'"), HasSubstr(remedy)));
}

TEST_F(Parquet, WhatPyarrowRefusesIsSaidInItsWords) {
  EXPECT_EQ(csv_by("echo 'ArrowInvalid: no footer' >&2; exit 4").message(),
            "t/gemm_perf.parquet: pyarrow refuses it: ArrowInvalid: no footer");
  EXPECT_THAT(csv_by("echo 1,2; kill -SEGV $$").message(), HasSubstr("did not read it: SIGSEGV"));
  EXPECT_THAT(csv_by("echo 1,2; exit 1").message(), HasSubstr("exit code 1"));
}

TEST_F(Parquet, ABombEndsAtALimit) {
  ParquetReader little;
  little.max_bytes = 1000;
  EXPECT_THAT(csv_by("yes", little).message(), HasSubstr("its CSV has more than 1000 bytes"));
  ParquetReader brief;
  brief.seconds = 0.05;
  EXPECT_THAT(csv_by("exec sleep 600", brief).message(), HasSubstr("not read within 0.05 s"));
}

TEST_F(Parquet, AChildThatHoldsTheOutputIsNotWaitedFor) {
  const auto csv = csv_by("sleep 600 & echo 1,2");
  ASSERT_TRUE(csv.ok()) << csv.message();
  EXPECT_EQ(*csv, "1,2\n");
}

TEST_F(Parquet, ACommandHoldsNoNameThatAShellTakesApart) {
  EXPECT_THAT(parquet_command("a b'; touch x; '.parquet"),
              AllOf(HasSubstr("'FILE'"), Not(HasSubstr("touch"))));
  EXPECT_THAT(parquet_command("h200/gemm-perf_1.parquet"), HasSubstr("'h200/gemm-perf_1.parquet'"));
}

TEST_F(Parquet, FoldersThatDependOnTheWorkingFolderAreNoPath) {
  const char* before = std::getenv("PATH");
  const std::string path = before == nullptr ? "" : before;
  const std::string planted = program("exit 0");
  ::setenv("PATH", (":.:" + folder_.path()).c_str(), 1);
  EXPECT_EQ(find_program("python"), planted);
  ::setenv("PATH", ":.:bin", 1);
  EXPECT_EQ(find_program("sh"), "");
  ::setenv("PATH", path.c_str(), 1);
}

/// The file that Parquet's own program wrote; a Python with pyarrow is GEMMTUNE_PYTHON or python3.
TEST_F(Parquet, ARealFileHasTheRowsOfItsCsv) {
  const char* python = std::getenv("GEMMTUNE_PYTHON");
  const auto csv = csv_of_parquet("gemm_perf.parquet", aic_data("gemm_perf.parquet"),
                                  {.python = python == nullptr ? "" : python});
  if (!csv.ok() && csv.message().find("which a Python with pyarrow reads") != std::string::npos) {
    const char* required = std::getenv("GEMMTUNE_REQUIRE");
    if (required != nullptr && std::string(required).find("pyarrow") != std::string::npos)
      FAIL() << csv.message();
    GTEST_SKIP() << csv.message();
  }
  ASSERT_TRUE(csv.ok()) << csv.message();
  const auto expected = parse_aic_csv("gemm_perf.csv", aic_data("gemm_perf.csv"));
  const auto read = parse_aic_csv("gemm_perf.parquet", *csv);
  ASSERT_TRUE(expected.ok() && read.ok()) << read.message();
  ASSERT_EQ(read->entries.size(), expected->entries.size());
  for (std::size_t index = 0; index < read->entries.size(); ++index) {
    EXPECT_EQ(read->entries[index].problem, expected->entries[index].problem);
    EXPECT_EQ(read->entries[index].us, expected->entries[index].us);
    EXPECT_EQ(read->entries[index].other_key, expected->entries[index].other_key);
  }
  const auto damaged = csv_of_parquet("d.parquet", aic_data("gemm_perf.parquet").substr(0, 900),
                                      {.python = python == nullptr ? "" : python});
  EXPECT_THAT(damaged.message(), HasSubstr("d.parquet: pyarrow refuses it: ArrowInvalid"));
}

}  // namespace
}  // namespace gemmtune::parquet_test
