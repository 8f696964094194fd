#include "formats/models/model_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

const std::string models = std::string(GEMMTUNE_TEST_DATA) + "/models/";

Result<ShapeList> with_config(const std::string& text, ModelShapeOptions options = {}) {
  options.assume = "llama";
  std::string folder = fs::temp_directory_path() / "gemmtune_model_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return Status::io("no folder");
  EXPECT_TRUE(write_file_atomically(folder + "/config.json", text).ok());
  auto list = model_shapes(folder, options);
  fs::remove_all(folder);
  return list;
}

TEST(ModelConfig, LlamaLikeShapes) {
  ModelShapeOptions options;
  options.tokens = {16, 1};
  options.layer_names = true;
  const auto list = model_shapes(models + "tiny", options);
  ASSERT_TRUE(list.ok()) << list.message();
  // 8 heads and 2 KV heads of 64, not of 256 / 8: head_dim is honoured.
  const std::string expected =
      "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,calls,layer\n"
      "1,1000,256,False,torch.bfloat16,torch.bfloat16,False,False,1,lm_head\n"
      "1,768,256,False,torch.bfloat16,torch.bfloat16,False,False,3,qkv_proj\n"
      "1,256,512,False,torch.bfloat16,torch.bfloat16,False,False,3,o_proj\n"
      "1,2048,256,False,torch.bfloat16,torch.bfloat16,False,False,3,gate_up_proj\n"
      "1,256,1024,False,torch.bfloat16,torch.bfloat16,False,False,3,down_proj\n"
      "16,768,256,False,torch.bfloat16,torch.bfloat16,False,False,3,qkv_proj\n"
      "16,256,512,False,torch.bfloat16,torch.bfloat16,False,False,3,o_proj\n"
      "16,2048,256,False,torch.bfloat16,torch.bfloat16,False,False,3,gate_up_proj\n"
      "16,256,1024,False,torch.bfloat16,torch.bfloat16,False,False,3,down_proj\n";
  EXPECT_EQ(write_shape_list(list->rows), expected);
}

TEST(ModelConfig, TensorParallelDividesAndReplicatesKvHeads) {
  ModelShapeOptions options;
  options.tokens = {1};
  options.tensor_parallel = 4;
  options.lm_head = false;
  const auto list = model_shapes(models + "tiny", options);
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_EQ(list->rows[0].problem.n, (2 + 2 * 1) * 64);  // two heads, one copied KV head
  EXPECT_EQ(list->rows[1].problem.k, 2 * 64);
  EXPECT_EQ(list->rows[2].problem.n, 2 * 256);
  options.tensor_parallel = 3;
  EXPECT_NE(model_shapes(models + "tiny", options)
                .message()
                .find("num_attention_heads = 8, num_key_value_heads = 2, intermediate_size = 1024: not "
                      "divisible by --tp 3"),
            std::string::npos);
  options.tensor_parallel = 16;
  EXPECT_FALSE(model_shapes(models + "tiny", options).ok());
}

TEST(ModelConfig, ExpertParallelDividesTheExperts) {
  ModelShapeOptions options;
  options.tokens = {1};
  options.tensor_parallel = 4;
  const std::string config =
      R"({"model_type": "qwen3_moe", "hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 4, "head_dim": 64, "moe_intermediate_size": 128, "num_experts": 32,
          "num_experts_per_tok": 8, "vocab_size": 1024, "torch_dtype": "bfloat16"})";
  const auto experts = [&]() -> Problem {
    const auto list = parse_model_config("config.json", config, options);
    EXPECT_TRUE(list.ok()) << list.message();
    for (const ShapeRow& row : list->rows)
      if (row.problem.operation == Operation::fused_moe) return row.problem;
    ADD_FAILURE() << "no experts";
    return {};
  };
  EXPECT_EQ(experts().moe.experts, 32);
  EXPECT_EQ(experts().n, 32);
  options.expert_parallel = true;
  EXPECT_EQ(experts().moe.experts, 8);
  EXPECT_EQ(experts().moe.topk, 8);
  EXPECT_EQ(experts().n, 128);
  options.tensor_parallel = 8;
  EXPECT_NE(parse_model_config("config.json", config, options)
                .message()
                .find("num_experts = 32 with --expert-parallel and --tp 8: a rank has fewer experts than the "
                      "8 of a token"),
            std::string::npos);
}

TEST(ModelConfig, NestedTextConfigAndDefaults) {
  ModelShapeOptions options;
  options.tokens = {2};
  options.batch_size = 4;
  const auto list = model_shapes(models + "nested", options);
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_EQ(print(list->rows[0].problem),
            "a16w16 m=4 n=512 k=256 x=f16 w=f16 y=f16 bias=0 scale_ab=0 layout=plain");
  EXPECT_EQ(list->rows[1].problem.m, 8);
  EXPECT_EQ(list->rows[1].problem.n, 3 * 256);  // no num_key_value_heads: as many as heads
}

TEST(ModelConfig, DamagedConfigsAreNamedWithTheLine) {
  EXPECT_NE(with_config("{\n\"hidden_size\": 25").message().find("config.json:2: no JSON"),
            std::string::npos);
  EXPECT_FALSE(with_config("[1]").ok());
  EXPECT_FALSE(with_config("").ok());
  EXPECT_NE(with_config(R"({"hidden_size": "big", "num_hidden_layers": 1})")
                .message()
                .find("hidden_size = \"big\""),
            std::string::npos);
  EXPECT_NE(with_config(R"({"hidden_size": 0, "num_hidden_layers": 1})").message().find("hidden_size = 0"),
            std::string::npos);
  EXPECT_NE(with_config(R"({"hidden_size": 1e30, "num_hidden_layers": 1})").message().find("hidden_size"),
            std::string::npos);
  EXPECT_NE(with_config("{}").message().find("has no num_hidden_layers"), std::string::npos);
  EXPECT_NE(
      with_config(R"({"a": )" + std::string(100000, '[')).message().find("config.json:1: nested deeper"),
      std::string::npos);
  EXPECT_FALSE(
      with_config(R"({"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64,
                      "num_attention_heads": 2147483647, "head_dim": 2147483647})")
          .ok());
  EXPECT_EQ(model_shapes("/no/such/folder", {}).code(), StatusCode::not_found);
}

TEST(ModelConfig, OptionsAreChecked) {
  ModelShapeOptions options;
  options.tokens = {0};
  EXPECT_NE(model_shapes(models + "tiny", options).message().find("--nsets 0"), std::string::npos);
  options.tokens = {max_dimension};
  options.batch_size = 2;
  EXPECT_FALSE(model_shapes(models + "tiny", options).ok());
  options = {};
  options.tensor_parallel = 0;
  EXPECT_NE(model_shapes(models + "tiny", options).message().find("--tp 0"), std::string::npos);
}

TEST(ModelConfig, TheShippedListIsWhatTheModelGives) {
  const auto list = with_config(
      R"({"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8,
          "head_dim": 64, "num_hidden_layers": 16, "vocab_size": 128256, "torch_dtype": "bfloat16"})",
      [] {
        ModelShapeOptions options;
        options.tokens = {1, 16, 128};
        options.lm_head = false;
        options.layer_names = true;
        return options;
      }());
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_EQ(list->rows.size(), 12U);
  EXPECT_EQ(write_shape_list(list->rows),
            *read_file(std::string(GEMMTUNE_SOURCE_DIR) + "/shapes/llama-3.2-1b.csv"));
}

}  // namespace
}  // namespace gemmtune
