// Attention's projections as vLLM and SGLang split and fuse them (QKVParallelLinear, RowParallelLinear,
// MergedReplicatedLinear of DeepSeek's latent attention).
#include <utility>

#include "formats/models/model_layers.h"

namespace gemmtune {
namespace {

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

/// Falcon and StarCoder say multi_query in place of a count.
std::int64_t all_kv_heads(ModelFields& fields, const Architecture& architecture, std::int64_t heads) {
  if (fields.has("num_key_value_heads")) return fields.number({"num_key_value_heads"});
  if (fields.flag("new_decoder_architecture")) return fields.number_or("num_kv_heads", heads);
  const bool one = fields.has("multi_query") ? fields.flag("multi_query") : architecture.one_kv_head;
  return one ? 1 : heads;
}

std::vector<std::string> module_or(std::string_view module, std::vector<std::string> otherwise) {
  return module.empty() ? std::move(otherwise) : std::vector<std::string>{std::string(module)};
}

/// Of the ranks, the first adds the output's bias.
std::vector<ModelLayer> grouped_query(ModelFields& fields, const Architecture& architecture,
                                      RankShares& shares, const std::vector<std::int64_t>& at) {
  const std::int64_t hidden = fields.number({"hidden_size", "n_embd"});
  const std::int64_t all_heads = fields.number({"num_attention_heads", "n_head"});
  const std::int64_t head = head_size(fields, hidden, all_heads);
  const std::int64_t heads = shares.of("num_attention_heads", all_heads);
  const std::int64_t kv_heads = kv_heads_of_rank(shares, all_kv_heads(fields, architecture, all_heads));
  const bool gated =
      architecture.gated_attention && (!fields.has("attn_output_gate") || fields.flag("attn_output_gate"));
  BiasRule qkv_bias = architecture.qkv_bias;
  if (fields.has("qkv_bias")) qkv_bias = {.fields = {"qkv_bias"}};

  ModelLayer qkv{.name = "qkv_proj",
                 .modules = module_or(architecture.qkv_module,
                                      {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}),
                 .n = bounded_product((gated ? 2 : 1) * heads + 2 * kv_heads, head),
                 .k = hidden,
                 .at = at,
                 .bias = has_bias(fields, qkv_bias)};
  ModelLayer output{.name = "o_proj",
                    .modules = module_or(architecture.output_module, {"self_attn.o_proj"}),
                    .n = hidden,
                    .k = bounded_product(heads, head),
                    .at = at,
                    .bias = has_bias(fields, architecture.output_bias)};
  return {std::move(qkv), std::move(output)};
}

/// q_a with kv_a, both replicated and fused into one, or q_proj and kv_a apart where the queries have no
/// low-rank form; then kv_b as prefill runs it. Decode absorbs kv_b into batched products, which are not
/// made.
std::vector<ModelLayer> latent(ModelFields& fields, RankShares& shares, const std::vector<std::int64_t>& at) {
  const std::int64_t hidden = fields.number({"hidden_size"});
  const std::int64_t heads = shares.of("num_attention_heads", fields.number({"num_attention_heads"}));
  const std::int64_t kv_rank = fields.number({"kv_lora_rank"});
  const std::int64_t rope = fields.number({"qk_rope_head_dim"});
  const std::int64_t nope = fields.number({"qk_nope_head_dim"});
  const std::int64_t v_head = fields.number({"v_head_dim"});
  const std::int64_t q_width = bounded_product(heads, nope + rope);
  const bool bias = fields.flag("attention_bias");
  const auto layer = [&](std::string name, std::vector<std::string> modules, std::int64_t n, std::int64_t k) {
    return ModelLayer{.name = std::move(name), .modules = std::move(modules), .n = n, .k = k, .at = at};
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

}  // namespace

std::vector<ModelLayer> attention_layers(ModelFields& fields, const Architecture& architecture,
                                         RankShares& shares, const std::vector<std::int64_t>& at) {
  const bool is_latent = fields.has("kv_lora_rank") || fields.has("q_lora_rank");
  return is_latent ? latent(fields, shares, at) : grouped_query(fields, architecture, shares, at);
}

}  // namespace gemmtune
