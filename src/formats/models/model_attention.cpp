// Attention's projections as vLLM and SGLang split and fuse them (QKVParallelLinear, RowParallelLinear,
// MergedReplicatedLinear of DeepSeek's latent attention).
#include <array>
#include <numeric>

#include "formats/models/model_layers.h"

namespace gemmtune {
namespace {

std::vector<std::int64_t> all_of(std::int64_t layers) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(layers));
  std::iota(at.begin(), at.end(), std::int64_t{0});
  return at;
}

/// More ranks than KV heads: engines give each rank a copy of one.
std::int64_t kv_heads_of_rank(RankShares& shares, std::int64_t kv_heads) {
  if (shares.ranks() > kv_heads && shares.ranks() % kv_heads == 0) return 1;
  return shares.of("num_key_value_heads", kv_heads);
}

std::int64_t head_size(ModelFields& fields, std::int64_t hidden, std::int64_t heads) {
  if (fields.has("head_dim")) return fields.number({"head_dim"});
  if (hidden % heads != 0) {
    fields.refuse(fmt::format(
        "{}: hidden_size = {} is no multiple of num_attention_heads = {} and there is no head_dim",
        fields.path(), hidden, heads));
  }
  return hidden / heads;
}

struct AttentionBias {
  bool qkv = false;
  bool output = false;
};

/// attention_bias is both projections' in Llama and gpt-oss and QKV's alone elsewhere (Qwen3, GLM); Qwen2 has
/// always had one on QKV without a field for it. Of the ranks, the first adds the output's bias.
AttentionBias attention_bias(ModelFields& fields) {
  const std::string kind = model_type(fields);
  const bool both = fields.flag("attention_bias") || fields.flag("bias");
  AttentionBias bias;
  bias.qkv = both || kind.starts_with("qwen2");
  if (fields.has("qkv_bias")) bias.qkv = fields.flag("qkv_bias");
  bias.output = both && (kind == "llama" || kind == "gpt_oss" || kind == "mistral" || kind.empty());
  return bias;
}

std::vector<ModelLayer> grouped_query(ModelFields& fields, RankShares& shares, std::int64_t layers) {
  const std::int64_t hidden = fields.number({"hidden_size", "n_embd"});
  const std::int64_t all_heads = fields.number({"num_attention_heads", "n_head"});
  const std::int64_t all_kv_heads = fields.number_or("num_key_value_heads", all_heads);
  const std::int64_t head = head_size(fields, hidden, all_heads);
  const std::int64_t heads = shares.of("num_attention_heads", all_heads);
  const std::int64_t kv_heads = kv_heads_of_rank(shares, all_kv_heads);
  const AttentionBias bias = attention_bias(fields);

  ModelLayer qkv{.name = "qkv_proj",
                 .modules = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                 .n = bounded_product(heads + 2 * kv_heads, head),
                 .k = hidden,
                 .at = all_of(layers),
                 .bias = bias.qkv};
  ModelLayer output{.name = "o_proj",
                    .modules = {"self_attn.o_proj"},
                    .n = hidden,
                    .k = bounded_product(heads, head),
                    .at = all_of(layers),
                    .bias = bias.output};
  return {std::move(qkv), std::move(output)};
}

/// q_a with kv_a, both replicated and fused into one, or q_proj and kv_a apart where the queries have no
/// low-rank form; then kv_b as prefill runs it. Decode absorbs kv_b into batched products, which are not
/// made.
std::vector<ModelLayer> latent(ModelFields& fields, RankShares& shares, std::int64_t layers) {
  const std::int64_t hidden = fields.number({"hidden_size"});
  const std::int64_t heads = shares.of("num_attention_heads", fields.number({"num_attention_heads"}));
  const std::int64_t kv_rank = fields.number({"kv_lora_rank"});
  const std::int64_t rope = fields.number({"qk_rope_head_dim"});
  const std::int64_t nope = fields.number({"qk_nope_head_dim"});
  const std::int64_t v_head = fields.number({"v_head_dim"});
  const std::int64_t q_width = bounded_product(heads, nope + rope);
  const bool bias = fields.flag("attention_bias");
  const auto layer = [&](std::string name, std::vector<std::string> modules, std::int64_t n, std::int64_t k) {
    return ModelLayer{
        .name = std::move(name), .modules = std::move(modules), .n = n, .k = k, .at = all_of(layers)};
  };

  std::vector<ModelLayer> list;
  if (fields.has("q_lora_rank")) {
    const std::int64_t q_rank = fields.number({"q_lora_rank"});
    list.push_back(layer("fused_qkv_a_proj", {"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"},
                         q_rank + kv_rank + rope, hidden));
    list.back().bias = bias;
    list.push_back(layer("q_b_proj", {"self_attn.q_b_proj"}, q_width, q_rank));
  } else {
    list.push_back(layer("q_proj", {"self_attn.q_proj"}, q_width, hidden));
    list.push_back(layer("kv_a_proj", {"self_attn.kv_a_proj_with_mqa"}, kv_rank + rope, hidden));
    list.back().bias = bias;
  }
  list.push_back(layer("kv_b_proj", {"self_attn.kv_b_proj"}, bounded_product(heads, nope + v_head), kv_rank));
  list.push_back(layer("o_proj", {"self_attn.o_proj"}, hidden, bounded_product(heads, v_head)));
  list.back().bias = bias;
  return list;
}

/// Layers that are not softmax attention (Qwen3-Next's linear attention, Mamba) have other GEMMs.
void check_layer_types(ModelFields& fields) {
  constexpr std::array<std::string_view, 4> known{"full_attention", "sliding_attention", "chunked_attention",
                                                  "attention"};
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) return;
  bool good = types->is_array();
  for (const auto& type : good ? *types : nlohmann::json::array()) {
    bool found = false;
    for (const std::string_view word : known) found = found || (type.is_string() && type == word);
    good = good && found;
  }
  if (!good) {
    fields.refuse(
        fields.named("layer_types",
                     "a list of full_attention, sliding_attention and chunked_attention: the GEMMs of "
                     "other layers are not known"));
  }
}

}  // namespace

std::vector<ModelLayer> attention_layers(ModelFields& fields, RankShares& shares, std::int64_t layers) {
  check_layer_types(fields);
  const bool is_latent = fields.has("kv_lora_rank") || fields.has("q_lora_rank");
  return is_latent ? latent(fields, shares, layers) : grouped_query(fields, shares, layers);
}

}  // namespace gemmtune
