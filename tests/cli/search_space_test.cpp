// --search-space from outside: what explain shows of it, its errors, and what tuning finds in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::search_space_test {
namespace {

using ::testing::HasSubstr;

class SearchSpaceCli : public ::testing::Test {
 protected:
  std::string written(const std::string& text) const { return program_.folder().write("space.yaml", text); }
  SubprocessResult explain(const std::string& text, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {
        "explain", "-m", "16", "-n", "64", "-k", "96", "--space", "tiled", "--search-space", written(text)};
    words.insert(words.end(), more.begin(), more.end());
    return program_.run(words);
  }
  std::string refusal(const std::string& text) const {
    const auto result = explain(text);
    EXPECT_EQ(result.exit_code, 2) << text;
    return result.err;
  }
  /// A recorded machine: by shape, the winner and all candidates that were tried.
  std::map<std::string, std::string> winners(const std::string& strategy, const std::string& space) const {
    const auto result =
        program_.run({"tune", "--replay", GEMMTUNE_TEST_DATA "/recordings/cpu-amx.jsonl.gz", "-o",
                      program_.file(strategy + ".csv"), "--all", "--quiet", "--json", "--libtype",
                      "tiled,skinny", "--search", strategy, "--search-space", space});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::map<std::string, std::string> winners;
    const Json document = parse_json(result.out);
    for (const Json& shape : document["problems"])
      winners[shape["problem"].dump()] = shape["kernelName"].get<std::string>();
    return winners;
  }

  SimulatedProgram program_;
};

TEST_F(SearchSpaceCli, ExplainCountsWhatEachParameterAndRuleRemoves) {
  const std::string file =
      "tiled:\n  parameters: {mc: [64, 128], pf: [0]}\n  rules: {split-K divides: on, waste: off}\n";
  const auto result = explain(file, {"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = parse_json(result.out);
  const Json& space = document["space"];
  std::int64_t left = space["points"];
  std::map<std::string, Json> parameters;
  for (const Json& step : space["parameters"]) {
    left -= step["removed"].get<std::int64_t>();
    EXPECT_EQ(step["left"], left) << step;
    parameters[step["key"]] = step;
  }
  EXPECT_EQ(parameters["mc"]["values"], (Json{"64", "128"}));
  EXPECT_EQ(parameters["mc"]["removed"], space["points"].get<std::int64_t>() / 2) << "two of four";
  EXPECT_EQ(parameters["pf"]["values"], Json{"0"});
  EXPECT_EQ(parameters["nc"]["removed"], 0);
  std::map<std::string, Json> rules;
  for (const Json& step : space["rules"]) {
    left -= step["removed"].get<std::int64_t>();
    EXPECT_EQ(step["left"], left) << step;
    rules[step["name"]] = step;
  }
  EXPECT_EQ(space["allowed"], left);
  EXPECT_EQ(rules["tile"]["kind"], "build");
  EXPECT_EQ(rules["waste"]["kind"], "search");
  EXPECT_EQ(rules["waste"]["on"], false);
  EXPECT_EQ(rules["split-K divides"]["on"], true);
  for (const Json& family : document["families"]) {
    if (family["name"] == "tiled") {
      EXPECT_EQ(family["allowed"], left);
    }
  }
  const auto text = explain(file);
  EXPECT_THAT(text.out, HasSubstr("search rule, off"));
  EXPECT_THAT(text.out, HasSubstr("rows a block"));
}

TEST_F(SearchSpaceCli, ErrorsNameFileLineAndWhatIsAllowed) {
  EXPECT_THAT(refusal("\ntilde: {}\n"), HasSubstr("space.yaml:2: 'tilde' is no kernel family of"));
  EXPECT_THAT(refusal("tiled:\n  parameters:\n    mx: [1]\n"),
              HasSubstr("space.yaml:3: tiled: has no parameter 'mx', expected some of isa, w, mr"));
  EXPECT_THAT(
      refusal("tiled:\n  parameters:\n    mc: [64,\n         5000]\n"),
      HasSubstr("space.yaml:4: tiled: parameter 'mc' has no value '5000', expected some of 64, 128, 256, "
                "512, or 1 to 4096"));
  EXPECT_THAT(
      refusal("tiled:\n  parameters:\n    nc: [40]\n"),
      HasSubstr("parameter 'nc' has no value '40', expected some of 128, 256, 512, 1024, 2048, or 16 to "
                "4096 in steps of 16"));
  EXPECT_THAT(refusal("tiled:\n  parameters:\n    mr: [1000]\n"),
              HasSubstr("tiled: parameter 'mr' has no value '1000', expected some of"));
  EXPECT_THAT(refusal("tiled:\n  rules:\n    wast: off\n"),
              HasSubstr("space.yaml:3: tiled: has no rule 'wast'"));
  EXPECT_THAT(
      refusal("tiled:\n  rules:\n    tile: off\n"),
      HasSubstr(
          "space.yaml:3: tiled: no kernel is built without rule 'tile', expected some of tree isa, waste"));
  EXPECT_THAT(refusal("tiled:\n  parameters:\n    mc: [512]\n"),
              HasSubstr("space.yaml:1: tiled: an empty space: search rule 'mc' leaves nothing of"));
  EXPECT_THAT(refusal("tiled: {rules: {tile: on, waste: [3]}}\n"), HasSubstr("space.yaml:1: rule 'waste'"));
}

/// A value that the family does not list is measured, verified, written, and found again by its name.
TEST_F(SearchSpaceCli, AValueThatTheFamilyDoesNotListIsTunedAndRuns) {
  const std::string space = written("tiled: {replace: true, parameters: {mc: [96], kc: [160]}}\n");
  const std::string tuned = program_.file("tuned.csv");
  const auto result = program_.run({"tune",
                                    "-m",
                                    "200",
                                    "-n",
                                    "64",
                                    "-k",
                                    "320",
                                    "--libtype",
                                    "tiled",
                                    "--iters",
                                    "2",
                                    "--budget",
                                    "60",
                                    "-o",
                                    tuned,
                                    "-o2",
                                    program_.file("all.csv"),
                                    "--in-process",
                                    "--quiet",
                                    "--search-space",
                                    space});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string all = read_text(program_.file("all.csv"));
  const std::size_t at = all.find("_mc96_");
  ASSERT_NE(at, std::string::npos) << all;
  const std::size_t begin = all.rfind(',', at) + 1;
  const std::string name = all.substr(begin, all.find(',', at) - begin);
  EXPECT_THAT(name, HasSubstr("_kc160_"));
  const auto checked = program_.run({"check", "-m", "200", "-n", "64", "-k", "320", "--kernel", name});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

TEST_F(SearchSpaceCli, ReplacingReachesWhatTheFamilyLeavesOutAndItRuns) {
  const std::string file =
      "tiled:\n  replace: true\n  parameters: {mc: [512], nc: [2048], kc: [4096], pf: [0]}\n";
  EXPECT_EQ(explain(file).exit_code, 0);
  const auto result = program_.run({"tune",
                                    "-m",
                                    "3",
                                    "-n",
                                    "64",
                                    "-k",
                                    "64",
                                    "--libtype",
                                    "tiled",
                                    "--iters",
                                    "2",
                                    "--budget",
                                    "60",
                                    "-o",
                                    program_.file("tuned.csv"),
                                    "-o2",
                                    program_.file("all.csv"),
                                    "--in-process",
                                    "--search-space",
                                    written(file)});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string all = read_text(program_.file("all.csv"));
  EXPECT_THAT(all, HasSubstr("_mc512_nc2048_kc4096_pf0_"));
  EXPECT_THAT(all, ::testing::Not(HasSubstr("_mc64_")));
}

/// 2,592 points of the tiled family of a recorded machine.
TEST_F(SearchSpaceCli, StagedEndsWithTheBestPointOfTheExhaustiveSearch) {
  const std::string space = GEMMTUNE_TEST_DATA "/search_space/narrow.yaml";
  const auto exhaustive = winners("exhaustive", space);
  EXPECT_EQ(exhaustive.size(), 12U);
  EXPECT_EQ(winners("staged", space), exhaustive);
  for (const auto& [shape, kernel] : exhaustive) {
    if (kernel.starts_with("tiled")) {
      EXPECT_THAT(kernel, ::testing::ContainsRegex("isaamx_.*_mr(8|12|16)_")) << shape;
    }
  }
}

TEST_F(SearchSpaceCli, TuneChecksTheFileBeforeItMeasures) {
  const std::string output = program_.file("tuned.csv");
  const auto result = program_.run({"tune", "-m", "3", "-n", "64", "-k", "64", "-o", output, "--search-space",
                                    written("tiled: {parameters: {mc: [0]}}")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--search-space"));
  EXPECT_FALSE(std::filesystem::exists(output));
  const auto missing =
      program_.run({"tune", "-m", "3", "-n", "64", "-k", "64", "-o", output, "--search-space", "no"});
  EXPECT_EQ(missing.exit_code, 2);
}

}  // namespace
}  // namespace gemmtune::test::search_space_test
