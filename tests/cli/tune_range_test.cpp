// `gemmtune tune --m-range` from outside: bad texts, a tiny weight over a few M, going on, replay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test {
namespace {

using ::testing::HasSubstr;

class TuneRange : public ::testing::Test {
 protected:
  std::string output() const { return program.file("ranges.csv"); }
  SubprocessResult tune(std::vector<std::string> more) const {
    std::vector<std::string> words = {"tune",         "-n",      "64", "-k", "64",    "--libtype",
                                      "tiled,skinny", "--iters", "5",  "-o", output()};
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  }

  SimulatedProgram program;
};

TEST_F(TuneRange, BadTextsAreUsageErrorsThatSayWhatWasExpected) {
  for (const std::string text : {"8192:1", "0:5", "abc", "5", ":5", "5:", "1:2:3", "1.0:5", "1:2147483648",
                                 "1:99999999999999999999"}) {
    const auto result = tune({"--m-range=" + text});
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr("--m-range " + text)) << text;
    EXPECT_THAT(result.err, HasSubstr("expected")) << text;
  }
  const auto both = tune({"--m-range", "1:4", "-m", "3"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("give one of them"));
  EXPECT_EQ(tune({"--m-range", "1:4", "--m-regret", "0"}).exit_code, 2);
  EXPECT_EQ(tune({"--m-range", "1:4", "--compare"}).exit_code, 2);
  EXPECT_EQ(tune({"-m", "3", "--m-regret", "5"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(TuneRange, AWeightOverAFewMIsCoveredAndThenThereIsNothingToDo) {
  const auto result = tune({"--m-range", "1:8", "--m-regret", "50", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["weights"].size(), 1U);
  const Json& weight = json["weights"][0];
  EXPECT_EQ(weight["settled_share"], 1);
  EXPECT_GE(weight["searched"], 4);
  std::int64_t next = 1;
  for (const Json& row : weight["rows"]) {
    EXPECT_EQ(row["m_from"], next);
    next = row["m"].get<std::int64_t>() + 1;
    EXPECT_TRUE(row["regret"].is_number());
  }
  EXPECT_EQ(next, 9);
  const auto found =
      program.run({"lookup", "-m", "7", "-n", "64", "-k", "64", "--table", output(), "--json"});
  EXPECT_THAT(found.out, HasSubstr("\"range\""));
  const auto again = tune({"--m-range", "1:8"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, HasSubstr("nothing to do"));
}

TEST_F(TuneRange, ARecordingReplaysToTheSameRanges) {
  const std::string recording = program.file("run.jsonl");
  const auto first = tune({"--m-range", "1:4", "--record", recording, "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string replayed = program.file("replayed.csv");
  const auto second = program.run({"tune", "--replay", recording, "--m-range", "1:4", "-n", "64", "-k", "64",
                                   "--libtype", "tiled,skinny", "-o", replayed, "--json"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const auto rows = [](const std::string& text) {
    std::vector<std::string> list;
    const Json json = parse_json(text);
    for (const Json& row : json["weights"][0]["rows"])
      list.push_back(row["m_from"].dump() + "-" + row["m"].dump() + row["kernelName"].dump());
    return list;
  };
  EXPECT_EQ(rows(second.out), rows(first.out));
}

TEST_F(TuneRange, ABudgetThatIsOverSaysHowFarItCame) {
  const auto result = tune({"--m-range", "1:4096", "--budget", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the same command goes on from there"));
}

}  // namespace
}  // namespace gemmtune::test
