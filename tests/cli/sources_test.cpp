// Tuned files that this device does not use, as the commands say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace gemmtune::test::sources_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string header =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw\n";

std::string row(const std::string& device, const std::string& kernel) {
  return device + ",3,64,64,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,5.0," + kernel +
         ",0.0,,\n";
}

class SourcesOfCommands : public ::testing::Test {
 protected:
  std::string of_amd() const {
    return program.folder().write("amd.csv", header + row("gfx950,256", "a") + row("gfx1250,96", "b"));
  }
  static ::testing::Matcher<std::string> names_both() {
    return AllOf(HasSubstr("2 rows of gfx1250/96 and gfx950/256, none of this device, x86-"));
  }
  SimulatedProgram program;
};

TEST_F(SourcesOfCommands, LookupSaysIt) {
  const std::string table = of_amd();
  const std::vector<std::string> words{"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", table};
  EXPECT_THAT(program.run(words).out, AllOf(HasSubstr("warning: " + table + " is not used: "), names_both()));
  auto as_json = words;
  as_json.emplace_back("--json");
  const json report = json::parse(program.run(as_json).out);
  EXPECT_THAT(report["sources"][0]["unused"].get<std::string>(), names_both());
  EXPECT_EQ(report["sources"][0]["devices"]["gfx950/256"], 1);
  // Asked for one of its devices there is nothing to say.
  auto asked = words;
  asked.insert(asked.end(), {"--gfx", "gfx950", "--cu_num", "256"});
  EXPECT_THAT(program.run(asked).out, AllOf(HasSubstr("answer: exact row"), Not(HasSubstr("warning"))));
}

/// In the build tree, as where gemmtune is installed.
TEST_F(SourcesOfCommands, LookupAsksTheShippedTablesAndNamesTheCard) {
  const std::vector<std::string> words{"lookup", "-m",    "16",    "-n",       "1280", "-k",
                                       "8192",   "--gfx", "sm_90", "--cu_num", "132"};
  auto as_json = words;
  as_json.emplace_back("--json");
  auto options = program.options();
  options.environment.erase("GEMMTUNE_SHIPPED");
  EXPECT_THAT(program.run(words, options).out, AllOf(HasSubstr("answer: shipped exact row, M = 16, "),
                                                     HasSubstr("µs, measured on NVIDIA H200, "),
                                                     HasSubstr("/share/gemmtune/model_configs: ")));
  const json report = json::parse(program.run(as_json, options).out);
  EXPECT_EQ(report["level"], "exact");
  EXPECT_EQ(report["card"], "NVIDIA H200");
  EXPECT_EQ(report["levels"].back()["shipped"], true);
  EXPECT_EQ(report["sources"].back()["shipped"], true);
  options.environment["GEMMTUNE_SHIPPED"] = "0";
  EXPECT_THAT(program.run(words, options).out,
              AllOf(HasSubstr("answer: no row"), Not(HasSubstr("model_configs"))));
  // The user's table comes first, whatever level it answers at; and a table that is named is all that is asked.
  const std::string own = program.folder().write(
      "config/bf16_tuned_gemm.csv",
      header +
          "sm_90,132,32,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,50.0,a,0.0,,\n");
  options.environment.erase("GEMMTUNE_SHIPPED");
  auto padded = words;
  padded[2] = "17";
  EXPECT_THAT(program.run(padded, options).out, HasSubstr("answer: fine row, M = 32, " + own + ":2"));
  padded.insert(padded.end(), {"--table", own});
  EXPECT_THAT(program.run(padded, options).out, Not(HasSubstr("shipped")));
}

TEST_F(SourcesOfCommands, LookupHasALevelForFewerThreads) {
  const std::string gfx =
      json::parse(program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--json"}).out)["gfx"];
  const std::string table = program.folder().write("t.csv", header + row(gfx + ",2", "tiled_r1_none"));
  std::vector<std::string> words{"lookup",  "-m",  "3",     "-n", "64",       "-k", "64",
                                 "--table", table, "--gfx", gfx,  "--cu_num", "64", "--json"};
  EXPECT_EQ(json::parse(program.run(words).out)["level"], "fewer_threads");
  auto options = program.options();
  options.environment["GEMMTUNE_FEWER_THREADS"] = "0";
  EXPECT_EQ(json::parse(program.run(words, options).out)["level"], "untuned");
  words[words.size() - 2] = "1";
  const json one = json::parse(program.run(words).out);
  EXPECT_EQ(one["level"], "untuned");
  EXPECT_THAT(one["sources"][0]["unused"].get<std::string>(), HasSubstr("(this process may use 1 thread)"));
}

TEST_F(SourcesOfCommands, CoverageSaysItAndDoesNotAdviseToTuneIntoIt) {
  const std::string table = of_amd();
  const std::string capture = program.folder().write("bf16_untuned_gemm.csv", "M,N,K,dtype\n3,64,64,bf16\n");
  const auto result = program.run({"coverage", capture, "--table", table});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("warning: " + table + " is not used: "), names_both()));
  EXPECT_THAT(result.out, Not(HasSubstr("-o " + table)));
  EXPECT_THAT(result.out, HasSubstr("_bf16_tuned_gemm.csv:" + table + "\n")) << "read all the same";
  const json report = json::parse(program.run({"coverage", capture, "--table", table, "--json"}).out);
  EXPECT_EQ(report["warnings"].size(), 1U);
}

TEST_F(SourcesOfCommands, CheckSaysThatNothingWasChecked) {
  const std::string table = of_amd();
  EXPECT_THAT(program.run({"check", table}).out,
              AllOf(HasSubstr("warning: nothing was checked: "), names_both()));
  EXPECT_EQ(json::parse(program.run({"check", table, "--json"}).out)["warnings"].size(), 1U);
}

TEST_F(SourcesOfCommands, TuneRefusesATableOfOtherDevicesUntilTold) {
  const std::string table = of_amd();
  const std::string before = read_text(table);
  const auto refused = program.run(program.quick_tune({"-o", table}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("-o " + table + ": "), names_both(), HasSubstr("--add-device")));
  EXPECT_EQ(read_text(table), before);
  const auto added = program.run(program.quick_tune({"-o", table, "--add-device"}));
  EXPECT_EQ(added.exit_code, 0) << added.err;
  EXPECT_THAT(read_text(table), AllOf(HasSubstr(before.substr(0, 30)), HasSubstr("\nx86-")));
  // From now on it is one of this device's tables.
  EXPECT_EQ(program.run(program.quick_tune({"-o", table})).exit_code, 0);
}

TEST_F(SourcesOfCommands, ANamedBackendIsWordEnough) {
  const auto result = program.run(program.quick_tune({"-o", of_amd(), "--backend", "cpu"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace gemmtune::test::sources_test
