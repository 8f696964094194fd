// Layers, sizes and calls of every kind of model that model_shapes knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_fixture.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ModelLayers : public ModelTest {};

TEST_F(ModelLayers, DeepSeekV3OnOneRank) {
  const auto list = known("deepseek-v3", one_token());
  EXPECT_THAT(brief(list),
              ElementsAre("lm_head 1 a16w16 129280x7168", "fused_qkv_a_proj 61 a8w8_blockscale 2112x7168",
                          "q_b_proj 61 a8w8_blockscale 24576x1536", "kv_b_proj 61 a8w8_blockscale 32768x512",
                          "o_proj 61 a8w8_blockscale 7168x16384", "gate_up_proj 3 a8w8_blockscale 36864x7168",
                          "down_proj 3 a8w8_blockscale 7168x18432", "router 58 a16w16 256x7168",
                          "shared_gate_up_proj 58 a8w8_blockscale 4096x7168",
                          "shared_down_proj 58 a8w8_blockscale 7168x2048", "experts 58 fused_moe 2048x7168"));
  EXPECT_EQ(
      problem_of(list, "kv_b_proj"),
      "a8w8_blockscale m=1 n=32768 k=512 x=f8_e4m3fn w=f8_e4m3fn y=bf16 bias=0 scale_ab=0 layout=plain");
  EXPECT_EQ(problem_of(list, "experts"),
            "fused_moe m=1 n=2048 k=7168 x=f8_e4m3fn w=f8_e4m3fn y=bf16 bias=0 scale_ab=0 layout=plain "
            "experts=256 topk=8 act=Silu quant=per_1x128 gated=1 doweight_stage1=0");
}

TEST_F(ModelLayers, DeepSeekV3OnEightRanks) {
  EXPECT_THAT(brief(known("deepseek-v3", one_token(8))),
              ElementsAre("lm_head 1 a16w16 16160x7168", "fused_qkv_a_proj 61 a8w8_blockscale 2112x7168",
                          "q_b_proj 61 a8w8_blockscale 3072x1536", "kv_b_proj 61 a8w8_blockscale 4096x512",
                          "o_proj 61 a8w8_blockscale 7168x2048", "gate_up_proj 3 a8w8_blockscale 4608x7168",
                          "down_proj 3 a8w8_blockscale 7168x2304", "router 58 a16w16 256x7168",
                          "shared_gate_up_proj 58 a8w8_blockscale 512x7168",
                          "shared_down_proj 58 a8w8_blockscale 7168x256", "experts 58 fused_moe 256x7168"));
}

TEST_F(ModelLayers, WhatTensorParallelismDoesNotDivideIsNamedAtOnce) {
  EXPECT_THAT(
      known("deepseek-v3", one_token(7)).message(),
      HasSubstr("config.json: num_attention_heads = 128, intermediate_size = 18432, n_shared_experts * "
                "moe_intermediate_size = 2048, moe_intermediate_size = 2048, vocab_size = 129280: not "
                "divisible by --tp 7"));
  EXPECT_THAT(known("llama-3.1-70b", one_token(3)).message(), HasSubstr("num_key_value_heads = 8"));
}

TEST_F(ModelLayers, LatentAttentionWithoutLowRankQueries) {
  const auto list = shapes_of(R"({"hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 2,
    "vocab_size": 1024, "num_attention_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128})",
                              one_token(2));
  EXPECT_THAT(brief(list), ElementsAre("lm_head 1 a16w16 512x2048", "q_proj 2 a16w16 1536x2048",
                                       "kv_a_proj 2 a16w16 576x2048", "kv_b_proj 2 a16w16 2048x512",
                                       "o_proj 2 a16w16 2048x1024", "gate_up_proj 2 a16w16 10944x2048",
                                       "down_proj 2 a16w16 2048x5472"));
}

TEST_F(ModelLayers, GptOss) {
  const auto list = known("gpt-oss-20b", one_token(4));
  EXPECT_THAT(brief(list), ElementsAre("lm_head 1 a16w16 50272x2880", "qkv_proj 24 a16w16 1280x2880+bias",
                                       "o_proj 24 a16w16 2880x1024+bias", "router 24 a16w16 32x2880+bias",
                                       "experts 24 fused_moe 768x3072+bias"));
  // As AITER's tables have them: 2880 / 4 and 2880 padded to multiples of 256.
  EXPECT_EQ(problem_of(list, "experts"),
            "fused_moe m=1 n=768 k=3072 x=f4_e2m1 w=f4_e2m1 y=bf16 bias=1 scale_ab=0 layout=plain "
            "experts=32 topk=4 act=Swiglu quant=per_1x32 gated=1 doweight_stage1=0");
}

TEST_F(ModelLayers, ExpertsAsAServerHoldsThem) {
  ModelShapeOptions options = one_token(4);
  options.served = true;
  const auto experts = [&](const std::string& model, const std::string& architecture) {
    options.architecture = architecture;
    return problem_of(known(model, options), "experts");
  };
  // MXFP4: 16-bit tokens, 2880 / 4 at the next multiple of 32; where AITER serves as in its tables.
  for (const char* architecture : {"x86-avx512bf16", "sm_90", ""}) {
    EXPECT_THAT(experts("gpt-oss-20b", architecture),
                StartsWith("fused_moe m=1 n=736 k=2880 x=bf16 w=f4_e2m1 y=bf16 bias=1"));
  }
  EXPECT_THAT(experts("gpt-oss-20b", "gfx950"), StartsWith("fused_moe m=1 n=768 k=3072 x=f4_e2m1 w=f4_e2m1"));
  // fp8 blocks: CPUs have no fp8 products.
  EXPECT_THAT(experts("qwen3-30b-a3b-fp8", "x86-avx512bf16"),
              StartsWith("fused_moe m=1 n=192 k=2048 x=bf16 w=f8_e4m3fn"));
  EXPECT_THAT(experts("qwen3-30b-a3b-fp8", "sm_90"),
              StartsWith("fused_moe m=1 n=192 k=2048 x=f8_e4m3fn w=f8_e4m3fn"));
}

// A row of another M than its token tier is never looked up.
TEST_F(ModelLayers, ExpertsHaveOneRowForEachTokenTier) {
  ModelShapeOptions options;
  options.tokens = {24, 1, 32, 40, 48, 600};
  options.operation = OperationForm(Operation::fused_moe);
  std::vector<std::int64_t> tokens;
  const auto list = known("qwen3-30b-a3b", options);
  ASSERT_TRUE(list.ok()) << list.message();
  for (const ShapeRow& row : list->rows) {
    tokens.push_back(row.problem.m);
    EXPECT_EQ(row.calls, 48);
  }
  EXPECT_THAT(tokens, ElementsAre(1, 32, 64, 1024));
}

TEST_F(ModelLayers, Mixtral) {
  const auto list = known("mixtral-8x7b", one_token(2));
  EXPECT_THAT(brief(list), ElementsAre("lm_head 1 a16w16 16000x4096", "qkv_proj 32 a16w16 3072x4096",
                                       "o_proj 32 a16w16 4096x2048", "router 32 a16w16 8x4096",
                                       "experts 32 fused_moe 7168x4096"));
  EXPECT_EQ(problem_of(list, "experts"),
            "fused_moe m=1 n=7168 k=4096 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain "
            "experts=8 topk=2 act=Silu quant=No gated=1 doweight_stage1=0");
}

TEST_F(ModelLayers, Qwen3Moe) {
  EXPECT_THAT(brief(known("qwen3-30b-a3b", one_token())),
              ElementsAre("lm_head 1 a16w16 151936x2048", "qkv_proj 48 a16w16 5120x2048",
                          "o_proj 48 a16w16 2048x4096", "router 48 a16w16 128x2048",
                          "experts 48 fused_moe 768x2048"));
  // More ranks than the 4 KV heads: each rank has a copy of one.
  EXPECT_THAT(brief(known("qwen3-30b-a3b", one_token(8))), Contains("qkv_proj 48 a16w16 768x2048"));
}

TEST_F(ModelLayers, DenseModelsOnEightRanks) {
  EXPECT_THAT(
      brief(known("llama-3.1-70b", one_token(8))),
      ElementsAre("lm_head 1 a16w16 16032x8192", "qkv_proj 80 a16w16 1280x8192", "o_proj 80 a16w16 8192x1024",
                  "gate_up_proj 80 a16w16 7168x8192", "down_proj 80 a16w16 8192x3584"));
  EXPECT_THAT(brief(known("llama-3.1-405b", one_token(8))),
              ElementsAre("lm_head 1 a16w16 16032x16384", "qkv_proj 126 a16w16 2304x16384",
                          "o_proj 126 a16w16 16384x2048", "gate_up_proj 126 a16w16 13312x16384",
                          "down_proj 126 a16w16 16384x6656"));
  EXPECT_THAT(brief(known("qwen3-32b", one_token(1))), Contains("qkv_proj 64 a16w16 10240x5120"));
}

constexpr const char* sparse_start =
    R"({"hidden_size": 64, "intermediate_size": 256, "moe_intermediate_size": 32,
  "num_attention_heads": 4, "num_hidden_layers": 6, "vocab_size": 128, "num_experts": 8, "num_experts_per_tok": 2)";

TEST_F(ModelLayers, DenseAndSparseLayersAreCountedApart) {
  struct Case {
    const char* fields;
    int dense;
    int sparse;
  };
  for (const Case& expected : {Case{"", 0, 6}, Case{R"(, "first_k_dense_replace": 2)", 2, 4},
                               Case{R"(, "decoder_sparse_step": 2)", 3, 3},
                               Case{R"(, "decoder_sparse_step": 2, "mlp_only_layers": [0, 4, 5])", 4, 2},
                               Case{R"(, "moe_layer_freq": 2, "first_k_dense_replace": 1)", 4, 2},
                               Case{R"(, "moe_layer_freq": [0, 1, 1, 1, 1, 0])", 2, 4},
                               Case{R"(, "interleave_moe_layer_step": 4)", 5, 1},
                               Case{R"(, "moe_layer_start_index": 1, "moe_layer_end_index": 3)", 3, 3},
                               Case{R"(, "first_k_dense_replace": 6)", 6, 0}}) {
    const auto lines = brief(shapes_of(std::string(sparse_start) + expected.fields + "}"));
    const std::string dense = fmt::format("gate_up_proj {} a16w16 512x64", expected.dense);
    const std::string sparse = fmt::format("experts {} fused_moe 32x64", expected.sparse);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), dense), expected.dense > 0 ? 1 : 0) << expected.fields;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), sparse), expected.sparse > 0 ? 1 : 0) << expected.fields;
    EXPECT_EQ(lines.size(), 3U + (expected.dense > 0 ? 2 : 0) + (expected.sparse > 0 ? 2 : 0));
  }
}

TEST_F(ModelLayers, SharedExpertsOfQwenHaveTheirOwnSizeAndGate) {
  const auto lines = brief(shapes_of(
      std::string(sparse_start) + R"(, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 96})",
      one_token(2)));
  EXPECT_THAT(lines, Contains("shared_gate_up_proj 6 a16w16 96x64"));
  EXPECT_THAT(lines, Contains("shared_down_proj 6 a16w16 64x48"));
  EXPECT_THAT(lines, Contains("shared_expert_gate 6 a16w16 1x64"));
  EXPECT_THAT(lines, Contains("qkv_proj 6 a16w16 96x64+bias"));
}

TEST_F(ModelLayers, ActivationOfTheExperts) {
  EXPECT_THAT(
      problem_of(shapes_of(std::string(sparse_start) + R"(, "hidden_act": "gelu_pytorch_tanh"})"), "experts"),
      HasSubstr("act=Gelu"));
}

TEST_F(ModelLayers, SharedExpertsAreOneLayer) {
  const auto lines = brief(shapes_of(std::string(sparse_start) + R"(, "n_shared_experts": 2})"));
  EXPECT_THAT(lines, Contains("shared_gate_up_proj 6 a16w16 128x64"));
  EXPECT_THAT(lines, Contains("shared_down_proj 6 a16w16 64x64"));
}

TEST_F(ModelLayers, Llama4HasItsOwnWords) {
  const auto list = shapes_of(R"({"model_type": "llama4", "text_config": {"hidden_size": 64,
    "intermediate_size": 32, "intermediate_size_mlp": 256, "num_attention_heads": 4, "num_hidden_layers": 4,
    "vocab_size": 128, "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}})");
  const auto lines = brief(list);
  EXPECT_THAT(lines, Contains("gate_up_proj 2 a16w16 512x64"));
  EXPECT_THAT(lines, Contains("shared_gate_up_proj 2 a16w16 64x64"));
  EXPECT_THAT(lines, Contains("experts 2 fused_moe 32x64"));
  EXPECT_THAT(problem_of(list, "experts"), HasSubstr("doweight_stage1=1"));
}

TEST_F(ModelLayers, BiasOfAttention) {
  const std::string start = R"({"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 128)";
  struct Case {
    const char* fields;
    const char* qkv;
    const char* output;
  };
  for (const Case& expected : {Case{R"(, "model_type": "qwen2")", "+bias", ""},
                               Case{R"(, "model_type": "llama", "attention_bias": true)", "+bias", "+bias"},
                               Case{R"(, "model_type": "qwen3", "attention_bias": true)", "+bias", ""},
                               Case{R"(, "model_type": "llama", "attention_bias": false)", "", ""},
                               Case{R"(, "qkv_bias": true)", "+bias", ""}}) {
    const auto lines = brief(shapes_of(start + expected.fields + "}"));
    EXPECT_THAT(lines, Contains(std::string("qkv_proj 2 a16w16 192x64") + expected.qkv)) << expected.fields;
    EXPECT_THAT(lines, Contains(std::string("o_proj 2 a16w16 64x64") + expected.output)) << expected.fields;
  }
  EXPECT_THAT(brief(shapes_of(start + R"(, "mlp_bias": true})")), Contains("down_proj 2 a16w16 64x256+bias"));
}

TEST_F(ModelLayers, TheLanguageModelIsFoundWhereItIsNested) {
  const std::string inner = R"({"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 128})";
  for (const std::string key : {"text_config", "language_config", "llm_config"}) {
    const auto list = shapes_of(R"({"hidden_size": 9, "vision_config": {"hidden_size": 7}, ")" + key +
                                "\": " + inner + "}");
    EXPECT_THAT(brief(list), Contains("down_proj 2 a16w16 64x256")) << key;
    EXPECT_EQ(list->rows.size(), 5U) << key;
  }
  EXPECT_THAT(brief(shapes_of(R"({"thinker_config": {"text_config": )" + inner + "}}")),
              Contains("down_proj 2 a16w16 64x256"));
  EXPECT_THAT(shapes_of(R"({"text_config": {"hidden_size": 0, "num_hidden_layers": 1}})").message(),
              HasSubstr("text_config.hidden_size = 0"));
}

TEST_F(ModelLayers, RowsOfOneProblemAddUpUnlessLayersAreNamed) {
  // 4 heads of 64 are as wide as hidden, and so is the dense layer's half: o_proj and down_proj are one
  // shape.
  const std::string config = R"({"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4,
    "num_hidden_layers": 3, "vocab_size": 128})";
  EXPECT_EQ(shapes_of(config)->rows.size(), 5U);
  ModelShapeOptions options = one_token();
  options.layer_names = false;
  EXPECT_THAT(brief(shapes_of(config, options)), ElementsAre(" 1 a16w16 128x256", " 3 a16w16 768x256",
                                                             " 6 a16w16 256x256", " 3 a16w16 512x256"));
}

TEST_F(ModelLayers, BadFieldsAreNamed) {
  struct Case {
    const char* fields;
    const char* message;
  };
  const std::string start = R"({"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4,
    "num_hidden_layers": 6, "vocab_size": 128)";
  for (const Case& bad :
       {Case{R"(, "n_routed_experts": 8)", "has no num_experts_per_tok"},
        Case{R"(, "num_experts": "many")", "num_experts = \"many\", expected a whole number"},
        Case{R"(, "num_experts": 8, "num_experts_per_tok": 9)",
             "num_experts_per_tok = 9, expected at most num_experts = 8"},
        Case{R"(, "num_experts": 8, "num_experts_per_tok": 2, "hidden_act": "relu")",
             "hidden_act = \"relu\""},
        Case{R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_layer_freq": [1])",
             "moe_layer_freq = [1], expected 6 numbers"},
        Case{R"(, "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": 3)",
             "mlp_only_layers = 3, expected a list"},
        Case{R"(, "mlp_only_layers": [-1])", "mlp_only_layers = [-1]"},
        Case{R"(, "attention_bias": "yes")", "attention_bias = \"yes\", expected true or false"},
        Case{R"(, "model_type": 3)", "model_type = 3, expected a text"},
        Case{R"(, "kv_lora_rank": 512)", "has no qk_rope_head_dim"},
        Case{R"(, "layer_types": ["full_attention", "linear_attention"])", "layer_types = "},
        Case{R"(, "head_dim": 18446744073709551615)", "head_dim = 18446744073709551615"},
        Case{R"(, "head_dim": 2147483647)", "N = 2147483648, expected"},
        Case{R"(, "torch_dtype": "int8")",
             "torch_dtype = \"int8\", expected bfloat16, float16 or float32"}}) {
    const auto list = shapes_of(start + bad.fields + "}");
    EXPECT_FALSE(list.ok()) << bad.fields;
    EXPECT_THAT(list.message(), HasSubstr(bad.message));
    EXPECT_THAT(list.message(), HasSubstr("config.json: "));
  }
  EXPECT_THAT(shapes_of(R"({"num_hidden_layers": 2147483647})").message(),
              HasSubstr("num_hidden_layers = 2147483647"));
}

}  // namespace
}  // namespace gemmtune
