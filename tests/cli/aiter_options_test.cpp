// Options and variables of AITER's tuners from outside: what they do, or the sentence that says what to use instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::aiter_options_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class AiterOptions : public ::testing::Test {
 protected:
  /// Options of a run of a moment behind `words`.
  static Words quickly(Words words) {
    for (const char* word :
         {"--libtype", "tiled", "--confirmations", "1", "--iters", "2", "--in-process", "--quiet"})
      words.emplace_back(word);
    return words;
  }
  SubprocessResult tune(Words words, const std::map<std::string, std::string>& variables = {}) const {
    words.insert(words.begin(), "tune");
    auto options = program_.options();
    for (const auto& [name, value] : variables) options.environment[name] = value;
    return program_.run(quickly(std::move(words)), options);
  }
  std::string refusal(Words words) const {
    words.insert(words.begin(), {"tune", "-m", "3", "-n", "64", "-k", "64", "-o", program_.file("no.csv")});
    const auto result = program_.run(words);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_FALSE(std::filesystem::exists(program_.file("no.csv")));
    return result.err;
  }

  SimulatedProgram program_;
};

TEST_F(AiterOptions, InputAndOutputComeFromTheEnvironmentIfTheCommandNamesNone) {
  const std::string input = program_.folder().write("shapes.csv", "M,N,K,dtype\n2,64,64,torch.bfloat16\n");
  const std::string tuned = program_.file("from_variable.csv");
  const auto both = tune({}, {{"GTUNE_INPUT", input}, {"GTUNE_TUNED", tuned}});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(read_text(tuned), HasSubstr(",2,64,64,"));
  // What the command says wins.
  const std::string named = program_.file("named.csv");
  const auto own = tune({"-m", "5", "-n", "64", "-k", "64", "-o", named},
                        {{"GTUNE_INPUT", input}, {"GTUNE_TUNED", tuned}});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_THAT(read_text(named), HasSubstr(",5,64,64,"));
  EXPECT_THAT(read_text(named), Not(HasSubstr(",2,64,64,")));
}

TEST_F(AiterOptions, LastTakesTheLastShapeAndAllBiasBoth) {
  const std::string input = program_.folder().write(
      "shapes.csv", "M,N,K,bias,dtype\n2,64,64,False,torch.bfloat16\n4,64,64,False,torch.bfloat16\n");
  const std::string tuned = program_.file("tuned.csv");
  const auto result = tune({"-i", input, "-o", tuned, "--last", "--all_bias", "--with-hipblaslt", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string rows = read_text(tuned);
  EXPECT_THAT(rows, HasSubstr(",4,64,64,False,"));
  EXPECT_THAT(rows, HasSubstr(",4,64,64,True,"));
  EXPECT_THAT(rows, Not(HasSubstr(",2,64,64,")));
  EXPECT_THAT(result.err, HasSubstr("--with-hipblaslt: the vendor's library takes part anyway"));
}

TEST_F(AiterOptions, PreshuffleIsTheOperationWithAPackedWeight) {
  const std::string input = program_.folder().write("a8w8_blockscale_untuned_gemm.csv", "M,N,K\n3,128,256\n");
  const std::string tuned = program_.file("packed.csv");
  const auto result =
      program_.run({"tune", "-i", input, "--preshuffle", "--libtype", "quantized", "-o", tuned, "--budget",
                    "60", "--iters", "2", "--in-process", "--json", "--quiet"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("a8w8_blockscale_bpreshuffle"));
  EXPECT_THAT(refusal({"--op", "a8w8", "--preshuffle"}),
              HasSubstr("--preshuffle: only of a8w8_blockscale, not of --op a8w8"));
}

TEST_F(AiterOptions, WhatOnlyAitersKernelsHaveSaysWhatToUseInstead) {
  EXPECT_THAT(refusal({"--libtype", "rocblas"}), HasSubstr("gemmtune has no rocBLAS"));
  EXPECT_THAT(refusal({"--libtype", "rocblas"}), HasSubstr("expected hipblaslt"));
  EXPECT_THAT(refusal({"--blockPerCu", "1,2"}), HasSubstr("--search-space"));
  EXPECT_THAT(refusal({"--grouped-gemm"}), HasSubstr("--op fused_moe"));
  EXPECT_THAT(refusal({"--mxfp4-flydsl"}), HasSubstr("--op fused_moe"));
}

TEST_F(AiterOptions, TimeoutIsAlsoNoneAsPythonWritesIt) {
  const auto result =
      tune({"-m", "2", "-n", "64", "-k", "64", "-o", program_.file("t.csv"), "--timeout", "None"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(refusal({"--timeout", "never"}),
              HasSubstr("--timeout never: expected seconds above 0, or none"));
}

/// Two spellings of one problem are not in a file that does not exist.
TEST_F(AiterOptions, AShapeThatIsListedTwiceIsNotAlreadyInTheFile) {
  const std::string input = program_.folder().write(
      "shapes.csv", "M,N,K,bias,dtype\n2,64,64,False,torch.bfloat16\n2,64,64,False,torch.bfloat16\n");
  const auto result = tune({"-i", input, "-o", program_.file("tuned.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("already in the file")));
}

/// Kernels in the config folder's triton are found by dispatch.
TEST_F(AiterOptions, BucketsWithoutAnOutputGoWhereDispatchFindsThem) {
  const std::string input = program_.folder().write("a8w8_blockscale_untuned_gemm.csv", "M,N,K\n3,128,256\n");
  const auto result =
      program_.run({"tune", "-i", input, "--op", "a8w8_blockscale", "--buckets", "--libtype", "quantized",
                    "--budget", "60", "--iters", "2", "--in-process", "--quiet"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::string config;
  for (const auto& file : std::filesystem::directory_iterator(program_.config_folder() + "/triton"))
    if (file.path().extension() == ".json" &&
        file.path().string().find("GEMM-A8W8_BLOCKSCALE") != std::string::npos)
      config = read_text(file.path().string());
  ASSERT_NE(config, "") << result.out;
  const Json buckets = parse_json(config);
  const Json& bucket = buckets["small_M"];
  EXPECT_GT(bucket["BLOCK_SIZE_N"], 0) << config;
  auto found = program_.options();
  const auto answer =
      program_.run({"lookup", "--op", "a8w8_blockscale", "-m", "7", "-n", "128", "-k", "256"}, found);
  EXPECT_THAT(answer.out, HasSubstr("bucket")) << answer.err;
}

}  // namespace
}  // namespace gemmtune::test::aiter_options_test
