// `gemmtune tune --op` on the untuned files that AITER ships: each runs, and what it writes reads back, is
// right and looks up. Minutes of tuning: only with GEMMTUNE_SOAK=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "cli/program.h"
#include "formats/json.h"
#include "support/fixtures.h"

namespace gemmtune::test {
namespace {

struct Case {
  std::string operation;
  std::string untuned;  // below aiter/configs
  std::string tuned;    // AITER's name for the result
};

std::vector<Case> cases() {
  return {{"a16w16", "bf16_untuned_gemm.csv", "bf16_tuned_gemm.csv"},
          {"a8w8", "a8w8_untuned_gemm.csv", "a8w8_tuned_gemm.csv"},
          {"a8w8_bpreshuffle", "a8w8_bpreshuffle_untuned_gemm.csv", "a8w8_bpreshuffle_tuned_gemm.csv"},
          {"a8w8_blockscale", "a8w8_blockscale_untuned_gemm.csv", "a8w8_blockscale_tuned_gemm.csv"},
          {"a8w8_blockscale_bpreshuffle", "model_configs/a8w8_blockscale_bpreshuffle_untuned_gemm_mm2.5.csv",
           "a8w8_blockscale_bpreshuffle_tuned_gemm.csv"},
          {"a4w4_blockscale", "a4w4_blockscale_untuned_gemm.csv", "a4w4_blockscale_tuned_gemm.csv"},
          {"batched_bf16", "bf16_untuned_batched_gemm.csv", "bf16_tuned_batched_gemm.csv"},
          {"batched_a8w8", "a8w8_untuned_batched_gemm.csv", "a8w8_tuned_batched_gemm.csv"},
          {"fused_moe", "untuned_fmoe.csv", "tuned_fmoe.csv"}};
}

bool soak() {
  const char* set = std::getenv("GEMMTUNE_SOAK");
  return set != nullptr && std::string(set) == "1";
}
const std::string rows = "5";
const std::string budget = "300";  // seconds of one run; the next one goes on
constexpr int max_runs = 6;

bool out_of_budget(const Json& report) {
  for (const Json& problem : report["problems"])
    if (problem["state"] == "out of budget") return true;
  return false;
}

/// The first row of a file by its columns.
std::map<std::string, std::string> first_row(const std::string& path) {
  const auto content = read_file(path);
  std::map<std::string, std::string> row;
  if (!content.ok()) return row;
  const auto lines = split(*content, '\n');
  if (lines.size() < 2) return row;
  const auto names = split(lines[0], ',');
  const auto values = split(lines[1], ',');
  for (std::size_t i = 0; i < names.size() && i < values.size(); ++i)
    row[std::string(trim(names[i]))] = std::string(trim(values[i]));
  return row;
}

class TuneFixtures : public ::testing::TestWithParam<Case> {
 protected:
  Program program;
};

TEST_P(TuneFixtures, RunsAndReadsBack) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  if (!soak()) GTEST_SKIP() << "minutes of tuning: only with GEMMTUNE_SOAK=1";
  const Case& test = GetParam();
  const std::string input = folder + "/aiter/configs/" + test.untuned;
  const std::string output = program.file(test.tuned);
  const std::vector<std::string> words = {"tune", "--op",    test.operation, "-i",       input,  "-o",
                                          output, "--limit", rows,           "--budget", budget, "--iters",
                                          "3",    "--json"};
  // A slow machine, or fused MoE with half a second a call, does not reach every row at once.
  bool waiting = true;
  for (int run = 0; waiting; ++run) {
    ASSERT_LT(run, max_runs) << "rows are out of budget still";
    const auto tuned = program.run(words);
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err << tuned.out;
    const Json report = parse_json(tuned.out);
    EXPECT_EQ(std::to_string(report["problems"].size()), rows);
    waiting = out_of_budget(report);
  }

  const auto again = program.run(words);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const Json second = parse_json(again.out);
  for (const Json& problem : second["problems"]) EXPECT_EQ(problem["state"], "done already") << problem;

  const auto checked = program.run({"check", output});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, ::testing::HasSubstr(rows + " right, 0 not"));

  if (test.operation == "fused_moe") return;
  auto row = first_row(output);
  ASSERT_FALSE(row.empty());
  std::vector<std::string> lookup{"lookup", "--op",   test.operation, "--table", output, "--json",
                                  "-m",     row["M"], "-n",           row["N"],  "-k",   row["K"]};
  if (row.contains("B")) lookup.insert(lookup.end(), {"-b", row["B"]});
  if (row["q_dtype_w"] == "torch.int8") lookup.insert(lookup.end(), {"--indtype", "int8"});
  if (row["outdtype"] == "torch.float32") lookup.insert(lookup.end(), {"--outdtype", "f32"});
  const auto found = program.run(lookup);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const Json report = parse_json(found.out);
  EXPECT_EQ(report["level"], "exact") << found.out;
  EXPECT_EQ(report["runnable"], true) << found.out;
}

INSTANTIATE_TEST_SUITE_P(All, TuneFixtures, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.operation; });

}  // namespace
}  // namespace gemmtune::test
