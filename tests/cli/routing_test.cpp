// Routing as part of the measuring policy, and shared experts, from the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::routing_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RoutingCommands : public ::testing::Test {
 protected:
  SubprocessResult tune_mixture(std::vector<std::string> more) const {
    std::vector<std::string> words = {"tune", "--op",  "fused_moe", "-m",       "8", "-n",
                                      "32",   "-k",    "64",        "--expert", "4", "--topk",
                                      "2",    "-o",    output(),    "--iters",  "3", "--confirmations",
                                      "1",    "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  }
  std::string output() const { return program.file("tuned_fmoe.csv"); }
  std::string trace(const std::string& header = "experts 4\ntopk 2\n") const {
    return program.folder().write("recorded.routing", "gemmtune routing 1\n" + header + "0 1\n3 1\n1 2\n");
  }

  SimulatedProgram program;
};

/// The cell of the only row.
std::string cell(const std::string& file, const std::string& column) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(file);
  for (std::string line; std::getline(text, line);) {
    auto& cells = lines.emplace_back();
    std::istringstream row(line);
    for (std::string each; std::getline(row, each, ',');) cells.push_back(each);
  }
  for (std::size_t i = 0; lines.size() > 1 && i < lines[0].size(); ++i)
    if (lines[0][i] == column) return i < lines[1].size() ? lines[1][i] : "";
  return "no column " + column;
}

TEST_F(RoutingCommands, ARowNamesItsRoutingAndHasItsLossesOnTheOthers) {
  const auto tuned = tune_mixture({"--routing", "zipf", "--routing-trace", trace()});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const std::string file = read_text(output());
  EXPECT_EQ(cell(file, "routing"), "zipf");
  EXPECT_EQ(cell(file, "shared_experts"), "no column shared_experts");
  const Json problem = parse_json(tuned.out)["problems"][0];
  ASSERT_FALSE(problem["routings"].empty()) << tuned.out;
  const Json environments = parse_json(read_text(output() + ".env.json"));
  ASSERT_EQ(environments.size(), 1U);
  const Json& environment = *environments.begin();
  EXPECT_THAT(environment["policy"].get<std::string>(),
              HasSubstr(" routing=zipf routing_trace=recorded.routing#"));
  const Json& routings = environment["observations"]["routings"];
  ASSERT_EQ(routings.size(), 1U);
  EXPECT_EQ((*routings.begin())["kernelName"], cell(file, "kernelName1"));
  std::vector<std::string> names;
  for (const auto& [name, loss] : (*routings.begin())["loss"].items()) names.push_back(name.substr(0, 7));
  EXPECT_THAT(names, ElementsAre("trace:r", "uniform"));

  // Another routing is another time: nothing of the journal counts, and the row is stale.
  const auto stale = tune_mixture({"--stale", "--budget", "60"});
  ASSERT_EQ(stale.exit_code, 0) << stale.err;
  EXPECT_EQ(cell(read_text(output()), "routing"), "uniform");

  for (const std::string routing : {"uniform", "zipf"}) {
    const auto bench = program.run({"bench", output(), "--routing", routing, "--rounds", "3", "--json"});
    EXPECT_EQ(bench.exit_code, 0) << bench.err;
    EXPECT_GT(parse_json(bench.out)["rows"][0]["us"], 0);
  }
  EXPECT_EQ(program.run({"bench", output(), "--routing", "trace:" + trace(), "--rounds", "3"}).exit_code, 0);
}

TEST_F(RoutingCommands, ARunGoesOnWithRoundsOnOtherRoutingsFromItsJournal) {
  ASSERT_EQ(tune_mixture({}).exit_code, 0);
  const auto lines = program.run({"journal", "export", output() + ".journal"});
  EXPECT_EQ(lines.exit_code, 0) << lines.err;
  EXPECT_THAT(lines.out, HasSubstr("finals_on_zipf"));
}

TEST_F(RoutingCommands, BadRoutingsAreUsageErrors) {
  const auto error_of = [&](std::vector<std::string> more) {
    const auto result = tune_mixture(std::move(more));
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(error_of({"--routing", "skewed"}),
              HasSubstr("--routing skewed: expected uniform, zipf or trace:FILE"));
  EXPECT_THAT(error_of({"--routing", "trace"}), HasSubstr("expected uniform, zipf or trace:FILE"));
  EXPECT_THAT(error_of({"--routing", "trace:/none"}), HasSubstr("/none"));
  const std::string other = trace("experts 5\ntopk 2\n");
  EXPECT_THAT(error_of({"--routing-trace", other}),
              HasSubstr("routing trace recorded.routing: of 5 experts and topk 2, which no shape has"));
  EXPECT_THAT(error_of({"--routing", "trace:" + other, "--routing-trace", "/none"}),
              HasSubstr("expected one file"));
  EXPECT_THAT(error_of({"--routing", "trace:" + trace("experts 4\ntopk 3\n")}),
              HasSubstr("recorded.routing:4: 2 experts, expected 3 (topk)"));
  const auto dense =
      program.run({"tune", "-m", "1", "-n", "64", "-k", "64", "--routing", "zipf", "-o", output()});
  EXPECT_EQ(dense.exit_code, 2);
  EXPECT_THAT(dense.err, HasSubstr("--routing zipf: no shape is of fused_moe"));
}

TEST_F(RoutingCommands, SharedExpertsCountInExpertAndTopk) {
  const auto tuned = tune_mixture({"--shared-experts", "1", "--act-type", "Swiglu"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << tuned.out;
  const std::string file = read_text(output());
  EXPECT_EQ(cell(file, "expert"), "4");
  EXPECT_EQ(cell(file, "topk"), "2");
  EXPECT_EQ(cell(file, "shared_experts"), "1");
  const auto checked = program.run({"check", output()});
  EXPECT_EQ(checked.exit_code, 0) << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("1 right, 0 not"));
  // The row answers whether or not the caller names the shared experts.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--shared-experts", "1"}}) {
    std::vector<std::string> words = {"lookup", "--op",       "fused_moe", "-m",       "8",       "-n",
                                      "32",     "-k",         "64",        "--expert", "4",       "--topk",
                                      "2",      "--act-type", "Swiglu",    "--json",   "--table", output()};
    words.insert(words.end(), more.begin(), more.end());
    const auto found = program.run(words);
    ASSERT_EQ(found.exit_code, 0) << found.err;
    EXPECT_EQ(parse_json(found.out)["level"], "exact");
  }
  // A list of sizes keeps them.
  const auto listed = program.run({"shapes", "-i", output()});
  EXPECT_THAT(listed.out, HasSubstr(",doweight_stage1,shared_experts,calls\n"));
  const auto refused = tune_mixture({"--shared-experts", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("shared_experts = 2, expected a whole number from 0 to 1"));
}

}  // namespace
}  // namespace gemmtune::test::routing_test
