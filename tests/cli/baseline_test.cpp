// --baseline: an evaluator beside a CPU, whose kernels candidates are compared with. support/evaluator.py is one, with times by a formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/program.h"
#include "formats/csv/csv.h"
#include "formats/json.h"

namespace gemmtune::test::baseline_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Baseline : public ::testing::Test {
 protected:
  static std::string evaluator(const std::string& options = {}) {
    return "python3 " GEMMTUNE_SOURCE_DIR "/tests/support/evaluator.py" +
           (options.empty() ? "" : " " + options);
  }
  SubprocessResult tune(std::vector<std::string> more, const std::string& baseline = evaluator()) const {
    std::vector<std::string> words = {"tune",    "--backend",  "cpu",    "-m", "8",
                                      "-n",      "24",         "-k",     "16", "--libtype",
                                      "tiled",   "--search",   "staged", "-o", program_.file("out.csv"),
                                      "--quiet", "--baseline", baseline};
    words.insert(words.end(), more.begin(), more.end());
    return program_.run(std::move(words));
  }
  /// The one row of the output, by column.
  std::map<std::string, std::string> row() const {
    std::map<std::string, std::string> row;
    const auto content = read_file(program_.file("out.csv"));
    EXPECT_TRUE(content.ok()) << content.message();
    const auto table = parse_csv("out.csv", content.ok() ? *content : "");
    std::vector<std::string> header;
    for (const CsvLine& line : table->lines) {
      CsvCells cells;
      EXPECT_TRUE(cells.split(line.text)) << line.text;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (line.number == 1) header.emplace_back(cells[i]);
        row[header.at(i)] = cells[i];
      }
    }
    return row;
  }
  Json environment() const {
    const Json all = parse_json(*read_file(program_.file("out.csv.env.json")));
    return all[row().at("env")];
  }

  SimulatedProgram program_;  // of the evaluator the clock is a formula
};

TEST_F(Baseline, IsWhatRowsAreComparedWithAndNoRowNamesIt) {
  const auto slow = tune({}, evaluator("--microseconds 1000000"));
  ASSERT_EQ(slow.exit_code, 0) << slow.err;
  auto written = row();
  EXPECT_EQ(written.at("default_kernel"), "python_gemm_r2_bm64_bn64_nw4_cmnone");
  EXPECT_THAT(written.at("kernelName"), StartsWith("tiled_"));
  EXPECT_EQ(written.at("verdict"), "win");
  EXPECT_NEAR(std::stod(written.at("default_us")), 1e6, 1);
  EXPECT_THAT(slow.out, HasSubstr("over the default"));
  EXPECT_THAT(slow.out, HasSubstr("), python 3."));
  EXPECT_THAT(environment()["opponents"]["python_gemm"].get<std::string>(), StartsWith("python 3."));

  // One that no kernel beats is no row's kernel either.
  const auto fast = tune({"--all"}, evaluator("--microseconds 0.001"));
  ASSERT_EQ(fast.exit_code, 0) << fast.err;
  written = row();
  EXPECT_THAT(written.at("kernelName"), StartsWith("tiled_"));
  EXPECT_EQ(written.at("verdict"), "undecided");
  EXPECT_LT(std::stod(written.at("speedup")), 0.1);
}

TEST_F(Baseline, OfAnotherOneTheRowsAreOfAnotherEnvironment) {
  ASSERT_EQ(tune({}, "default").exit_code, 0);
  const std::string own = row().at("env");
  EXPECT_THAT(row().at("default_kernel"), Not(HasSubstr("python_gemm")));
  ASSERT_EQ(tune({"--all"}).exit_code, 0);
  EXPECT_NE(row().at("env"), own);
}

/// One row of fp32 runs `skinny` untuned on AVX-512 BF16; other machines run the library anyway.
TEST_F(Baseline, MayBeTheVendorsLibrary) {
  const auto result = program_.run({"tune", "--backend", "cpu", "-m", "1", "-n", "24", "-k", "16",
                                    "--indtype", "fp32", "--libtype", "tiled", "-o", program_.file("out.csv"),
                                    "--quiet", "--baseline", "library"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(row().at("default_kernel"), AnyOf(StartsWith("onednn"), StartsWith("openblas")));
}

TEST_F(Baseline, OfPackedWeightsItHasThePlainOne) {
  const auto result = tune({"--bpreshuffle"}, evaluator("--microseconds 1000000"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(row().at("default_kernel"), "python_gemm_r2_bm64_bn64_nw4_cmnone");
  EXPECT_THAT(row().at("kernelName"), StartsWith("tiled_"));
}

TEST_F(Baseline, ProblemsThatItDoesNotTakeHaveTheDevicesOwn) {
  const auto result =
      tune({}, evaluator("--hello 'problems=[{\"operation\": \"a16w16\", \"requires\": \"k > 16\"}]'"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(row().at("default_kernel"), Not(HasSubstr("python_gemm")));
}

TEST_F(Baseline, AWrongOneHasNoSpeedUp) {
  const auto result =
      tune({}, evaluator("--faults --hello 'defaults={\"MODE\": \"wrong\", \"BLOCK_SIZE_M\": 64, "
                         "\"BLOCK_SIZE_N\": 64, \"num_warps\": 4, \"cache_modifier\": \"\"}'"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(row().at("verdict"), "default_wrong");
}

TEST_F(Baseline, WhatDoesNotGoTogetherIsSaid) {
  const auto said = [&](std::vector<std::string> more, const std::string& baseline) {
    const auto result = tune(std::move(more), baseline);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    return result.err;
  };
  EXPECT_THAT(said({"--python", "/p"}, "default"), HasSubstr("--python: is of --baseline torch"));
  EXPECT_THAT(said({"--replay", "r.jsonl"}, "torch"), HasSubstr("--baseline torch: not with --replay"));
  EXPECT_THAT(said({"--python", "/no/python"}, "torch"), HasSubstr("/no/python"));
  EXPECT_THAT(said({}, "/no/program"), HasSubstr("evaluator '/no/program'"));
  EXPECT_THAT(said({}, "python3 -c 'import sys; sys.exit(\"no such module\")'"), HasSubstr("no such module"));
}

}  // namespace
}  // namespace gemmtune::test::baseline_test
