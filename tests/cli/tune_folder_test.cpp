// `gemmtune tune` of several operations: a model's, or a folder's lists, into a folder with a file of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/program.h"
#include "cli/shared/model_options.h"
#include "formats/json.h"

namespace gemmtune::test::tune_folder_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr const char* two_operations =
    R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
        "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 256, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

class TuneFolder : public ::testing::Test {
 protected:
  TuneFolder() {
    std::filesystem::create_directories(model_);
    EXPECT_TRUE(write_file_atomically(model_ + "/config.json", two_operations).ok());
  }
  Words of_model(const Words& more) const {
    Words words{"tune",  "--model_dir", model_, "--nsets",  "1", "--device",
                "cpu:0", "--iters",     "5",    "--budget", "60"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  bool has(const std::string& name) const { return file_exists(folder_ + name); }

  SimulatedProgram program;
  std::string model_ = program.file("model");
  std::string folder_ = program.file("tuned/");
};

TEST_F(TuneFolder, AModelsOperationsAreTunedByOneCommand) {
  const auto result = program.run(of_model({"-o", folder_}));
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr("operation 1 of 2: a16w16, 1 shape"),
                                HasSubstr("operation 2 of 2: a8w8_blockscale, 4 shapes")));
  EXPECT_THAT(result.out, HasSubstr("next: export GEMMTUNE_CONFIG_DIR=" + program.file("tuned") + " "));
  ASSERT_TRUE(has("bf16_tuned_gemm.csv") && has("a8w8_blockscale_tuned_gemm.csv"));
  // As a config folder it answers.
  auto served = program.options();
  served.environment["GEMMTUNE_CONFIG_DIR"] = folder_;
  const Words blocks{"lookup", "--op", "a8w8_blockscale", "-m",   "1", "-n", "128",
                     "-k",     "128",  "--device",        "cpu:0"};
  EXPECT_THAT(program.run(blocks, served).out, HasSubstr("exact   M=1: row of M=1"));
  // Again there is nothing to do, and one document has both answers.
  const auto again = program.run(of_model({"-o", folder_, "--json"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const Json runs = parse_json(again.out)["operations"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["states"], Json({{"done already", 1}}));
  EXPECT_EQ(runs[1]["states"], Json({{"done already", 4}}));
}

TEST_F(TuneFolder, AFileTakesOneOperationAndTheOthersAreNamed) {
  const auto result = program.run(of_model({"-o", program.file("one.csv")}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("left out, tuned with --op, or all with -o FOLDER/: 4 rows of a8w8_blockscale"),
                    Not(HasSubstr("operation 1 of"))));
  // What is of one run stays of one operation.
  EXPECT_THAT(program.run(of_model({"-o", folder_, "-o2", program.file("all.csv"), "--dry-run"})).err,
              HasSubstr("left out, tuned with --op"));
}

TEST_F(TuneFolder, TheConfigFolderTakesAllToo) {
  auto options = program.options();
  options.environment["GEMMTUNE_CONFIG_DIR"] = folder_;
  const auto result = program.run(of_model({"--dry-run", "--json"}), options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json runs = parse_json(result.out)["operations"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[1]["output"], program.file("tuned/a8w8_blockscale_tuned_gemm.csv"));
  EXPECT_FALSE(has("")) << "a dry run makes nothing";
}

TEST_F(TuneFolder, ASingleSizesFileIsNamedWithItsOperation) {
  const auto result = program.run(
      {"tune", "-m", "1", "-n", "64", "-k", "64", "--device", "cpu:0", "--iters", "5", "-o", folder_});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_TRUE(has("bf16_tuned_gemm.csv"));
}

// Programs read no shard's file of a config folder.
TEST_F(TuneFolder, AShardsFileIsNamedByItself) {
  const auto result = program.run({"tune", "-m", "1,2", "-n", "64", "-k", "64", "--device", "cpu:0",
                                   "--iters", "5", "--shard", "1/1", "-o", folder_});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_TRUE(has("bf16_tuned_gemm.1of1.csv"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("next: export GEMMTUNE_CONFIG_A16W16="),
                                Not(HasSubstr("GEMMTUNE_CONFIG_DIR"))));
}

TEST_F(TuneFolder, AFolderOfListsIsTunedByOneCommand) {
  const std::string lists = program.file("lists");
  std::filesystem::create_directories(lists);
  const Words words{"tune", "-i", lists, "--device", "cpu:0", "--iters", "5"};
  const auto with = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return program.run(all);
  };
  EXPECT_THAT(with({"-o", folder_}).err,
              HasSubstr("lists: no list of shapes, such as bf16_untuned_gemm.csv"));
  ASSERT_TRUE(write_file_atomically(lists + "/bf16_untuned_gemm.csv",
                                    "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
                                    "1,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n")
                  .ok());
  ASSERT_TRUE(write_file_atomically(lists + "/a8w8_blockscale_untuned_gemm.csv", "M,N,K\n1,128,128\n").ok());
  const auto file = with({"-o", program.file("one.csv")});
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err,
              HasSubstr("a file holds one operation, and " + lists + " is a folder: give -o FOLDER/"));
  const auto recorded = with({"-o", folder_, "--record", program.file("run.jsonl")});
  EXPECT_EQ(recorded.exit_code, 2);
  EXPECT_THAT(recorded.err, HasSubstr("has lists of 2 operations"));
  const auto result = with({"-o", folder_});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_TRUE(has("bf16_tuned_gemm.csv") && has("a8w8_blockscale_tuned_gemm.csv"));
}

TEST_F(TuneFolder, AnOperationOfAFolderOfListsIsTunedAlone) {
  const std::string lists = program.file("lists");
  std::filesystem::create_directories(lists);
  ASSERT_TRUE(write_file_atomically(lists + "/bf16_untuned_gemm.csv", "not a list\n").ok());
  ASSERT_TRUE(write_file_atomically(lists + "/a8w8_blockscale_untuned_gemm.csv", "M,N,K\n1,128,128\n").ok());
  const auto tune = [&](const std::string& operation, const std::string& output) {
    return program.run(
        {"tune", "-i", lists, "--op", operation, "--device", "cpu:0", "--iters", "5", "-o", output});
  };
  const auto missing = tune("a8w8", folder_);
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("lists: no list of shapes, expected a8w8_untuned_gemm.csv"));
  const auto into_folder = tune("a8w8_blockscale", folder_);
  ASSERT_EQ(into_folder.exit_code, 0) << into_folder.err << into_folder.out;
  EXPECT_TRUE(has("a8w8_blockscale_tuned_gemm.csv") && !has("bf16_tuned_gemm.csv"));
  const auto into_file = tune("a8w8_blockscale", program.file("one.csv"));
  ASSERT_EQ(into_file.exit_code, 0) << into_file.err << into_file.out;
  EXPECT_TRUE(file_exists(program.file("one.csv")));
}

TEST_F(TuneFolder, WhereAFileIsExpectedAFoldersNameIsRefused) {
  const std::string table =
      program.folder().write("t.csv", "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName\n");
  const auto result = program.run({"merge", table, "--op", "a8w8", "-o", folder_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("-o " + folder_ + ": is a directory, expected a file"));
}

TEST(PackedInVllm, FourBitWeightsOnGpusAlone) {
  const TemporaryFolder folder;
  folder.write(
      "config.json",
      R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
                   "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 1024, "torch_dtype": "bfloat16",
                   "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}})");
  cli::ModelOptions model;
  model.folder = folder.path();
  cli::SizeOptions size;
  size.operation = "a16w4_int4";
  const auto layout = [&](const std::string& architecture) {
    const auto shapes = cli::tunable_shapes_of_model(model, size, Environment(), architecture);
    EXPECT_TRUE(shapes.ok()) << shapes.status().message();
    return shapes.ok() && shapes->rows.front().problem.weight_layout != WeightLayout::plain;
  };
  EXPECT_FALSE(layout("sm_90"));
  model.server = "vllm";
  EXPECT_TRUE(layout("sm_90"));
  EXPECT_FALSE(layout("x86-amx"));
  size.operation = "a16w16";
  EXPECT_FALSE(layout("sm_90"));
}

}  // namespace
}  // namespace gemmtune::test::tune_folder_test
