// What reads a tuned file afterwards: lookup, bench, check, tune --run_config and --compare.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A file tuned once for all tests here, with M = 16 and 3 of 64x64.
class Operator : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tuned_by = new SimulatedProgram;
    const std::string shapes =
        tuned_by->folder().write("shapes.csv",
                                 "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
                                 "16,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n"
                                 "3,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n");
    tuning = tuned_by->run({"tune", "-i", shapes, "-o", tuned_by->file("tuned.csv"), "--libtype",
                            "tiled,skinny", "--budget", "60", "--iters", "5"});
  }
  static void TearDownTestSuite() {
    delete tuned_by;
    tuned_by = nullptr;
  }
  void SetUp() override {
    ASSERT_EQ(tuning.exit_code, 0) << tuning.err;
    tuned = program.folder().write("tuned.csv", read_text(tuned_by->file("tuned.csv")));
    program.folder().write("tuned.csv.env.json", read_text(tuned_by->file("tuned.csv.env.json")));
  }
  Json json_of(const SubprocessResult& result, int code = 0) const {
    EXPECT_EQ(result.exit_code, code) << result.err << result.out;
    return parse_json(result.out);
  }
  /// The tuned file with `from` replaced by `to` everywhere.
  std::string changed(const std::string& from, const std::string& to) const {
    std::string text = read_text(tuned);
    EXPECT_NE(text.find(from), std::string::npos) << from;
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    return program.folder().write("changed.csv", text);
  }
  std::string kernel_of_m3() const {
    return json_of(
        program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", tuned, "--json"}))["kernelName"];
  }

  static Program* tuned_by;
  static SubprocessResult tuning;
  SimulatedProgram program;
  std::string tuned;
};

Program* Operator::tuned_by = nullptr;
SubprocessResult Operator::tuning;

TEST_F(Operator, LookupSaysWhichRowAndHow) {
  const Json exact =
      json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", tuned, "--json"}));
  EXPECT_EQ(exact["level"], "exact");
  EXPECT_EQ(exact["hit_m"], 3);
  EXPECT_EQ(exact["runnable"], true);
  EXPECT_EQ(exact["row"]["N"], 64);
  EXPECT_EQ(exact["row"]["kernelName"], exact["kernelName"]);
  for (const std::string key :
       {"index", "level", "hit_m", "row", "kernelName", "libtype", "runnable", "why"}) {
    EXPECT_TRUE(exact.contains(key)) << key;
  }
  const Json fine =
      json_of(program.run({"lookup", "-m", "5", "-n", "64", "-k", "64", "--table", tuned, "--json"}));
  EXPECT_EQ(fine["level"], "fine");
  EXPECT_EQ(fine["hit_m"], 16);
  const Json none =
      json_of(program.run({"lookup", "-m", "5", "-n", "65", "-k", "64", "--table", tuned, "--json"}));
  EXPECT_EQ(none["level"], "untuned");
  EXPECT_TRUE(none["row"].is_null());
  EXPECT_NE(none["kernelName"], "");
}

TEST_F(Operator, LookupInWords) {
  const auto result = program.run({"lookup", "-m", "5", "-n", "64", "-k", "64", "--table", tuned});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const std::string part : {"exact", "fine", "M=16", "answer:", "tuned.csv:"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
    EXPECT_THAT(result.out, HasSubstr("\nfrom " + tuned + ": "));
  }
}

TEST_F(Operator, LookupForADeviceThatIsNotHere) {
  const Json other = json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", tuned,
                                          "--gfx", "gfx942", "--cu_num", "80", "--json"}));
  EXPECT_EQ(other["level"], "untuned");
  const std::string aiter = program.folder().write("aiter.csv",
                                                   "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,"
                                                   "libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw\n"
                                                   "gfx942,80,3,64,64,False,torch.bfloat16,torch.bfloat16,"
                                                   "False,False,asm,7,0,5.5,_ZN5aiter3fooE,0.0,1.0,1.0\n");
  const Json row = json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table",
                                        tuned + ":" + aiter, "--gfx", "gfx942", "--cu_num", "80", "--json"}));
  EXPECT_EQ(row["level"], "exact");
  EXPECT_EQ(row["libtype"], "asm");
  EXPECT_EQ(row["runnable"], false);
  EXPECT_NE(row["why"], "");
}

TEST_F(Operator, LookupTakesTheEnvironmentsTable) {
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_CONFIG_A16W16"] = tuned;
  EXPECT_EQ(json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--json"}, options))["level"],
            "exact");
  EXPECT_EQ(json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--json"}))["level"],
            "untuned");
}

TEST_F(Operator, LookupOfARowWhoseKernelIsGone) {
  const std::string path = changed(kernel_of_m3(), "tiled_r99_zz1");
  const Json asked =
      json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", path, "--json"}));
  EXPECT_NE(asked["kernelName"], "tiled_r99_zz1");
  EXPECT_EQ(asked["levels"][0]["runnable"], false);
}

TEST_F(Operator, LookupErrors) {
  EXPECT_EQ(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", program.file("gone.csv")})
                .exit_code,
            2);
  EXPECT_EQ(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--cu_num", "x"}).exit_code, 2);
}

TEST_F(Operator, BenchOfATunedFile) {
  const Json json = json_of(program.run({"bench", tuned, "--rounds", "5", "--json", "--quiet"}));
  ASSERT_EQ(json["rows"].size(), 2U);
  EXPECT_EQ(json["rows"][0]["match"], "exact");
  EXPECT_EQ(json["rows"][0]["status"], "OK");
  EXPECT_GT(json["rows"][0]["us"].get<double>(), 0);
  const auto text = program.run({"bench", tuned, "--rounds", "5", "--against", tuned, "--limit", "1"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("other µs"));
  EXPECT_THAT(text.err, HasSubstr("[1/1]"));
}

TEST_F(Operator, BenchKeepsTheOrderOfTheFile) {
  std::istringstream text(read_text(tuned));
  std::string header, first, second;
  std::getline(text, header);
  std::getline(text, first);
  std::getline(text, second);
  for (const bool swapped : {false, true}) {
    const std::string path = program.folder().write(
        "order.csv", header + "\n" + (swapped ? second + "\n" + first : first + "\n" + second) + "\n");
    const Json json = json_of(program.run({"bench", path, "--rounds", "3", "--json", "--quiet"}));
    ASSERT_EQ(json["rows"].size(), 2U);
    const bool first_is_16 = first.find(",16,64,64,") != std::string::npos;
    EXPECT_EQ(json["rows"][0]["m"], first_is_16 != swapped ? 16 : 3);
    const std::string verdict = json["rows"][0]["verdict"];
    EXPECT_THAT(verdict, ::testing::AnyOf("win", "slower", "undecided", "same kernel"));
  }
}

TEST_F(Operator, WorthDoesNotCountSecondsInWhichAnotherProgramWasTiming) {
  const std::string list = program.folder().write("two.csv", "M,N,K\n16,64,64\n3,64,64\n");
  std::filesystem::create_directory(program.file("gemmtune"));
  std::filesystem::permissions(program.file("gemmtune"), std::filesystem::perms::owner_all);
  std::optional<FileLock> lock = FileLock::acquire(program.file("gemmtune/timing.lock")).value();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    lock.reset();
  });
  const auto result =
      program.run({"worth", list, "--libtype", "tiled,skinny,onednn", "--seconds", "1", "--json"});
  other.join();
  EXPECT_THAT(result.err, HasSubstr("timing.lock: waiting for process"));
  const Json json = json_of(result);
  for (const Json& shape : json["shapes"]) EXPECT_FALSE(shape.contains("why_not")) << shape;
  EXPECT_LT(json["seconds"].get<double>(), 3);
}

TEST_F(Operator, WorthSaysAShareAndWritesNothing) {
  const std::string list =
      program.folder().write("worth.csv",
                             "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,calls\n"
                             "16,64,64,False,torch.bfloat16,torch.bfloat16,False,False,9\n"
                             "3,64,64,False,torch.bfloat16,torch.bfloat16,False,False,1\n");
  const Json json = json_of(program.run(
      {"worth", list, "--libtype", "tiled,skinny,onednn", "--json", "--quiet", "--gemm-share", "50"}));
  EXPECT_EQ(json["command"], "worth");
  ASSERT_EQ(json["shapes"].size(), 2U);
  double all = 0;
  for (const Json& shape : json["shapes"]) {
    EXPECT_GT(shape["tried"].get<int>(), 1);
    EXPECT_GE(shape["speedup"].get<double>(), 1);
    EXPECT_LE(shape["speedup_low"].get<double>(), shape["speedup"].get<double>());
    EXPECT_GE(shape["speedup_high"].get<double>(), shape["speedup"].get<double>());
    all += shape["calls"].get<double>() * shape["default_us"].get<double>();
  }
  EXPECT_NEAR(json["default_us"].get<double>(), all, 1e-3 * all);
  EXPECT_LE(json["saved_share_low"].get<double>(), json["saved_share"].get<double>());
  EXPECT_EQ(json["gemm_share"], 0.5);
  EXPECT_FALSE(std::filesystem::exists(program.file("worth.csv.journal")));
  const auto text = program.run({"worth", list, "--libtype", "tiled,skinny,onednn", "--quiet", "--tokens",
                                 "3", "--tokens-per-second", "0.1"});
  EXPECT_THAT(text.out, HasSubstr("tuning is expected to save"));
  EXPECT_THAT(text.out, HasSubstr("cannot gain more than 0.0 % here: stop"))
      << "30 s a step, microseconds of them in GEMMs";
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("16x64x64"))) << "of another step";
  EXPECT_THAT(program.run({"worth", list, "--tokens", "5", "--tokens-per-second", "9"}).err,
              HasSubstr("has no shape of that M"));
  EXPECT_EQ(program.run({"worth", list, "--tokens-per-second", "9"}).exit_code, 2) << "of which step?";
  EXPECT_EQ(program.run({"worth", program.file("none.csv")}).exit_code, 2);
}

TEST_F(Operator, BenchPassesOverWhatDispatchPassesOver) {
  const std::string gone = changed(kernel_of_m3(), "tiled_r99_zz1");
  const Json json = json_of(program.run({"bench", gone, "--rounds", "3", "--json", "--quiet"}));
  const auto row =
      std::find_if(json["rows"].begin(), json["rows"].end(), [](const Json& one) { return one["m"] == 3; });
  ASSERT_NE(row, json["rows"].end());
  EXPECT_NE((*row)["kernelName"], "tiled_r99_zz1");
  EXPECT_THAT((*row)["rule"].get<std::string>(), HasSubstr("passed over exact row, M = 3"));
  const Json asked =
      json_of(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", gone, "--json"}));
  EXPECT_EQ((*row)["rule"], asked["rule"]) << "one rule for both";
  const auto text = program.run({"bench", gone, "--rounds", "3", "--quiet"});
  EXPECT_THAT(text.out, HasSubstr("passed over exact row, M = 3"));
}

// --strict of tune is about rows that cannot be read, not about environments.
TEST_F(Operator, RunConfigReadsAsTuneDoes) {
  const std::string copy = changed("torch.bfloat16", "torch.bfloat16");
  const Json strict = json_of(program.run({"tune", "--run_config", copy, "--strict", "--json", "--quiet"}));
  EXPECT_EQ(strict["rows"][0]["match"], "exact");
  const std::string bad = program.folder().write("bad.csv", read_text(copy) + "x,y,z\n");
  EXPECT_EQ(program.run({"tune", "--run_config", bad, "--quiet"}).exit_code, 0);
  EXPECT_EQ(program.run({"tune", "--run_config", bad, "--strict", "--quiet"}).exit_code, 2);
}

// A copy of the file has no description of its environments beside it.
TEST_F(Operator, BenchIsStrictAboutEnvironmentsIfAskedTo) {
  const std::string copy = changed("torch.bfloat16", "torch.bfloat16");
  const auto match = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--rounds", "3", "--json", "--quiet"});
    return json_of(program.run(words))["rows"][0]["match"];
  };
  EXPECT_EQ(match({"bench", copy}), "exact");
  EXPECT_EQ(match({"bench", copy, "--strict"}), "untuned");
  EXPECT_EQ(match({"bench", tuned, "--strict"}), "exact");
}

TEST_F(Operator, BenchFindsARowThatIsSlower) {
  // The same shape in two tables: one names the winner, the other one the plain loops. On one core: where
  // others use the machine too, threads that wait for each other are slower than plain loops.
  const std::string shapes =
      program.folder().write("one.csv",
                             "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
                             "4,256,256,False,torch.bfloat16,torch.bfloat16,False,False\n");
  const std::string fast = program.file("fast.csv");
  const auto tuning_one = program.run({"tune", "-i", shapes, "-o", fast, "--device", "cpu:0", "--libtype",
                                       "tiled", "--budget", "60", "--iters", "2", "--json"});
  const std::string winner = json_of(tuning_one)["problems"][0]["kernelName"];
  std::string slow_text = read_text(fast);
  slow_text.replace(slow_text.find(winner), winner.size(), "reference_r1");
  const std::string slow = program.folder().write("slow.csv", slow_text);
  const std::vector<std::string> words = {"bench",    slow,    "--against", fast,
                                          "--device", "cpu:0", "--rounds",  "11"};
  const auto found = program.run(words);
  EXPECT_EQ(found.exit_code, 1) << found.err;
  EXPECT_THAT(found.out, HasSubstr("slower: 4x256x256"));
  auto lenient = words;
  lenient.insert(lenient.end(), {"--max-regression", "1000000"});
  EXPECT_EQ(program.run(lenient).exit_code, 0);
  EXPECT_EQ(program.run({"bench", fast, "--against", slow, "--device", "cpu:0", "--rounds", "11"}).exit_code,
            0)
      << "the other way round";
  EXPECT_EQ(program.run({"tune", "--run_config", slow, "--device", "cpu:0", "--quiet"}).exit_code, 0)
      << "a report, no gate";
}

TEST_F(Operator, BenchOfAShapeList) {
  const std::string shapes = program.folder().write("shapes.csv",
                                                    "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n5,64,64,"
                                                    "False,torch.bfloat16,torch.bfloat16,False,False\n");
  const Json json = json_of(program.run({"bench", shapes, "--rounds", "5", "--json", "--quiet"}));
  ASSERT_EQ(json["rows"].size(), 1U);
  EXPECT_EQ(json["rows"][0]["match"], "untuned");
  EXPECT_EQ(program.run({"bench", program.file("gone.csv")}).exit_code, 2);
  EXPECT_EQ(program.run({"bench"}).exit_code, 2);
}

TEST_F(Operator, CheckOfARightFile) {
  const auto result = program.run({"check", tuned});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 rows of this device: 2 right, 0 not"));
  const Json json = json_of(program.run({"check", tuned, "--json"}));
  EXPECT_EQ(json["rows"][0]["state"], "right");
}

/// On the faulty device: a row whose kernel crashes or hangs is one wrong row, and the next one goes on.
TEST(CheckOfAFaultyKernel, IsOneWrongRow) {
  const Program faulty(GEMMTUNE_FAULTY_PROGRAM);
  const std::vector<std::pair<std::string, std::string>> kernels = {{"vendor", ""},
                                                                    {"segfault", "SIGSEGV"},
                                                                    {"good_fast", ""},
                                                                    {"loop", "did not end within"},
                                                                    {"exit_0", "exit code 0"},
                                                                    {"wrong", "wrong: "},
                                                                    {"good_slow", ""}};
  std::string text =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_"
      "ratio,"
      "tflops,bw\n";
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    text += fmt::format(
        "fake-1,1,{},64,64,False,torch.bfloat16,torch.bfloat16,False,False,{},0,0,5.0,{}_r1,0.0,0.01,0.01\n",
        3 + i, kernels[i].first, kernels[i].first);
  }
  const std::string table = faulty.folder().write("tuned.csv", text);
  const auto result = faulty.run({"check", table, "--json", "--quiet"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const Json rows = Json::parse(result.out, nullptr, false)["rows"];
  ASSERT_EQ(rows.size(), kernels.size()) << result.out;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const bool right = kernels[i].second.empty();
    EXPECT_EQ(rows[i]["state"], right ? "right" : "wrong") << rows[i];
    EXPECT_THAT(std::string(rows[i]["reason"]), HasSubstr(kernels[i].second));
    EXPECT_EQ(rows[i]["kernelName"], kernels[i].first + "_r1");
  }
}

TEST_F(Operator, CheckFindsWhatDoesNotExist) {
  const std::string kernel = kernel_of_m3();
  const auto result = program.run({"check", changed(kernel, "tiled_r99_zz1")});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("changed.csv:"));
  EXPECT_THAT(result.out, HasSubstr("tiled_r99_zz1"));
  EXPECT_EQ(program.run({"check", program.file("gone.csv")}).exit_code, 2);
}

TEST_F(Operator, RunConfig) {
  const Json file = json_of(program.run({"tune", "--run_config", tuned, "--json", "--quiet"}));
  EXPECT_EQ(file["rows"].size(), 2U);
  const Json shape =
      json_of(program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--run_config", "--json", "--quiet"}));
  ASSERT_EQ(shape["rows"].size(), 1U);
  EXPECT_EQ(shape["rows"][0]["match"], "untuned");
  EXPECT_EQ(program.run({"tune", "--run_config", program.file("gone.csv")}).exit_code, 2);
}

TEST_F(Operator, CompareReportsAndWritesOnlyWhenAsked) {
  const std::string output = program.file("out.csv");
  const auto report = program.run(program.quick_tune({"-o", output, "--compare"}));
  EXPECT_EQ(report.exit_code, 0) << report.err << report.out;
  EXPECT_THAT(report.out, HasSubstr("improvement"));
  EXPECT_THAT(report.out, HasSubstr("nothing is written without --update_improved"));
  EXPECT_FALSE(std::filesystem::exists(output));
  // More than 100 % faster is impossible: nothing improves by that much.
  const auto never = program.run(
      program.quick_tune({"-o", output, "--compare", "--update_improved", "--min_improvement_pct", "101"}));
  EXPECT_THAT(never.out, HasSubstr("nothing to write"));
  EXPECT_FALSE(std::filesystem::exists(output));
}

}  // namespace
}  // namespace gemmtune::test
