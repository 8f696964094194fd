// Issue 19, 9: what a config does not say is looked up in the table of architectures, and never invented.
#include "formats/models/architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "formats/model_fixture.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Architectures : public ModelTest {
 protected:
  /// Nothing is assumed.
  static ModelShapeOptions strict(std::int64_t tensor_parallel = 1) {
    ModelShapeOptions options = one_token(tensor_parallel);
    options.assume.clear();
    return options;
  }
  std::vector<std::string> lines(const std::string& config, std::int64_t tensor_parallel = 1) const {
    return brief(shapes_of(config, strict(tensor_parallel)));
  }
};

TEST_F(Architectures, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Architecture& row : all_architectures())
    EXPECT_TRUE(names.insert(row.model_type).second) << row.model_type;
}

TEST_F(Architectures, FeedForwardLayersWithoutAGateKeepTheirBiases) {
  EXPECT_THAT(
      lines(R"({"model_type": "gpt_neox", "hidden_size": 64, "intermediate_size": 256,
    "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 128})"),
      ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 3 a16w16 192x64+bias", "o_proj 3 a16w16 64x64+bias",
                  "up_proj 3 a16w16 256x64+bias", "down_proj 3 a16w16 64x256+bias"));
  EXPECT_THAT(
      lines(R"({"model_type": "opt", "hidden_size": 64, "ffn_dim": 256, "num_attention_heads": 4,
    "num_hidden_layers": 3, "vocab_size": 128, "word_embed_proj_dim": 32})"),
      ElementsAre("lm_head 1 a16w16 128x32", "qkv_proj 3 a16w16 192x64+bias", "o_proj 3 a16w16 64x64+bias",
                  "up_proj 3 a16w16 256x64+bias", "down_proj 3 a16w16 64x256+bias"));
  EXPECT_THAT(
      lines(R"({"model_type": "starcoder2", "hidden_size": 64, "intermediate_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 128, "use_bias": true})"),
      ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 3 a16w16 128x64+bias", "o_proj 3 a16w16 64x64+bias",
                  "up_proj 3 a16w16 256x64+bias", "down_proj 3 a16w16 64x256+bias"));
  EXPECT_THAT(lines(R"({"model_type": "nemotron", "hidden_size": 64, "intermediate_size": 256,
    "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 128, "hidden_act": "relu2"})"),
              ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 3 a16w16 192x64", "o_proj 3 a16w16 64x64",
                          "up_proj 3 a16w16 256x64", "down_proj 3 a16w16 64x256"));
  EXPECT_THAT(lines(R"({"model_type": "phi", "hidden_size": 64, "intermediate_size": 256,
    "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 128})"),
              ElementsAre("lm_head 1 a16w16 128x64+bias", "qkv_proj 3 a16w16 192x64+bias",
                          "o_proj 3 a16w16 64x64+bias", "up_proj 3 a16w16 256x64+bias",
                          "down_proj 3 a16w16 64x256+bias"));
  // An encoder has no logits.
  EXPECT_THAT(lines(R"({"model_type": "bert", "hidden_size": 64, "intermediate_size": 256,
    "num_attention_heads": 4, "num_hidden_layers": 3})"),
              ElementsAre("qkv_proj 3 a16w16 192x64+bias", "o_proj 3 a16w16 64x64+bias",
                          "up_proj 3 a16w16 256x64+bias", "down_proj 3 a16w16 64x256+bias"));
}

TEST_F(Architectures, OldNamesOfSizes) {
  EXPECT_THAT(
      lines(R"({"model_type": "gpt_bigcode", "n_embd": 64, "n_inner": null, "n_head": 4, "n_layer": 2,
    "vocab_size": 128})"),
      ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 2 a16w16 96x64+bias", "o_proj 2 a16w16 64x64+bias",
                  "up_proj 2 a16w16 256x64+bias", "down_proj 2 a16w16 64x256+bias"));
  const std::string falcon = R"({"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 128, "bias": false, "multi_query": true)";
  EXPECT_THAT(lines(falcon + "}"), Contains("qkv_proj 2 a16w16 96x64"));
  EXPECT_THAT(lines(falcon + R"(, "new_decoder_architecture": true, "num_kv_heads": 2})"),
              Contains("qkv_proj 2 a16w16 128x64"));
}

constexpr const char* jamba = R"({"model_type": "jamba", "hidden_size": 64, "intermediate_size": 256,
  "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 16, "vocab_size": 128,
  "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
  "num_experts": 16, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_dt_rank": "auto", "mamba_expand": 2})";

TEST_F(Architectures, JambaHasMambaInSevenOfEightLayers) {
  EXPECT_THAT(lines(jamba),
              ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 2 a16w16 128x64", "o_proj 2 a16w16 64x64",
                          "mamba_in_proj 14 a16w16 256x64", "mamba_x_proj 14 a16w16 36x128",
                          "mamba_dt_proj 14 a16w16 128x4", "mamba_out_proj 14 a16w16 64x128",
                          "gate_up_proj 8 a16w16 512x64", "down_proj 8 a16w16 64x256",
                          "router 8 a16w16 16x64", "experts 8 fused_moe 256x64"));
  EXPECT_THAT(lines(jamba, 2), Contains("mamba_x_proj 14 a16w16 36x64"));
}

std::string qwen3_next(const std::string& more) {
  return R"({"model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 256, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "num_hidden_layers": 8, "vocab_size": 128, "num_experts": 8, "num_experts_per_tok": 2,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, )" +
         more + "}";
}

TEST_F(Architectures, Qwen3NextHasAttentionInEveryFourthLayer) {
  const auto by_interval = lines(qwen3_next(R"("full_attention_interval": 4)"));
  // q_proj has a gate: (2 · 4 + 2 · 2) heads of 32.
  EXPECT_THAT(by_interval,
              ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 2 a16w16 384x64", "o_proj 2 a16w16 64x128",
                          "in_proj_qkvz 6 a16w16 192x64", "in_proj_ba 6 a16w16 8x64",
                          "linear_out_proj 6 a16w16 64x64", "router 8 a16w16 8x64",
                          "shared_gate_up_proj 8 a16w16 64x64", "shared_down_proj 8 a16w16 64x32",
                          "shared_expert_gate 8 a16w16 1x64", "experts 8 fused_moe 32x64"));
  const std::string three = R"("linear_attention", "linear_attention", "linear_attention", "full_attention")";
  EXPECT_EQ(lines(qwen3_next(R"("layer_types": [)" + three + ", " + three + "]")), by_interval);
  EXPECT_THAT(shapes_of(qwen3_next(R"("layer_types": [)" + three + "]"), strict()).message(),
              HasSubstr("expected 8 of full_attention"));
  EXPECT_THAT(shapes_of(qwen3_next(R"("rope_theta": 1)"), strict()).message(),
              HasSubstr("has no full_attention_interval"));
}

TEST_F(Architectures, WhatIsNotKnownIsRefusedByName) {
  const std::string mystery = R"({"model_type": "mystery", "hidden_size": 64, "intermediate_size": 256,
    "num_attention_heads": 4, "num_hidden_layers": 3)";
  EXPECT_THAT(shapes_of(mystery + R"(, "vocab_size": 128})", strict()).message(),
              HasSubstr("config.json: model_type 'mystery'; its GEMMs are not known. --assume llama"));
  EXPECT_THAT(shapes_of(R"({"hidden_size": 64, "num_hidden_layers": 3})", strict()).message(),
              HasSubstr("has no model_type"));
  ModelShapeOptions options = strict();
  options.assume = "llama";
  EXPECT_THAT(brief(shapes_of(mystery + R"(, "vocab_size": 128})", options)),
              Contains("gate_up_proj 3 a16w16 512x64"));
  EXPECT_THAT(shapes_of(mystery + "}", options).message(), HasSubstr("has no vocab_size; give --vocab_size"));
  options.vocab_size = 96;
  EXPECT_THAT(brief(shapes_of(mystery + "}", options)), Contains("lm_head 1 a16w16 96x64"));
  EXPECT_THAT(shapes_of(mystery + R"(, "vocab_size": 128})", options).message(),
              HasSubstr("--vocab_size 96: "));
  options.assume = "alpaca";
  EXPECT_THAT(shapes_of(mystery + "}", options).message(),
              HasSubstr("--assume alpaca: no architecture (known: "));
}

}  // namespace
}  // namespace gemmtune
