// --evaluator: kernels of another program, which support/evaluator.py is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/program.h"
#include "formats/csv/csv.h"
#include "formats/json.h"

namespace gemmtune::test::evaluator_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EvaluatorCli : public ::testing::Test {
 protected:
  static std::string command(const std::string& options = {}) {
    return "python3 " GEMMTUNE_SOURCE_DIR "/tests/support/evaluator.py" +
           (options.empty() ? "" : " " + options);
  }
  /// hello with another member.
  static std::string changed(const std::string& member, const std::string& value) {
    return command("--hello '" + member + "=" + value + "'");
  }
  SubprocessResult run(std::vector<std::string> words, const std::string& evaluator) const {
    words.insert(words.end(), {"--evaluator", evaluator});
    return program_.run(std::move(words));
  }
  SubprocessResult tune(std::vector<std::string> more, const std::string& evaluator = command()) const {
    std::vector<std::string> words = {
        "tune", "-m", "8", "-n", "24", "-k", "16", "-o", program_.file("out.csv"), "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run(std::move(words), evaluator);
  }
  std::vector<std::map<std::string, std::string>> rows(const std::string& name) const {
    std::vector<std::map<std::string, std::string>> rows;
    const auto content = read_file(program_.file(name));
    EXPECT_TRUE(content.ok()) << content.message();
    const auto table = parse_csv(name, content.ok() ? *content : "");
    std::vector<std::string> header;
    for (const CsvLine& line : table->lines) {
      CsvCells cells;
      EXPECT_TRUE(cells.split(line.text)) << line.text;
      std::map<std::string, std::string> row;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (line.number == 1) header.emplace_back(cells[i]);
        row[header.at(i)] = cells[i];
      }
      if (line.number > 1) rows.push_back(std::move(row));
    }
    return rows;
  }

  Program program_;
};

// By the formula of evaluator.py.
constexpr const char* best_kernel = "python_gemm_r2_bm16_bn32_nw4_cmnone";

TEST_F(EvaluatorCli, ExplainShowsItsParametersAndRules) {
  const auto result =
      run({"explain", "-m", "16", "-n", "16", "-k", "16", "--space", "python_gemm", "--json"}, command());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json space = parse_json(result.out)["space"];
  EXPECT_EQ(space["points"], 4 * 5 * 3 * 2);
  std::map<std::string, Json> rules;
  for (const Json& rule : space["rules"]) rules[rule["name"]] = rule;
  EXPECT_EQ(rules["registers"]["kind"], "build");
  EXPECT_EQ(rules["columns"]["kind"], "search");
  EXPECT_EQ(rules["columns"]["removed"], 72) << "64, 128 and 256 columns are more than twice 16";
  EXPECT_EQ(space["allowed"], 48);
}

TEST_F(EvaluatorCli, ProblemsThatItDoesNotTakeAreRefusedWithTheReason) {
  const auto odd = run({"explain", "-m", "16", "-n", "16", "-k", "15"}, command());
  EXPECT_EQ(odd.exit_code, 0) << odd.err;
  EXPECT_THAT(odd.out, HasSubstr("size: the evaluator requires k % 2 == 0"));
  const auto other = tune({"--op", "a8w8"});
  EXPECT_EQ(other.exit_code, 1) << other.err;
  EXPECT_THAT(other.out + other.err, HasSubstr("operation: a8w8 is not among the evaluator's"));
}

TEST_F(EvaluatorCli, OneThatIsSilentIsGivenUpWithTheBudget) {
  const auto result = tune({"--budget", "1"}, "python3 -c 'import time; time.sleep(600)'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no reply to \"hello\" within 1 s"));
}

TEST_F(EvaluatorCli, TuneWritesTheBestConfig) {
  const auto result = tune({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto written = rows("out.csv");
  ASSERT_EQ(written.size(), 1U);
  EXPECT_EQ(written[0].at("kernelName"), best_kernel);
  EXPECT_EQ(written[0].at("libtype"), "python_gemm");
  EXPECT_EQ(written[0].at("gfx"), "python");
  EXPECT_EQ(written[0].at("cu_num"), "3");
  EXPECT_EQ(written[0].at("default_kernel"), "python_gemm_r2_bm64_bn64_nw4_cmnone");
  EXPECT_EQ(written[0].at("verdict"), "win");
  EXPECT_EQ(written[0].at("err_ratio"), "0.0");

  const auto check = run({"check", program_.file("out.csv")}, command());
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  const auto bench = run({"bench", program_.file("out.csv"), "--json"}, command());
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr(best_kernel));
}

TEST_F(EvaluatorCli, SamplesThatNoClockShowsAreRefused) {
  for (const char* microseconds : {"1e308", "1e-9", "0", "null"}) {
    const auto result = tune({}, command(std::string("--microseconds ") + microseconds));
    EXPECT_NE(result.exit_code, 0) << microseconds;
    EXPECT_THAT(result.out + result.err, HasSubstr("expected a number from 0.001 to 3.6e+09"))
        << microseconds;
  }
}

TEST_F(EvaluatorCli, ARuleWithoutAnEndIsRefused) {
  std::string rule = "n == 1";
  for (int i = 0; i < 1000; ++i) rule += " or n == 1";
  const auto result =
      tune({}, command("--hello 'rules=[{\"name\": \"long\", \"refuses\": \"" + rule + "\"}]'"));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rules[0].refuses: 'n == 1 or n == 1"));
  EXPECT_THAT(result.err, HasSubstr("has 10006 characters, expected at most 1024"));
}

// 100 W with a cache modifier, 300 W without; 2 µs more.
TEST_F(EvaluatorCli, TheObjectiveChoosesTheKernelWithFewerJoules) {
  const std::string evaluator = command("--hello energy=true --log " + program_.file("log"));
  const auto result = tune({"--objective", "energy", "-o2", program_.file("all.csv"), "--json"}, evaluator);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto written = rows("out.csv");
  EXPECT_EQ(written.at(0).at("kernelName"), "python_gemm_r2_bm16_bn32_nw4_cm.cg");
  EXPECT_EQ(written.at(0).at("verdict"), "win");  // in time too
  const Json problem = parse_json(result.out)["problems"][0];
  EXPECT_EQ(problem["chosen_by"], "energy");
  EXPECT_NEAR(problem["joules"].get<double>(), 43.4e-6 * 100, 1e-4);
  EXPECT_NEAR(problem["default_joules"].get<double>(), 46.7e-6 * 300, 1e-4);
  EXPECT_NEAR(problem["speedup"].get<double>(), 46.7 / 43.4, 0.01);
  std::size_t with_joules = 0;
  for (const auto& row : rows("all.csv")) {
    if (row.at("joules").empty()) continue;
    ++with_joules;
    if (row.at("kernelName") == best_kernel) {
      EXPECT_NEAR(std::stod(row.at("joules")), 41.4e-6 * 300, 1e-4);
      EXPECT_LT(std::stod(row.at("joules_spread")), 1e-4);
    }
  }
  EXPECT_EQ(with_joules, problem["energies"].size());
  EXPECT_GE(with_joules, 5U);
  const auto environments = read_file(program_.file("out.csv.env.json"));
  ASSERT_TRUE(environments.ok());
  const Json environment = parse_json(*environments)[written.at(0).at("env")];
  EXPECT_THAT(environment["policy"].get<std::string>(), HasSubstr("objective=energy"));
  EXPECT_EQ(environment["observations"]["joules"].begin().value()["joules"], problem["joules"]);

  // By time, in the same place: another environment, and no joules unless they are asked for.
  const auto by_time = tune({"--all", "--json"}, evaluator);
  ASSERT_EQ(by_time.exit_code, 0) << by_time.err;
  EXPECT_EQ(rows("out.csv").at(0).at("kernelName"), best_kernel);
  EXPECT_FALSE(parse_json(by_time.out)["problems"][0].contains("joules"));
  const auto measured = tune({"--all", "--json", "--energy"}, evaluator);
  EXPECT_EQ(parse_json(measured.out)["problems"][0]["chosen_by"], "time");
  EXPECT_NEAR(parse_json(measured.out)["problems"][0]["joules"].get<double>(), 41.4e-6 * 300, 1e-4);
}

TEST_F(EvaluatorCli, WithoutJoulesNothingIsMeasured) {
  const auto result = tune({"--energy"}, command("--log " + program_.file("log")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--energy"), HasSubstr("\"energy\": true")));
  const auto log = read_file(program_.file("log"));
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->find("\"build\""), std::string::npos) << *log;
  EXPECT_FALSE(file_exists(program_.file("out.csv")));
}

// Both searches end with the best of 2,000 points by the formula of evaluator.py.
TEST_F(EvaluatorCli, ALargeSpaceEndsWithTheBestPoint) {
  const std::string evaluator = command(
      "--hello 'rules=[]' --hello 'defaults=[]' --hello 'parameters=["
      R"({"name":"BLOCK_SIZE_M","key":"bm","values":[16,32,48,64,80,96,112,128,144,160]},)"
      R"({"name":"BLOCK_SIZE_N","key":"bn","values":[16,32,48,64,80,96,112,128,144,160]},)"
      R"({"name":"num_warps","key":"nw","values":[1,2,4,8,16]},)"
      R"({"name":"cache_modifier","key":"cm","values":["",".ca",".cg",".cv"]}]')");
  const auto recorded = run({"tune", "-m", "2", "-n", "8", "-k", "4", "-o", program_.file("out.csv"),
                             "--quiet", "--search", "exhaustive", "--record", program_.file("all.jsonl")},
                            evaluator);
  ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
  const auto replayed = program_.run({"tune", "--replay", program_.file("all.jsonl"), "-o",
                                      program_.file("replayed.csv"), "--quiet", "--json"});
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  EXPECT_EQ(rows("out.csv").at(0).at("kernelName"), "python_gemm_r2_bm16_bn48_nw16_cmnone");
  EXPECT_EQ(rows("replayed.csv").at(0).at("kernelName"), "python_gemm_r2_bm16_bn48_nw16_cmnone");
  EXPECT_LT(parse_json(replayed.out)["candidates"], 400) << "staged";
}

// Its own launcher reads the file: the names and values that it knows, and nothing else.
TEST_F(EvaluatorCli, BucketsHoldTheParametersUnderTheEvaluatorsNames) {
  const std::string shapes = program_.folder().write("shapes.csv", "M,N,K\n2,24,16\n8,24,16\n");
  const auto result = run({"tune", "--op", "a16w16", "-i", shapes, "--indtype", "bf16", "--buckets", "-o",
                           program_.file("configs"), "--quiet"},
                          command());
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto content = read_file(program_.file("configs/python-GEMM-A16W16-N=24-K=16.json"));
  ASSERT_TRUE(content.ok()) << content.message();
  EXPECT_EQ(parse_json(*content)["small_M"],
            parse_json(R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "num_warps": 4, "cache_modifier": ""})"));
}

TEST_F(EvaluatorCli, AFinishedRunMeasuresNothingAgain) {
  ASSERT_EQ(tune({}).exit_code, 0);
  const std::string log = program_.file("requests");
  const auto again = tune({}, command("--log " + log));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const auto requests = read_file(log);
  ASSERT_TRUE(requests.ok());
  EXPECT_THAT(*requests, AllOf(HasSubstr("\"hello\""), ::testing::Not(HasSubstr("\"build\""))));
}

// Each value of MODE is a way to fail; one configuration of each is enough.
TEST_F(EvaluatorCli, WhatGoesWrongIsTheCandidatesOutcome) {
  const std::string space = program_.folder().write(
      "space.yaml", "python_gemm: {parameters: {bm: [16], bn: [32], nw: [4], cm: [none]}}\n");
  const auto result = tune(
      {"--search", "exhaustive", "--timeout", "2", "--search-space", space, "-o2", program_.file("all.csv")},
      command("--faults --hello "
              "'defaults={\"BLOCK_SIZE_M\":16,\"BLOCK_SIZE_N\":32,\"num_warps\":4,\"cache_modifier\":\"\","
              "\"MODE\":\"right\"}'"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, std::pair<std::string, std::string>> outcomes;
  for (const auto& row : rows("all.csv")) {
    const std::string& name = row.at("kernelName");
    outcomes[name.substr(name.find("mode") + 4)] = {row.at("outcome"), row.at("reason")};
  }
  EXPECT_EQ(outcomes["right"].first, "ok");
  EXPECT_EQ(outcomes["wrong"].first, "wrong");
  EXPECT_EQ(outcomes["refused"].first, "refused");
  EXPECT_EQ(outcomes["broken"].first, "build_failed");
  EXPECT_THAT(outcomes["broken"].second, HasSubstr("the compiler did not like it"));
  EXPECT_EQ(outcomes["crash"].first, "crashed");
  EXPECT_THAT(outcomes["crash"].second, AllOf(HasSubstr("SIGSEGV"), HasSubstr("about to crash")));
  EXPECT_EQ(outcomes["exit"].first, "crashed");
  EXPECT_THAT(outcomes["exit"].second, HasSubstr("exit code 7"));
  EXPECT_EQ(outcomes["hang"].first, "timed_out");
  EXPECT_EQ(outcomes["chatter"].first, "crashed");
  EXPECT_THAT(outcomes["chatter"].second, HasSubstr("progress: 50 %"));
  EXPECT_EQ(outcomes["outside"].first, "wrong");
  EXPECT_THAT(outcomes["outside"].second, HasSubstr("before the beginning"));
  EXPECT_EQ(rows("out.csv").at(0).at("kernelName"), "python_gemm_r2_bm16_bn32_nw4_cmnone_moderight");
}

TEST_F(EvaluatorCli, SeveralShareTheShapes) {
  std::string shapes = "M,N,K\n";
  for (int m = 1; m <= 8; ++m) shapes += std::to_string(m) + ",24,16\n";
  std::vector<std::string> words = {"tune",
                                    "--op",
                                    "a16w16",
                                    "--indtype",
                                    "bf16",
                                    "-i",
                                    program_.folder().write("shapes.csv", shapes),
                                    "-o",
                                    program_.file("out.csv"),
                                    "-q"};
  for (const char* name : {"first", "second"})
    words.insert(words.end(), {"--evaluator", command("--log " + program_.file(name))});
  const auto result = program_.run(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(rows("out.csv").size(), 8U);
  for (const char* name : {"first", "second"}) {
    const auto requests = read_file(program_.file(name));
    ASSERT_TRUE(requests.ok());
    EXPECT_THAT(*requests, HasSubstr("\"build\"")) << name;
  }
  const auto twice = run({"tune", "-m", "1", "-n", "24", "-k", "16", "--evaluator", command()}, command());
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, AllOf(HasSubstr("--evaluator: "), HasSubstr("is named twice")));
  const auto check = run({"check", program_.file("out.csv"), "--evaluator", command("--log x")}, command());
  EXPECT_EQ(check.exit_code, 2);
  EXPECT_THAT(check.err, HasSubstr("--evaluator: 2 of them are for tune; this takes one"));
}

TEST_F(EvaluatorCli, HelloWithAMistakeNamesItAndWhatIsExpected) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {changed("protocol", "2"), "protocol is 2, expected 1"},
      {changed("family", "\"a_r1_b\""), "family is \"a_r1_b\", expected a name"},
      {changed("device", "{\"gfx\":\"python\"}"),
       "device.cu_num is missing, expected the number of compute units"},
      {changed("device", "{\"cu_num\":3}"), "device.gfx is missing, expected a text"},
      {changed("problems", "[]"), "problems is [], expected at least one operation"},
      {changed("problems", "[{\"operation\":\"fused_moe\"}]"),
       "problems[0].operation is \"fused_moe\", expected an operation other"},
      {changed("problems", "[{\"operation\":\"a16w16\",\"x_types\":[\"bf17\"]}]"),
       "problems[0].x_types[0] is \"bf17\", expected "},
      {changed("problems", "[{\"operation\":\"a16w16\",\"requires\":\"k %\"}]"),
       "problems[0].requires: 'k %', character"},
      {changed("parameters", "[{\"name\":\"A\",\"values\":[]}]"),
       "parameters[0].values is [], expected at least one value"},
      {changed("parameters", "[{\"name\":\"A\",\"values\":[1.5]}]"),
       "parameters[0].values[0] is 1.5, expected a whole number or a text"},
      {changed("parameters", "[{\"name\":\"A\",\"values\":[1,1]}]"),
       "parameters[0].values[1] is 1, expected a value that is not there before"},
      {changed("parameters", "[{\"name\":\"A\",\"values\":[1]},{\"name\":\"a\",\"values\":[1]}]"),
       "parameters[1].key: a is there before"},
      {changed("rules", "[{\"name\":\"r\",\"refuses\":\"cache_modifier == 1\"}]"),
       "rules[0].refuses: 'cache_modifier' is none of m, n, k, batch and the parameters"},
      {changed("rules", "[{\"name\":\"r\",\"refuses\":\"m\",\"kind\":\"odd\"}]"),
       "rules[0].kind is \"odd\", expected build or search"},
      {changed("defaults", "{\"BLOCK_SIZE_M\":65}"),
       "defaults.BLOCK_SIZE_M is 65, expected one of its values"},
      {changed("defaults", "{\"BLOCK\":65}"), "defaults: 'BLOCK' is no parameter"},
  };
  for (const auto& [evaluator, text] : mistakes) {
    const auto result = run({"explain", "-m", "1", "-n", "16", "-k", "16"}, evaluator);
    EXPECT_EQ(result.exit_code, 2) << evaluator;
    EXPECT_THAT(result.err, AllOf(HasSubstr("hello: "), HasSubstr(text)));
  }
}

TEST_F(EvaluatorCli, ACommandThatIsNoEvaluatorIsAnError) {
  const std::vector<std::pair<std::string, std::string>> commands = {
      {"/nowhere/evaluator --fast",
       "evaluator '/nowhere/evaluator --fast': /nowhere/evaluator: No such file or directory"},
      {"false", "evaluator 'false' ended: the process ended itself with exit code 1"},
      {"sh -c 'echo no module named triton >&2; exit 3'",
       "exit code 3; its last words: no module named triton"},
      {"echo hello", "its reply to \"hello\" is 'hello', expected a JSON object"},
      {"python3 a.py | tee log", "an operator of a shell"},
      {"python3 'a.py", "a quote is not closed"},
      {" ", "expected a command"},
  };
  for (const auto& [evaluator, text] : commands) {
    const auto result = run({"explain", "-m", "1", "-n", "16", "-k", "16"}, evaluator);
    EXPECT_EQ(result.exit_code, 2) << evaluator << result.out;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  const auto none = run({"explain", "-m", "1", "-n", "16", "-k", "16"}, "");
  EXPECT_EQ(none.exit_code, 2) << "not the CPU instead: " << none.out;
  const auto both = run({"explain", "-m", "1", "-n", "16", "-k", "16", "--backend", "cpu"}, command());
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--evaluator takes the place of --backend and --device"));
}

}  // namespace
}  // namespace gemmtune::test::evaluator_test
