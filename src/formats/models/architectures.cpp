#include "formats/models/architectures.h"

#include <algorithm>

#include "base/text.h"

namespace gemmtune {
namespace {

// Sources: the configuration and modeling files of Hugging Face's transformers, and vLLM's models where the two
// differ (o_proj of Qwen3 and GLM, the gate of Qwen3-Next).

constexpr BiasRule never{};
constexpr BiasRule always{.otherwise = true};
constexpr BiasRule by_attention_bias{.fields = {"attention_bias"}};
constexpr BiasRule by_mlp_bias{.fields = {"mlp_bias"}};
constexpr BiasRule by_bias{.fields = {"bias"}};
constexpr BiasRule by_use_bias{.fields = {"use_bias"}};
constexpr BiasRule unless_use_bias{.otherwise = true, .fields = {"use_bias"}};

constexpr Architecture llama_like(std::string_view model_type) {
  Architecture row{.model_type = model_type};
  row.qkv_bias = row.output_bias = {.fields = {"attention_bias", "bias"}};
  row.feed_forward_bias = by_mlp_bias;
  return row;
}

/// attention_bias is QKV's alone.
constexpr Architecture qkv_biased(std::string_view model_type, BiasRule rule = by_attention_bias) {
  Architecture row{.model_type = model_type};
  row.qkv_bias = rule;
  return row;
}

constexpr Architecture qwen_sparse(std::string_view model_type, BiasRule qkv_bias) {
  Architecture row = qkv_biased(model_type, qkv_bias);
  row.shared = "shared_expert";
  return row;
}

constexpr Architecture block_sparse(std::string_view model_type) {
  Architecture row{.model_type = model_type};
  row.block = "block_sparse_moe";
  row.expert = {"w1", "w3", "w2"};
  return row;
}

constexpr Architecture llama4_like(std::string_view model_type) {
  Architecture row = qkv_biased(model_type);
  row.block = "feed_forward";
  row.router = "router";
  row.shared = "shared_expert";
  row.shared_experts = 1;
  row.dense_size = "intermediate_size_mlp";
  row.doweight_stage1 = true;
  return row;
}

/// Up and down without a gate.
constexpr Architecture plain(std::string_view model_type, BiasRule attention, BiasRule feed_forward) {
  Architecture row{.model_type = model_type};
  row.gated = false;
  row.qkv_bias = row.output_bias = attention;
  row.feed_forward_bias = feed_forward;
  return row;
}

constexpr Architecture with_modules(Architecture row, std::string_view qkv, std::string_view output,
                                    std::string_view up, std::string_view down) {
  row.qkv_module = qkv;
  row.output_module = output;
  row.up_module = up;
  row.down_module = down;
  return row;
}

constexpr Architecture encoder(std::string_view model_type) {
  Architecture row = with_modules(plain(model_type, always, always), "attention.self",
                                  "attention.output.dense", "intermediate.dense", "output.dense");
  row.lm_head = false;
  return row;
}

constexpr Architecture gpt_neox =
    with_modules(plain("gpt_neox", {.otherwise = true, .fields = {"attention_bias"}}, always),
                 "attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h");

constexpr Architecture of_four_widths(Architecture row) {
  row.default_width = 4;
  return row;
}

constexpr Architecture bloom =
    of_four_widths(with_modules(plain("bloom", always, always), "self_attention.query_key_value",
                                "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"));

constexpr Architecture falcon =
    of_four_widths(with_modules(plain("falcon", by_bias, by_bias), "self_attention.query_key_value",
                                "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"));

constexpr Architecture gpt2 = of_four_widths(
    with_modules(plain("gpt2", always, always), "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"));

constexpr Architecture gpt_bigcode = [] {
  Architecture row = gpt2;
  row.model_type = "gpt_bigcode";
  row.one_kv_head = true;
  return row;
}();

constexpr Architecture gptj = [] {
  Architecture row = of_four_widths(
      with_modules(plain("gptj", never, always), "attn", "attn.out_proj", "mlp.fc_in", "mlp.fc_out"));
  row.lm_head_bias = true;
  return row;
}();

constexpr Architecture gpt_oss = [] {
  Architecture row{.model_type = "gpt_oss"};
  row.qkv_bias = row.output_bias = {.otherwise = true, .fields = {"attention_bias"}};
  row.router = "router";
  row.router_bias = true;
  row.expert_bias = true;
  row.swiglu = true;
  return row;
}();

constexpr Architecture jamba = [] {
  Architecture row{.model_type = "jamba"};
  row.mixer = Mixer::mamba;
  row.block = "feed_forward";
  row.router = "router";
  return row;
}();

constexpr Architecture opt = [] {
  constexpr BiasRule enable{.otherwise = true, .fields = {"enable_bias"}};
  return with_modules(plain("opt", enable, enable), {}, "self_attn.out_proj", "fc1", "fc2");
}();

constexpr Architecture phi = [] {
  Architecture row = with_modules(plain("phi", always, always), {}, "self_attn.dense", "mlp.fc1", "mlp.fc2");
  row.lm_head_bias = true;
  return row;
}();

constexpr Architecture qwen3_next = [] {
  Architecture row = qwen_sparse("qwen3_next", by_attention_bias);
  row.mixer = Mixer::gated_delta_net;
  row.gated_attention = true;
  return row;
}();

constexpr Architecture all_biased(std::string_view model_type, BiasRule rule) {
  Architecture row{.model_type = model_type};
  row.qkv_bias = row.output_bias = row.feed_forward_bias = rule;
  return row;
}

constexpr Architecture attention_biased(std::string_view model_type) {
  Architecture row = all_biased(model_type, by_attention_bias);
  row.feed_forward_bias = never;
  return row;
}

constexpr std::array architectures{
    plain("arcee", by_attention_bias, by_mlp_bias),
    Architecture{.model_type = "baichuan"},
    encoder("bert"),
    bloom,
    attention_biased("cohere"),
    attention_biased("cohere2"),
    attention_biased("deepseek"),
    attention_biased("deepseek_v2"),
    attention_biased("deepseek_v3"),
    attention_biased("deepseek_v32"),
    attention_biased("dots1"),
    all_biased("ernie4_5", by_use_bias),
    all_biased("ernie4_5_moe", by_use_bias),
    Architecture{.model_type = "exaone4"},
    falcon,
    attention_biased("gemma"),
    attention_biased("gemma2"),
    attention_biased("gemma3"),
    attention_biased("gemma3_text"),
    qkv_biased("glm"),
    qkv_biased("glm4"),
    qkv_biased("glm4_moe"),
    gpt2,
    gpt_bigcode,
    gpt_neox,
    gpt_oss,
    gptj,
    llama_like("granite"),
    attention_biased("granitemoe"),
    llama_like("internlm2"),
    llama_like("internlm3"),
    jamba,
    attention_biased("kimi_k2"),
    llama_like("llama"),
    llama4_like("llama4"),
    llama4_like("llama4_text"),
    qkv_biased("mimo", {.otherwise = true, .fields = {"attention_bias"}}),
    block_sparse("minimax_m2"),
    llama_like("ministral"),
    llama_like("mistral"),
    block_sparse("mixtral"),
    with_modules(plain("nemotron", by_attention_bias, by_mlp_bias), {}, {}, "mlp.up_proj", "mlp.down_proj"),
    attention_biased("olmo"),
    attention_biased("olmo2"),
    attention_biased("olmo3"),
    attention_biased("olmoe"),
    opt,
    phi,
    Architecture{.model_type = "phi3"},
    qkv_biased("qwen2", always),
    qkv_biased("qwen2_5_vl", always),
    qkv_biased("qwen2_5_vl_text", always),
    qwen_sparse("qwen2_moe", {.otherwise = true, .fields = {"qkv_bias"}}),
    qkv_biased("qwen2_vl", always),
    qkv_biased("qwen2_vl_text", always),
    qkv_biased("qwen3"),
    qwen_sparse("qwen3_moe", by_attention_bias),
    qwen3_next,
    qkv_biased("qwen3_vl_text"),
    qwen_sparse("qwen3_vl_moe_text", by_attention_bias),
    encoder("roberta"),
    qkv_biased("seed_oss", {.otherwise = true, .fields = {"attention_bias"}}),
    llama_like("smollm3"),
    qkv_biased("stablelm", {.fields = {"use_qkv_bias"}}),
    with_modules(plain("starcoder2", unless_use_bias, unless_use_bias), {}, {}, "mlp.c_fc", "mlp.c_proj"),
    encoder("xlm-roberta"),
};

std::string known_names() { return joined(architectures, ", ", &Architecture::model_type); }

}  // namespace

std::span<const Architecture> all_architectures() { return architectures; }

const Architecture* find_architecture(std::string_view model_type) {
  const auto row = std::ranges::find_if(
      architectures, [&](const Architecture& known) { return known.model_type == model_type; });
  return row == architectures.end() ? nullptr : &*row;
}

Result<const Architecture*> architecture_of(ModelFields& fields, const std::string& assumed) {
  const std::string model_type = fields.text("model_type");
  if (!fields.status().ok()) return fields.status();
  if (const Architecture* row = find_architecture(model_type)) return row;
  if (!assumed.empty()) {
    if (const Architecture* row = find_architecture(assumed)) return row;
    return Status::invalid("--assume {}: no architecture (known: {})", assumed, known_names());
  }
  return Status::unsupported(
      "{}: {}; its GEMMs are not known. --assume llama makes those of a Llama of its sizes", fields.path(),
      model_type.empty() ? std::string("has no model_type") : fmt::format("model_type '{}'", model_type));
}

bool has_bias(ModelFields& fields, const BiasRule& rule) {
  for (const char* field : rule.fields) {
    if (field != nullptr && fields.has(field)) return fields.flag(field);
  }
  return rule.otherwise;
}

}  // namespace gemmtune
