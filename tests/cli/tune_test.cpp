// `gemmtune tune` end to end on tiny shapes: each flag has an effect that is seen from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* key_header = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";

std::string row(int m, int n, int k, const std::string& type = "torch.bfloat16") {
  return std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k) + ",False," + type + "," +
         type + ",False,False\n";
}

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string line(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < number; ++i) begin = text.find('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

class Tune : public ::testing::Test {
 protected:
  std::string output() const { return program.file("tuned.csv"); }
  /// Tunes the rows with our own families, quickly.
  SubprocessResult tune_rows(const std::string& rows, std::vector<std::string> more) const {
    const std::string path = program.folder().write("shapes.csv", key_header + rows);
    std::vector<std::string> words = {"tune",         "-i",       path, "-o",      output(), "--libtype",
                                      "tiled,skinny", "--budget", "60", "--iters", "5"};
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  }
  SubprocessResult tune_one(std::vector<std::string> more) const {
    more.insert(more.end(), {"-o", output()});
    return program.run(program.quick_tune(std::move(more)));
  }

  SimulatedProgram program;
};

/// Real kernels on the machine's clock, once.
TEST(TuneEndToEnd, OneShapeFromNothingToATunedFile) {
  const Program program;
  const std::string output = program.file("tuned.csv");
  const auto result = program.run(program.quick_tune({"-o", output}));
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.err, HasSubstr("[1/1] 3x64x64"));
  EXPECT_EQ(lines(read_text(output)), 2U);
  const auto benched = program.run({"bench", output, "--rounds", "3", "--json", "--quiet"});
  ASSERT_EQ(benched.exit_code, 0) << benched.err;
  EXPECT_EQ(parse_json(benched.out)["rows"][0]["match"], "exact");
  const auto checked = program.run({"check", output});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("1 right, 0 not"));
}

TEST_F(Tune, OneShapeFromNothingToATunedFile) {
  const auto result = tune_one({});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  for (const char* part : {"3x64x64", "verdict", "1 shape in ", "of 1 shape won", "gemmtune report"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.out, HasSubstr("written: " + output()));
  EXPECT_THAT(result.err, HasSubstr("[1/1] 3x64x64"));
  EXPECT_THAT(result.err, Not(HasSubstr("\r")));
  const std::string file = read_text(output());
  EXPECT_EQ(lines(file), 2U) << file;
  EXPECT_THAT(line(file, 0), HasSubstr("gfx,cu_num,M,N,K"));
  EXPECT_THAT(line(file, 1), AnyOf(HasSubstr("tiled_r"), HasSubstr("skinny_r"), HasSubstr("onednn_r")));
  EXPECT_TRUE(std::filesystem::exists(output() + ".env.json"));
}

TEST_F(Tune, EventsSayWhatHappens) {
  const std::string path = program.file("events.jsonl");
  const auto result = tune_one({"--events", path});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  std::vector<Json> events;
  std::istringstream text(read_text(path));
  for (std::string line; std::getline(text, line);) events.push_back(Json::parse(line));
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(events[0]["event"], "run_started");
  EXPECT_EQ(events[0]["waiting"], Json::array({0}));
  EXPECT_EQ(events[1]["event"], "problem_started");
  EXPECT_EQ(events[2]["event"], "candidate");
  EXPECT_EQ(events[2]["index"], 0);
  EXPECT_GT(events[2]["us"].get<double>(), 0);
  EXPECT_GT(events[0]["device"]["cu_num"].get<int>(), 0);
  EXPECT_EQ(events.back(), (Json{{"event", "run_ended"}, {"state", "done"}}));
  const auto& done = events[events.size() - 2];
  EXPECT_EQ(done["event"], "problem_done");
  EXPECT_EQ(done["m"], 3);
  EXPECT_THAT(line(read_text(output()), 1), HasSubstr(done["kernelName"].get<std::string>()));
  EXPECT_THAT(done["ties"].dump(), HasSubstr(done["kernelName"].get<std::string>()));
  EXPECT_GT(done["rounds"]["used"].get<int>(), 0);
}

TEST_F(Tune, EventsThatCannotBeWrittenAreAnErrorBeforeAnything) {
  const auto result = tune_one({"--events", "/no/such/folder/events"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--events /no/such/folder/events: No such file"));
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(Tune, AgainThereIsNothingToDoUnlessAll) {
  ASSERT_EQ(tune_one({}).exit_code, 0);
  const std::string before = read_text(output());
  const auto again = tune_one({});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing to do"));
  EXPECT_THAT(again.out, HasSubstr("--all"));
  EXPECT_EQ(read_text(output()), before);
  const auto all = tune_one({"--all"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("1 shape in "));
  EXPECT_EQ(lines(read_text(output())), 2U);
  // The output as the input: all its rows of this device.
  const auto itself = program.run({"tune", "--all", "-i", output(), "-o", output(), "--libtype", "tiled",
                                   "--budget", "60", "--iters", "5"});
  EXPECT_EQ(itself.exit_code, 0) << itself.err;
  EXPECT_THAT(itself.out, HasSubstr("1 shape in "));
}

TEST_F(Tune, RowsOfTheSameEnvironmentAreNotStale) {
  ASSERT_EQ(tune_one({}).exit_code, 0);
  EXPECT_THAT(tune_one({"--stale"}).out, HasSubstr("nothing to do"));
  // Another policy is another environment.
  EXPECT_THAT(tune_one({"--stale", "--cache", "warm"}).out, HasSubstr("1 shape in "));
}

TEST_F(Tune, FurtherOutputsCountAsDone) {
  ASSERT_EQ(tune_one({}).exit_code, 0);
  const auto result =
      program.run(program.quick_tune({"--tuned_file", program.file("new.csv") + ":" + output()}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing to do"));
}

TEST_F(Tune, TheConfigFolderIsTheDefault) {
  std::filesystem::create_directories(program.config_folder());
  program.folder().write("config/bf16_untuned_gemm.csv", key_header + row(3, 64, 64));
  const auto result = program.run({"tune", "--libtype", "tiled", "--budget", "60", "--iters", "5"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(lines(read_text(program.config_folder() + "/bf16_tuned_gemm.csv")), 2U);
}

TEST_F(Tune, TheConfigFolderIsMade) {
  const auto result = program.run(program.quick_tune({}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(program.config_folder() + "/bf16_tuned_gemm.csv"));
}

TEST_F(Tune, LimitTakesTheFirstShapes) {
  const auto result = tune_rows(row(3, 64, 64) + row(5, 64, 64) + row(7, 64, 64), {"--limit", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["problems"].size(), 2U);
  EXPECT_EQ(json["problems"][1]["m"], 5);
}

TEST_F(Tune, MaxDimLeavesOutLargerShapes) {
  const std::string rows = row(3, 64, 64) + row(65, 64, 64) + row(5, 64, 96) + row(7, 64, 64);
  const auto result = tune_rows(rows, {"--max-dim", "64", "--limit", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = parse_json(result.out);
  ASSERT_EQ(json["problems"].size(), 2U) << "those of --limit are counted without them";
  EXPECT_EQ(json["problems"][0]["m"], 3);
  EXPECT_EQ(json["problems"][1]["m"], 7);
  EXPECT_THAT(result.err, HasSubstr("--max-dim 64: 2 larger shapes left out"));
  const auto none = tune_rows(rows, {"--max-dim", "8"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--max-dim 8: no shape is left"));
  EXPECT_EQ(tune_rows(rows, {"--max-dim", "0"}).exit_code, 2);
}

TEST_F(Tune, ProfileHoldsEveryCandidate) {
  ASSERT_EQ(tune_one({"-o2", program.file("profile.txt")}).exit_code, 0);
  const std::string profile = read_text(program.file("profile.txt"));
  EXPECT_THAT(line(profile, 0), HasSubstr("gfx,cu_num,M,N,K"));
  EXPECT_THAT(line(profile, 0), HasSubstr("spread"));
  EXPECT_THAT(line(profile, 0), HasSubstr(",outcome,reason"));
  EXPECT_GT(lines(profile), 2U);
  EXPECT_THAT(profile, HasSubstr(",ok,"));
  ASSERT_EQ(tune_one({"--all", "--profile_file", program.file("profile.txt")}).exit_code, 0);
  const std::string longer = read_text(program.file("profile.txt"));
  EXPECT_EQ(longer.substr(0, profile.size()), profile);
  EXPECT_EQ(longer.find("outcome"), longer.rfind("outcome")) << "one header";
  program.folder().write("other.csv", "a,b\n");
  EXPECT_EQ(tune_one({"--all", "-o2", program.file("other.csv")}).exit_code, 2);
}

/// The columns are the operation's: a8w8 has kernelId where a16w16 has solidx.
TEST_F(Tune, ProfileHasTheColumnsOfItsOperation) {
  const auto run =
      program.run({"tune", "--op", "a8w8", "-m", "4", "-n", "64", "-k", "64", "--indtype", "i8", "-o",
                   output(), "-o2", program.file("profile.csv"), "--search", "random", "--iters", "2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string profile = read_text(program.file("profile.csv"));
  EXPECT_THAT(line(profile, 0), HasSubstr("q_dtype_w"));
  EXPECT_EQ(std::ranges::count(line(profile, 0), ','), std::ranges::count(line(profile, 1), ',')) << profile;
}

TEST_F(Tune, SortOrdersTheFile) {
  ASSERT_EQ(tune_rows(row(7, 64, 64) + row(3, 64, 64), {"--sort"}).exit_code, 0);
  const std::string sorted = read_text(output());
  EXPECT_LT(sorted.find(",3,64,64,"), sorted.find(",7,64,64,"));
  std::filesystem::remove(output());
  // Rows stand as they were done: without a budget in the order of the list.
  ASSERT_EQ(program
                .run({"tune", "-i", program.file("shapes.csv"), "-o", output(), "--libtype", "skinny",
                      "--iters", "5", "--sort", "False"})
                .exit_code,
            0);
  const std::string unsorted = read_text(output());
  EXPECT_LT(unsorted.find(",7,64,64,"), unsorted.find(",3,64,64,"));
}

TEST_F(Tune, FamiliesAndTheirAliases) {
  for (const std::string word : {"skinny", "reference", "triton", "ck", "cktile", "asm"}) {
    const std::string profile = program.file(word + ".profile");
    const auto result = tune_one({"--all", "--libtype", word, "-o2", profile, "--budget", "2"});
    // quick_tune gives --libtype too: the later one is refused, so that nothing is decided by order.
    EXPECT_EQ(result.exit_code, 2) << result.out;
    const auto alone = program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--all", "--libtype", word,
                                    "-o2", profile, "--budget", "60", "--iters", "5", "-o", output()});
    EXPECT_EQ(alone.exit_code, 0) << word << alone.err;
    const std::string text = read_text(profile);
    EXPECT_EQ(text.find("tiled_r") != std::string::npos, word != "skinny" && word != "reference") << word;
    EXPECT_EQ(text.find("reference_r") != std::string::npos, word == "reference") << word;
  }
}

TEST_F(Tune, WithoutSplitKNoCandidateSplits) {
  const auto candidates = [&](const std::vector<std::string>& more, const std::string& name) {
    std::vector<std::string> words = {"tune",       "-m",      "1",         "-n",       "16",
                                      "-k",         "4096",    "--libtype", "tiled",    "--search",
                                      "exhaustive", "--iters", "1",         "--budget", "60",
                                      "-o",         output(),  "--all",     "-o2",      program.file(name)};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(program.run(words).exit_code, 0);
    return read_text(program.file(name));
  };
  const std::string without = candidates({"--no-splitK"}, "without");
  for (const std::string split : {"_sk2", "_sk4", "_sk8"}) EXPECT_THAT(without, Not(HasSubstr(split)));
  EXPECT_GT(lines(without), 1U);
  EXPECT_GT(lines(candidates({"-k"}, "with")), 1U);
}

TEST_F(Tune, TypesAndBias) {
  const auto result = program.run({"tune",      "-m",  "3",          "-n",  "64",     "-k",        "64",
                                   "--indtype", "f16", "--outdtype", "f32", "--bias", "--libtype", "tiled",
                                   "--budget",  "60",  "--iters",    "5",   "-o",     output()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_text(output()), HasSubstr(",3,64,64,True,torch.float16,torch.float32,False,False,"));
}

TEST_F(Tune, WordsOfTuneGemm) {
  const auto result =
      program.run({"tune",     "-m",       "3",       "-n",       "64",   "-k",     "64",        "-dtype_a",
                   "fp32",     "-dtype_b", "fp32",    "-dtype_c", "fp32", "-col_b", "--libtype", "tiled",
                   "--budget", "60",       "--iters", "5",        "-o",   output()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_text(output()), HasSubstr("torch.float32,torch.float32"));
}

TEST_F(Tune, ACsvTakesNoColumnMajorSizeAndSaysWhatDoes) {
  const auto result = program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--w_order", "N", "--libtype",
                                   "tiled", "--budget", "60", "--iters", "5", "-o", output(), "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const Json json = parse_json(result.out);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_EQ(json["problems"][0]["state"], "failed");
  const auto reason = json["problems"][0]["reason"].get<std::string>();
  EXPECT_THAT(reason, HasSubstr("w_order=N"));
  EXPECT_THAT(reason, HasSubstr("AITER's columns hold row-major operands only"));
  EXPECT_THAT(reason, HasSubstr(".yaml"));
  EXPECT_EQ(json["candidates"], 0) << "nothing is measured in vain";
}

TEST_F(Tune, ShapesOfAModel) {
  std::filesystem::create_directories(program.file("model"));
  program.folder().write("model/config.json",
                         R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
      "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
      "num_hidden_layers": 3, "vocab_size": 320, "torch_dtype": "bfloat16"})");
  const auto result =
      program.run({"tune", "--model_dir", program.file("model"), "--tp", "2", "--nsets", "1", "--limit", "2",
                   "--libtype", "skinny,tiled", "--budget", "60", "--iters", "5", "-o", output(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(parse_json(result.out)["problems"].size(), 2U);
}

TEST_F(Tune, OfAModelTheRowsThatAreNotTunedAreCounted) {
  std::filesystem::create_directories(program.file("model"));
  program.folder().write(
      "model/config.json",
      R"({"model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 8,
      "num_experts_per_tok": 2, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 320,
      "quantization_config": {"quant_method": "fp8"}})");
  std::vector<std::string> words = {"tune",         "--model_dir", program.file("model"),
                                    "--nsets",      "1",           "--libtype",
                                    "skinny,tiled", "--budget",    "60",
                                    "--iters",      "5",           "-o",
                                    output(),       "--json"};
  const auto result = program.run(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(parse_json(result.out)["problems"].size(), 2U);  // lm_head and router
  EXPECT_THAT(result.err, HasSubstr("or all with -o FOLDER/: 2 rows of a8w8, 1 of fused_moe"));
  words.insert(words.end(), {"--op", "a16w16"});
  EXPECT_THAT(program.run(words).err, Not(HasSubstr("left out")));
}

TEST_F(Tune, RowsThatCannotBeReadAreReported) {
  const auto result =
      tune_rows(row(3, 64, 64) + "x,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n", {});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("shapes.csv:3"));
  EXPECT_THAT(result.out, HasSubstr("1 row could not be read"));
  EXPECT_EQ(
      tune_rows(row(3, 64, 64) + "x,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n", {"--strict"})
          .exit_code,
      2);
}

TEST_F(Tune, RowsThatNoFamilyTakesAreReportedWithReasons) {
  const std::string fp8 = "3,64,64,False,torch.float8_e4m3fnuz,torch.bfloat16,True,False\n";
  const auto result = tune_rows(row(3, 64, 64) + fp8, {});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no kernel family takes:"));
  EXPECT_THAT(result.out, HasSubstr("tiled: "));
  EXPECT_EQ(lines(read_text(output())), 2U);
}

TEST_F(Tune, VerboseQuietAndJson) {
  const auto verbose = tune_one({"--all", "-v"});
  EXPECT_THAT(verbose.err, HasSubstr("err_ratio"));
  const auto quiet = tune_one({"--all", "--quiet"});
  EXPECT_EQ(quiet.err, "");
  const auto json = tune_one({"--all", "--json", "--quiet"});
  const Json document = parse_json(json.out);
  ASSERT_FALSE(document.is_discarded()) << json.out;
  EXPECT_EQ(document["problems"][0]["m"], 3);
  EXPECT_TRUE(document["problems"][0]["us"].get<double>() > 0);
}

TEST_F(Tune, EachStrategyAndCacheModeRuns) {
  for (const std::string search : {"staged", "exhaustive", "random"}) {
    EXPECT_EQ(tune_one({"--all", "--search", search}).exit_code, 0) << search;
  }
  for (const std::string cache : {"warm", "weights-cold", "cold"}) {
    ASSERT_EQ(tune_one({"--all", "--cache", cache}).exit_code, 0) << cache;
    EXPECT_THAT(read_text(output() + ".env.json"), HasSubstr(cache));
  }
}

TEST_F(Tune, TheTeamIsWrittenAndRowsOfAnotherOneAreToldApart) {
  const auto in_environment = [this](const char* text) {
    EXPECT_THAT(read_text(output() + ".env.json"), HasSubstr(text));
  };
  ASSERT_EQ(tune_one({"--team", "own"}).exit_code, 0);
  in_environment(R"("team": "own")");
  in_environment(" team=own");
  const std::vector<std::string> strict = {"lookup", "--table", output(), "-m", "3",
                                           "-n",     "64",      "-k",     "64", "--strict"};
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_TEAM"] = "own";
  EXPECT_THAT(program.run(strict, options).out, HasSubstr("exact row"));
  EXPECT_THAT(tune_one({"--team", "gomp"}).err, HasSubstr("--team gomp: expected own or openmp"));
  options.environment["GEMMTUNE_TEAM"] = "openmp";
  const auto other = program.run(strict, options);
  if (other.err.find("OpenMP") != std::string::npos) GTEST_SKIP() << other.err;
  EXPECT_THAT(other.out, HasSubstr("measured on threads of team own, here it is openmp"));
  ASSERT_EQ(tune_one({"--all", "--between", "parallel"}).exit_code, 0);
  in_environment(R"("team": "openmp")");
  in_environment(" team=openmp between=parallel");
  ASSERT_EQ(tune_one({"--all", "--clock", "processor"}).exit_code, 0);
  in_environment(" team=openmp clock=processor");
  EXPECT_THAT(tune_one({"--all", "--clock", "cpu"}).err,
              HasSubstr("--clock cpu: expected wall or processor"));
}

TEST_F(Tune, AnImpossiblePreferRatioKeepsTheDefault) {
  const auto result =
      program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--indtype", "f32", "--prefer-ratio", "0.001",
                   "--budget", "60", "--iters", "5", "-o", output(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = parse_json(result.out);
  EXPECT_THAT(document["problems"][0]["verdict"].get<std::string>(), AnyOf("default", "undecided", "only"));
}

TEST_F(Tune, AnImpossibleErrorLimitFailsNoRightKernel) {
  EXPECT_EQ(tune_one({"--errRatio", "0"}).exit_code, 0);
}

TEST_F(Tune, ThreadsAreThePartOfTheKeyThatTheySet) {
  ASSERT_EQ(tune_one({"--threads", "1"}).exit_code, 0);
  EXPECT_THAT(line(read_text(output()), 1), HasSubstr(",1,3,64,64,"));
}

TEST_F(Tune, KilledItLeavesAReadableFile) {
  std::string rows;
  for (int m = 1; m <= 40; ++m) rows += row(m, 64, 64);
  const std::string path = program.folder().write("many.csv", key_header + rows);
  const std::vector<std::string> words = {"tune",      "-i",    path,      "-o", output(),
                                          "--libtype", "tiled", "--iters", "5"};
  {
    Subprocess process(program.words(words), program.options());
    EXPECT_TRUE(process.wait_until([&] { return std::filesystem::exists(output()); }));
    process.send(SIGKILL);
    process.wait();
  }
  ASSERT_TRUE(std::filesystem::exists(output()));
  const auto read = program.run({"shapes", "-i", output()});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  const std::size_t done = lines(read_text(output())) - 1;
  EXPECT_GE(done, 1U);
  // The same command goes on after what is there.
  std::vector<std::string> more = words;
  more.insert(more.end(), {"--budget", "1", "--json"});
  const Json document = parse_json(program.run(more).out);
  EXPECT_GE(document["states"]["done already"].get<std::size_t>(), done);
}

TEST_F(Tune, InterruptedItPublishesAndSaysSo) {
  std::string rows;
  for (int m = 1; m <= 60; ++m) rows += row(m, 64, 64);
  const std::string path = program.folder().write("many.csv", key_header + rows);
  Subprocess process(
      program.words({"tune", "-i", path, "-o", output(), "--libtype", "tiled", "--iters", "5"}),
      program.options());
  EXPECT_TRUE(process.wait_until([&] { return std::filesystem::exists(output()); }));
  process.send(SIGINT);
  const SubprocessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.out, HasSubstr("interrupted"));
  EXPECT_GE(lines(read_text(output())), 2U);
}

TEST_F(Tune, AFileLimitMidwayIsOneLineAndLeavesTheOldFile) {
  // Rows of another device fill the file up to its limit; the probe before tuning still fits.
  std::string before =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_"
      "ratio,tflops,"
      "bw\n";
  for (int m = 1; before.size() < 8000; ++m) {
    before += "gfx942,80," + std::to_string(m) +
              ",64,64,False,torch.bfloat16,torch.bfloat16,False,False,asm,7,0,5.5,some_kernel,0.0,1.0,1.0\n";
  }
  program.folder().write("tuned.csv", before);
  SubprocessOptions options = program.options();
  options.max_file_bytes = before.size() + 16;
  const auto result = program.run(program.quick_tune({"-o", output(), "--quiet"}), options);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_EQ(lines(result.err), 1U) << result.err;
  EXPECT_EQ(read_text(output()), before);
}

}  // namespace
}  // namespace gemmtune::test
