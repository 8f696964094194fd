// What a model's quantization_config makes of its layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_fixture.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* sizes = R"({"hidden_size": 64, "intermediate_size": 256, "moe_intermediate_size": 32,
  "num_attention_heads": 4, "num_hidden_layers": 4, "vocab_size": 128, "first_k_dense_replace": 1,
  "num_experts": 8, "num_experts_per_tok": 2, "quantization_config": )";

class ModelQuantization : public ModelTest {
 protected:
  Result<ShapeList> with(const std::string& quantization,
                         const ModelShapeOptions& options = one_token()) const {
    return shapes_of(sizes + quantization + "}", options);
  }
  /// What the linear layers became, and the experts' part of the problem.
  std::string linear(const std::string& quantization) const {
    const auto list = with(quantization);
    if (!list.ok()) return list.message();
    for (const ShapeRow& row : list->rows) {
      if (row.layer == "down_proj") {
        return fmt::format("{} {}", to_string(form_of(row.problem)), to_string(row.problem.x_type));
      }
    }
    return "no down_proj";
  }
  std::string experts(const std::string& quantization) const {
    const auto list = with(quantization);
    if (!list.ok()) return list.message();
    const Problem& problem = list->rows.back().problem;
    return fmt::format("{} {} {}", to_string(problem.x_type), to_string(problem.w_type),
                       to_string(problem.moe.quant_type));
  }
};

TEST_F(ModelQuantization, RoutersAndLmHeadStayAsTheyAre) {
  EXPECT_THAT(
      brief(with(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})")),
      ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 4 a8w8_blockscale 192x64",
                  "o_proj 4 a8w8_blockscale 64x64", "gate_up_proj 1 a8w8_blockscale 512x64",
                  "down_proj 1 a8w8_blockscale 64x256", "router 3 a16w16 8x64", "experts 3 fused_moe 32x64"));
  // Unless a group of the config names them.
  EXPECT_THAT(brief(with(R"({"quant_method": "compressed-tensors", "config_groups": {"head": {
                "targets": ["re:.*lm_head"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true}}}})")),
              ElementsAre("lm_head 1 a8w8 128x64", "qkv_proj 4 a16w16 192x64", "o_proj 4 a16w16 64x64",
                          "gate_up_proj 1 a16w16 512x64", "down_proj 1 a16w16 64x256", "router 3 a16w16 8x64",
                          "experts 3 fused_moe 32x64"));
}

/// A group of compressed-tensors: both sides of one type, by these strategies.
std::string compressed(const std::string& type, const std::string& weights, const std::string& activations,
                       const std::string& more = "") {
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {{"group_0": {{
         "targets": ["Linear"], "weights": {{"num_bits": 8, "type": "{}", "strategy": "{}"{}}},
         "input_activations": {{"num_bits": 8, "type": "{}", "strategy": "{}"}}}}}}}})",
      type, weights, more, type, activations);
}

std::string quark(const std::string& weight, const std::string& input) {
  return R"({"quant_method": "quark", "global_quant_config": {"weight": )" + weight +
         R"(, "input_tensors": )" + input + "}}";
}

TEST_F(ModelQuantization, EveryMethodChoosesItsOperation) {
  struct Case {
    std::string config;
    const char* linear;
    const char* experts;
  };
  const std::string int8 = R"({"dtype": "int8", "qscheme": "per_channel"})";
  const std::string fp8 = R"({"dtype": "fp8_e4m3", "qscheme": "per_tensor"})";
  const std::string fp4 = R"({"dtype": "fp4", "qscheme": "per_group", "group_size": 32})";
  for (const Case& expected :
       {Case{R"({"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"})",
             "a8w8_blockscale f8_e4m3fn", "f8_e4m3fn f8_e4m3fn per_1x128"},
        Case{R"({"quant_method": "fp8", "activation_scheme": "dynamic"})", "a8w8 f8_e4m3fn",
             "f8_e4m3fn f8_e4m3fn per_Token"},
        Case{R"({"quant_method": "fp8", "activation_scheme": "static"})", "a8w8 f8_e4m3fn",
             "f8_e4m3fn f8_e4m3fn per_Tensor"},
        Case{R"({"quant_method": "fbgemm_fp8"})", "a8w8 f8_e4m3fn", "f8_e4m3fn f8_e4m3fn per_Token"},
        Case{R"({"quant_method": "w8a8_int8"})", "a8w8 i8", "i8 i8 per_Token"},
        Case{R"({"quant_method": "mxfp4"})", "a4w4_blockscale f4_e2m1", "f4_e2m1 f4_e2m1 per_1x32"},
        Case{compressed("int", "channel", "token"), "a8w8 i8", "i8 i8 per_Token"},
        Case{compressed("float", "tensor", "tensor"), "a8w8 f8_e4m3fn", "f8_e4m3fn f8_e4m3fn per_Tensor"},
        Case{compressed("float", "block", "group", R"(, "block_structure": [128, 128])"),
             "a8w8_blockscale f8_e4m3fn", "f8_e4m3fn f8_e4m3fn per_1x128"},
        Case{quark(int8, int8), "a8w8 i8", "i8 i8 per_Token"},
        Case{quark(fp8, fp8), "a8w8 f8_e4m3fn", "f8_e4m3fn f8_e4m3fn per_Tensor"},
        Case{quark(fp4, fp4), "a4w4_blockscale f4_e2m1", "f4_e2m1 f4_e2m1 per_1x32"},
        Case{"null", "a16w16 bf16", "bf16 bf16 No"}}) {
    EXPECT_EQ(linear(expected.config), expected.linear) << expected.config;
    EXPECT_EQ(experts(expected.config), expected.experts) << expected.config;
  }
}

/// One group of compressed-tensors with 4-bit weights.
std::string four_bits(const std::string& weights, const std::string& activations) {
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "config_groups": {{"g": {{"targets": ["Linear"],
                         "weights": {{"num_bits": 4, {}}}, "input_activations": {}}}}}}})",
      weights, activations);
}

TEST_F(ModelQuantization, FourBitWeightsHaveGroupsAndZeroPoints) {
  const std::string group = R"("type": "int", "strategy": "group", "group_size": 32)";
  const std::string nvfp4 = R"("type": "float", "strategy": "tensor_group", "group_size": 16)";
  const std::string int8 = R"({"num_bits": 8, "type": "int", "strategy": "token"})";
  const std::string fp8 = R"({"num_bits": 8, "type": "float", "strategy": "token"})";
  const std::string fp4 = R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})";
  ModelShapeOptions options = one_token();
  struct Case {
    std::string config;
    std::string problem;  // of down_proj
  };
  for (const Case& expected :
       {Case{R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true})",
             "a16w4_int4 m=1 n=64 k=256 x=bf16 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=64 "
             "zero_points=1"},
        Case{R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": true, "desc_act": true})",
             "a16w4_int4 m=1 n=64 k=256 x=bf16 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=64"},
        Case{R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": false})",
             "a16w4_int4 m=1 n=64 k=256 x=bf16 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=row "
             "zero_points=1"},
        Case{four_bits(group, "null"),
             "a16w4_int4 m=1 n=64 k=256 x=bf16 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=32"},
        Case{four_bits(group + R"(, "symmetric": false)", int8),
             "a8w4_int4 m=1 n=64 k=256 x=i8 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=32 "
             "zero_points=1"},
        Case{four_bits(R"("type": "int", "strategy": "channel")", "null"),
             "a16w4_int4 m=1 n=64 k=256 x=bf16 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=row"},
        Case{four_bits(nvfp4, "null"),
             "a16w4_nvfp4 m=1 n=64 k=256 x=bf16 w=f4_e2m1 y=bf16 bias=0 scale_ab=0 layout=plain"},
        Case{four_bits(nvfp4, fp8),
             "a8w4_nvfp4 m=1 n=64 k=256 x=f8_e4m3fn w=f4_e2m1 y=bf16 bias=0 scale_ab=0 layout=plain"},
        Case{four_bits(nvfp4, fp4),
             "a4w4_nvfp4 m=1 n=64 k=256 x=f4_e2m1 w=f4_e2m1 y=bf16 bias=0 scale_ab=0 layout=plain"},
        Case{R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})",
             "a4w4_nvfp4 m=1 n=64 k=256 x=f4_e2m1 w=f4_e2m1 y=bf16 bias=0 scale_ab=0 layout=plain"},
        Case{R"({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"})",
             "a16w4_nvfp4 m=1 n=64 k=256 x=bf16 w=f4_e2m1 y=bf16 bias=0 scale_ab=0 layout=plain"}}) {
    options.operation = *parse_operation(expected.problem.substr(0, expected.problem.find(' ')));
    EXPECT_EQ(problem_of(with(expected.config, options), "down_proj"), expected.problem) << expected.config;
  }
  options.x_type = DataType::f16;
  options.operation = OperationForm(Operation::a16w4_int4);
  EXPECT_THAT(problem_of(with(four_bits(group, "null"), options), "down_proj"),
              HasSubstr("x=f16 w=i4 y=f16"));
  EXPECT_THAT(
      with(four_bits(group, int8)).message(),
      HasSubstr("experts: fused_moe has no weights of a8w4_int4; --op a8w4_int4 lists the other layers"));
}

/// Tokens stay as they are, also where the linear layers quantize both operands.
TEST_F(ModelQuantization, ExpertsHaveFourBitWeightsAlone) {
  const std::string group = R"("type": "int", "strategy": "group", "group_size": 32)";
  const std::string nvfp4 = R"("type": "float", "strategy": "tensor_group", "group_size": 16)";
  const std::string fp4 = R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})";
  const std::string moe = " experts=8 topk=2 act=Silu ";
  const std::string int4 = "fused_moe m=1 n=32 k=64 x=bf16 w=i4 y=bf16 bias=0 scale_ab=0 layout=plain group=";
  const std::string of_fp4 = "fused_moe m=1 n=32 k=64 x=bf16 w=f4_e2m1 y=bf16 bias=0 scale_ab=0 layout=plain";
  for (const auto& [config, problem] :
       {std::pair{four_bits(group, "null"), int4 + "32" + moe + "quant=per_group gated=1 doweight_stage1=0"},
        {std::string(R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true})"),
         int4 + "32 zero_points=1" + moe + "quant=per_group gated=1 doweight_stage1=0"},
        {std::string(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true})"),
         int4 + "32" + moe + "quant=per_group gated=1 doweight_stage1=0"},
        {four_bits(nvfp4, "null"), of_fp4 + moe + "quant=per_1x16 gated=1 doweight_stage1=0"},
        {four_bits(nvfp4, fp4), of_fp4 + moe + "quant=per_1x16 gated=1 doweight_stage1=0"},
        {std::string(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"),
         of_fp4 + moe + "quant=per_1x16 gated=1 doweight_stage1=0"}}) {
    EXPECT_EQ(problem_of(with(config), "experts"), problem) << config;
  }
  EXPECT_THAT(with(R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": true})").message(),
              HasSubstr("model_dim = 64, inter_dim = 32, expected multiples of 64"));
}

TEST_F(ModelQuantization, RulesForSingleLayers) {
  ModelShapeOptions options = one_token();
  options.operation = OperationForm(Operation::a16w4_int4);
  const auto gptq = with(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {
      "-:.*self_attn": {}, "+:.*layers\\.0\\.mlp\\.down_proj": {"group_size": 128}}})",
                         options);
  EXPECT_THAT(brief(gptq), ElementsAre("gate_up_proj 1 a16w4_int4 512x64", "down_proj 1 a16w4_int4 64x256"));
  EXPECT_THAT(problem_of(gptq, "gate_up_proj"), HasSubstr("group=32"));
  EXPECT_THAT(problem_of(gptq, "down_proj"), HasSubstr("group=128"));
  EXPECT_THAT(
      brief(with(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
      "model.layers.0.mlp.down_proj": {"quant_algo": "W4A16_NVFP4"}, "model.layers.1.self_attn.o_proj": {"quant_algo": "FP8"}}})")),
      ElementsAre("lm_head 1 a16w16 128x64", "qkv_proj 4 a16w16 192x64", "o_proj 3 a16w16 64x64",
                  "o_proj 1 a8w8 64x64", "gate_up_proj 1 a16w16 512x64", "down_proj 1 a16w4_nvfp4 64x256",
                  "router 3 a16w16 8x64", "experts 3 fused_moe 32x64"));
}

TEST_F(ModelQuantization, ExceptionsAreHonouredLayerByLayer) {
  struct Case {
    const char* exceptions;
    int quantized;  // of the four o_proj
  };
  for (const Case& expected :
       {Case{R"("ignored_layers": ["model.layers.0.self_attn.o_proj", "model.layers.2.self_attn.o_proj"])",
             2},
        Case{R"("modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"])", 0},
        Case{R"("modules_to_not_convert": ["self_attn"])", 0}, Case{R"("ignore": ["re:.*self_attn.*"])", 0},
        Case{R"("ignore": ["re:model\\.layers\\.[01]\\..*"])", 2},
        Case{R"("ignore": ["model.language_model.layers.3"])", 3},
        Case{R"("exclude": ["vision_tower.layers.3.self_attn.o_proj", "o_pro", "*.gate"])", 4}}) {
    const auto lines = brief(with(fmt::format(R"({{"quant_method": "fp8", {}}})", expected.exceptions)));
    const std::string quantized = fmt::format("o_proj {} a8w8 64x64", expected.quantized);
    const std::string left = fmt::format("o_proj {} a16w16 64x64", 4 - expected.quantized);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), quantized), expected.quantized > 0 ? 1 : 0)
        << expected.exceptions;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), left), expected.quantized < 4 ? 1 : 0)
        << expected.exceptions;
  }
  EXPECT_EQ(experts(R"({"quant_method": "fp8", "ignore": ["re:.*mlp\\.experts.*"]})"), "bf16 bf16 No");
  EXPECT_EQ(experts(R"({"quant_method": "fp8", "ignore": ["model.layers.*.mlp.experts"]})"), "bf16 bf16 No");
}

TEST_F(ModelQuantization, PartsOfOneGemmMustAgree) {
  EXPECT_THAT(
      with(R"({"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn.k_proj"]})").message(),
      HasSubstr("layers.0.self_attn.k_proj differ, but engines run them as one GEMM, qkv_proj"));
}

TEST_F(ModelQuantization, QuarkHasFormatsByLayer) {
  const auto lines = brief(with(R"({"quant_method": "quark", "exclude": ["lm_head"],
    "layer_quant_config": {"*self_attn*": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"},
                                           "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}},
    "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32},
                            "input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}})"));
  EXPECT_THAT(lines, Contains("qkv_proj 4 a8w8 192x64"));
  EXPECT_THAT(lines, Contains("down_proj 1 a4w4_blockscale 64x256"));
  EXPECT_THAT(lines, Contains("experts 3 fused_moe 32x64"));  // Quark's are not padded
}

TEST_F(ModelQuantization, WhatNoOperationHasIsNamed) {
  struct Case {
    std::string config;
    const char* message;
  };
  for (const Case& bad :
       {Case{R"({"quant_method": "bitsandbytes"})",
             "quant_method = \"bitsandbytes\": not known (known: fp8, fbgemm_fp8"},
        Case{R"({"quant_method": "awq", "bits": 8})", "bits = 8, expected 4"},
        Case{R"({"quant_method": "gptq", "group_size": 128})", "bits = 0, expected 4"},
        Case{R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 8}}})",
             "dynamic: +:.*: bits = 8, expected 4"},
        Case{R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:(": {}}})", "no regular expression"},
        Case{R"({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"})",
             "quant_algo = \"NVFP4_AWQ\", expected"},
        Case{R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})",
             "quantized_layers: expected an object"},
        Case{"{}", "quant_method = null"},
        Case{R"("fp8")", "quantization_config: expected an object"},
        Case{R"({"quant_method": "fp8", "weight_block_size": [64, 64]})",
             "weight_block_size = [64,64], expected [128, 128]"},
        Case{R"({"quant_method": "fp8", "fmt": "e5m2"})", "fmt = e5m2"},
        Case{R"({"quant_method": "fp8", "ignored_layers": "lm_head"})",
             "ignored_layers = \"lm_head\", expected a list"},
        Case{R"({"quant_method": "fp8", "ignore": ["re:("]})", "'re:(' is no regular expression"},
        Case{R"({"quant_method": "fp8", "ignore": [3]})", "ignore: 3, expected a name"},
        Case{R"({"quant_method": "compressed-tensors"})", "config_groups: expected an object"},
        Case{R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"],
                 "weights": {"num_bits": 4, "type": "int", "strategy": "tensor"}}}})",
             "config_groups.g: weights int4 per tensor with activations none: no operation has these"},
        Case{compressed("float", "group", "group"), "float8 per group"},
        Case{compressed("int", "channel", "group"),
             "weights int8 per channel with activations int8 per group"},
        Case{R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {}}}})",
             "has no num_bits"},
        Case{quark(R"({"dtype": "int4", "qscheme": "per_group"})", "null"),
             "global_quant_config: weights int4 per group"}}) {
    const auto list = with(bad.config);
    EXPECT_THAT(list.message(), HasSubstr(bad.message)) << bad.config;
    EXPECT_THAT(list.message(), HasSubstr("config.json: quantization_config: ")) << bad.config;
  }
}

TEST_F(ModelQuantization, TypesChangeTheLayersOfTheirKind) {
  const std::string fp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
  ModelShapeOptions options = one_token();
  options.x_type = DataType::f8_e4m3fnuz;
  auto list = with(fp8, options);
  EXPECT_THAT(problem_of(list, "o_proj"), HasSubstr("x=f8_e4m3fnuz w=f8_e4m3fnuz y=bf16"));
  EXPECT_THAT(problem_of(list, "experts"), HasSubstr("x=f8_e4m3fnuz w=f8_e4m3fnuz y=bf16"));
  EXPECT_THAT(problem_of(list, "router"), HasSubstr("x=bf16 w=bf16 y=bf16"));
  options.x_type = DataType::f16;
  options.y_type = DataType::f16;
  list = with(fp8, options);
  EXPECT_THAT(problem_of(list, "router"), HasSubstr("x=f16 w=f16 y=f16"));
  EXPECT_THAT(problem_of(list, "o_proj"), HasSubstr("x=f8_e4m3fn w=f8_e4m3fn y=f16"));
  options.x_type = DataType::i8;
  EXPECT_THAT(with("null", options).message(),
              HasSubstr("--indtype i8: no layer of the model has operands of 8 bits"));
}

TEST_F(ModelQuantization, PreShuffledVariants) {
  ModelShapeOptions options = one_token();
  options.bpreshuffle = true;
  const auto blocks = with(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})", options);
  EXPECT_THAT(brief(blocks), Contains("o_proj 4 a8w8_blockscale_bpreshuffle 64x64"));
  EXPECT_THAT(problem_of(blocks, "router"), HasSubstr("layout=any"));
  EXPECT_THAT(brief(with(R"({"quant_method": "fp8"})", options)),
              Contains("o_proj 4 a8w8_bpreshuffle 64x64"));
}

TEST_F(ModelQuantization, OneOperationOnly) {
  ModelShapeOptions options = one_token();
  options.operation = OperationForm(Operation::fused_moe);
  EXPECT_THAT(brief(with(R"({"quant_method": "fp8"})", options)), ElementsAre("experts 3 fused_moe 32x64"));
  options.operation = OperationForm(Operation::a8w8_blockscale);
  EXPECT_THAT(with(R"({"quant_method": "fp8"})", options).message(),
              HasSubstr("no row of a8w8_blockscale; there are 2 rows of a16w16, 4 of a8w8, 1 of fused_moe"));
}

}  // namespace
}  // namespace gemmtune
