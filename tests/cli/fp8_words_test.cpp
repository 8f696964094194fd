// The word fp8 means the form that the device computes with, whichever command reads it: fnuz on gfx94x, e4m3fn elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::fp8_words_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using json = nlohmann::json;

class WordsOfFp8 : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = program.file(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  json answer(std::vector<std::string> words) const {
    words.push_back("--json");
    const auto result = program.run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  Program program;
  const std::string table_ =
      write("a8w8_tuned_gemm.csv",
            "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,errRatio\n"
            "gfx942,80,16,256,512,torch.float8_e4m3fnuz,ck,1,0,5,of_gfx942,0\n"
            "gfx950,256,16,256,512,torch.float8_e4m3fn,ck,1,0,5,of_gfx950,0\n");
  const std::string list_ = write("a8w8_untuned_gemm.csv", "M,N,K,q_dtype_w\n16,256,512,fp8\n");
};

TEST_F(WordsOfFp8, LookupAsksForTheDevicesForm) {
  const std::vector<std::string> size{"lookup", "--op", "a8w8", "--table", table_, "-m",
                                      "16",     "-n",   "256",  "-k",      "512"};
  const auto kernel_of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), size.begin(), size.end());
    return answer(more)["kernelName"].get<std::string>();
  };
  EXPECT_EQ(kernel_of({"--gfx", "gfx942", "--cu_num", "80", "--indtype", "fp8"}), "of_gfx942");
  EXPECT_EQ(kernel_of({"--gfx", "gfx942", "--cu_num", "80", "--q_dtype_w", "fp8"}), "of_gfx942");
  EXPECT_EQ(kernel_of({"--gfx", "gfx942", "--cu_num", "80", "--indtype", "f8_e4m3fn"}), "")
      << "a name says its form";
  EXPECT_EQ(kernel_of({"--gfx", "gfx942", "--cu_num", "80", "--q_dtype_w", "float8_e4m3fn"}), "");
  EXPECT_EQ(kernel_of({"--gfx", "gfx950", "--cu_num", "256", "--indtype", "fp8"}), "of_gfx950");
}

TEST_F(WordsOfFp8, CoverageReadsTheListForItsDevice) {
  const auto untuned = [&](const std::string& gfx, const std::string& cu_num) {
    const auto result =
        program.run({"coverage", list_, "--table", table_, "--gfx", gfx, "--cu_num", cu_num, "--json"});
    return json::parse(result.out)["misses"].size();
  };
  EXPECT_EQ(untuned("gfx942", "80"), 0U);
  EXPECT_EQ(untuned("gfx950", "256"), 0U);
}

TEST_F(WordsOfFp8, ARowOfATableIsOfItsOwnDevice) {
  const std::string words =
      write("words_a8w8_tuned_gemm.csv",
            "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,errRatio\n"
            "gfx942,80,16,256,512,fp8,ck,1,0,5,of_gfx942,0\n"
            "gfx950,256,16,256,512,fp8,ck,1,0,5,of_gfx950,0\n"
            ",304,16,256,512,dtypes.fp8,ck,1,0,5,of_304_units,0\n");
  const auto converted = program.run({"convert", words, "--to", "aiter"});
  EXPECT_THAT(converted.out, AllOf(HasSubstr("gfx942,80,16,256,512,torch.float8_e4m3fnuz"),
                                   HasSubstr("gfx950,256,16,256,512,torch.float8_e4m3fn,"),
                                   HasSubstr("gfx942,304,16,256,512,torch.float8_e4m3fnuz")))
      << converted.err;
}

TEST_F(WordsOfFp8, ShapesAndConvertTakeTheDeviceOfTheList) {
  EXPECT_THAT(program.run({"shapes", "-i", list_}).out, HasSubstr("16,256,512,torch.float8_e4m3fn,"));
  EXPECT_THAT(program.run({"shapes", "-i", list_, "--gfx", "gfx942"}).out,
              HasSubstr("16,256,512,torch.float8_e4m3fnuz,"));
  EXPECT_THAT(program.run({"convert", list_, "--to", "untuned", "--gfx", "gfx942"}).out,
              HasSubstr("16,256,512,torch.float8_e4m3fnuz,"));
}

TEST_F(WordsOfFp8, AModelsLayersAreOfItsDevice) {
  write("config.json",
        R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
            "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 1024, "torch_dtype": "bfloat16",
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  const std::vector<std::string> words{"shapes", "--model_dir", program.folder().path(), "--nsets",
                                       "16",     "--op",        "a8w8_blockscale"};
  const auto problem_of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return answer(more)["shapes"][0]["problem"].get<std::string>();
  };
  EXPECT_THAT(problem_of({}), HasSubstr("x=f8_e4m3fn w=f8_e4m3fn"));
  EXPECT_THAT(problem_of({"--gfx", "gfx942"}), HasSubstr("x=f8_e4m3fnuz w=f8_e4m3fnuz"));
}

// --cu_num alone: this machine's architecture if it has so many units, else AITER's.
TEST_F(WordsOfFp8, UnitsWithoutAnArchitectureAreAitersDevices) {
  const auto result = program.run({"lookup", "--op", "a8w8", "--table", table_, "-m", "16", "-n", "256", "-k",
                                   "512", "--indtype", "fp8", "--cu_num", "80", "--threads", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["kernelName"], "of_gfx942");
  EXPECT_THAT(
      result.err,
      HasSubstr("--cu_num 80 without --gfx: asked for gfx942, the architecture of 80 compute units in "
                "AITER's tables"));
  const auto covered =
      program.run({"coverage", list_, "--table", table_, "--cu_num", "256", "--threads", "1", "--json"});
  EXPECT_EQ(json::parse(covered.out)["gfx"], "gfx950") << covered.err;
  const auto here = program.run({"lookup", "-m", "1", "-n", "64", "-k", "64", "--table", table_, "--op",
                                 "a8w8", "--cu_num", "1", "--threads", "1"});
  EXPECT_THAT(here.out, HasSubstr("\nfor x86-"));
  EXPECT_THAT(here.err, Not(HasSubstr("without --gfx")));
  const auto more = program.run({"lookup", "-m", "1", "-n", "64", "-k", "64", "--table", table_, "--op",
                                 "a8w8", "--cu_num", "7", "--threads", "1"});
  EXPECT_THAT(more.err, HasSubstr("asked for this machine's architecture, "));
}

}  // namespace
}  // namespace gemmtune::test::fp8_words_test
