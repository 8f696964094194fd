// Dense and sparse feed-forward layers as vLLM and SGLang run them: gate and up fused
// (MergedColumnParallelLinear), the router replicated, each expert's hidden size divided among the ranks
// (FusedMoE), or with expert parallelism the experts.
#include <algorithm>
#include <array>
#include <utility>

#include "formats/models/model_layers.h"

namespace gemmtune {
namespace {

constexpr std::array<const char*, 4> expert_counts{"n_routed_experts", "num_local_experts", "num_experts",
                                                   "moe_num_experts"};

/// Which transformer layers have a dense feed-forward layer and which have experts.
struct LayerKinds {
  std::vector<std::int64_t> dense;
  std::vector<std::int64_t> sparse;
};

/// Every `step`-th layer: layers step − 1, 2·step − 1 …, as decoder_sparse_step counts them.
bool is_on_step(std::int64_t layer, std::int64_t step) { return (layer + 1) % step == 0; }

/// moe_layer_freq is a number (DeepSeek: layers 0, freq, 2·freq …) or one 0 or 1 a layer.
class LayerFrequency {
 public:
  LayerFrequency(ModelFields& fields, std::int64_t layers) {
    const Json* value = fields.find("moe_layer_freq");
    if (value == nullptr || !value->is_array()) {
      step_ = fields.number_or("moe_layer_freq", 1);
      return;
    }
    list_ = fields.numbers("moe_layer_freq");
    if (std::ssize(list_) == layers) return;
    fields.refuse(fields.named("moe_layer_freq", fmt::format("{} numbers, one a layer", layers)));
    list_.clear();
  }
  bool takes(std::int64_t layer) const {
    return list_.empty() ? layer % step_ == 0 : list_[static_cast<std::size_t>(layer)] != 0;
  }

 private:
  std::int64_t step_ = 1;
  std::vector<std::int64_t> list_;
};

/// Experts in every layer that all the fields present allow: first_k_dense_replace and moe_layer_freq
/// (DeepSeek), decoder_sparse_step and mlp_only_layers (Qwen), interleave_moe_layer_step (Llama 4),
/// moe_layer_start_index, moe_layer_end_index and moe_layer_interval (ERNIE), expert_layer_period and
/// expert_layer_offset (Jamba).
LayerKinds layer_kinds(ModelFields& fields, std::int64_t layers, bool has_experts) {
  const std::int64_t first = std::max(fields.number_or("first_k_dense_replace", 0, 0),
                                      fields.number_or("moe_layer_start_index", 0, 0));
  const std::int64_t last = fields.number_or("moe_layer_end_index", layers - 1, 0);
  const std::array<std::int64_t, 3> steps{fields.number_or("decoder_sparse_step", 1),
                                          fields.number_or("interleave_moe_layer_step", 1),
                                          fields.number_or("moe_layer_interval", 1)};
  const std::int64_t period = fields.number_or("expert_layer_period", 1);
  const std::int64_t offset = fields.number_or("expert_layer_offset", 0, 0);
  const LayerFrequency frequency(fields, layers);
  const std::vector<std::int64_t> dense_only = fields.numbers("mlp_only_layers");
  LayerKinds kinds;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool sparse = has_experts && layer >= first && layer <= last && frequency.takes(layer) &&
                        layer % period == offset &&
                        std::ranges::all_of(steps, [layer](auto step) { return is_on_step(layer, step); }) &&
                        std::find(dense_only.begin(), dense_only.end(), layer) == dense_only.end();
    (sparse ? kinds.sparse : kinds.dense).push_back(layer);
  }
  return kinds;
}

/// Gate+up and down of `width` hidden elements of one rank.
std::vector<ModelLayer> gated_pair(const std::string& name, const std::string& modules, std::int64_t width,
                                   std::int64_t hidden, const std::vector<std::int64_t>& at) {
  ModelLayer gate_up{.name = name + "gate_up_proj",
                     .modules = {modules + ".gate_proj", modules + ".up_proj"},
                     .n = bounded_product(2, width),
                     .k = hidden,
                     .at = at};
  ModelLayer down{
      .name = name + "down_proj", .modules = {modules + ".down_proj"}, .n = hidden, .k = width, .at = at};
  return {std::move(gate_up), std::move(down)};
}

void append(std::vector<ModelLayer>& list, std::vector<ModelLayer> more) {
  for (ModelLayer& layer : more) list.push_back(std::move(layer));
}

Activation activation_of(ModelFields& fields, const Architecture& architecture) {
  if (architecture.swiglu) return Activation::swiglu;
  const std::string word = fields.text("hidden_act");
  if (word.empty() || word == "silu" || word == "swish") return Activation::silu;
  if (word.starts_with("gelu")) return Activation::gelu;
  if (word.starts_with("swiglu")) return Activation::swiglu;
  fields.refuse(fields.named("hidden_act", "silu, gelu or swiglu"));
  return Activation::silu;
}

/// The model's name of the count, nullptr where it has no experts (or one, which is a dense layer).
const char* expert_count_field(ModelFields& fields) {
  for (const char* key : expert_counts) {
    if (fields.number_or(key, 0, 0) > 1) return key;
  }
  return nullptr;
}

struct Experts {
  std::int64_t count = 0;
  std::int64_t topk = 0;
};

Experts experts_of(ModelFields& fields, const char* count_field) {
  Experts experts;
  experts.count = fields.number({count_field});
  experts.topk = fields.number({"num_experts_per_tok", "num_experts_per_token", "moe_k"});
  if (experts.topk > experts.count) {
    fields.refuse(fmt::format("{}: num_experts_per_tok = {}, expected at most {} = {}", fields.path(),
                              experts.topk, count_field, experts.count));
  }
  return experts;
}

/// Hidden elements of all shared experts together, before they are divided; 0 where there are none.
std::int64_t shared_size(ModelFields& fields, const Architecture& architecture, std::int64_t expert_size) {
  if (fields.has("shared_expert_intermediate_size")) {
    return fields.number_or("shared_expert_intermediate_size", 0, 0);
  }
  return bounded_product(fields.number_or("n_shared_experts", architecture.shared_experts, 0), expert_size);
}

/// The checkpoint's name of a part of the feed-forward layer.
std::string module_of(const Architecture& architecture, std::string_view part) {
  return fmt::format("{}.{}", architecture.block, part);
}

ModelLayer router_layer(const Architecture& architecture, std::int64_t experts, std::int64_t hidden,
                        const std::vector<std::int64_t>& at) {
  return {.name = "router",
          .modules = {module_of(architecture, architecture.router)},
          .n = experts,
          .k = hidden,
          .at = at,
          .bias = architecture.router_bias,
          .by_name_only = true};
}

ModelLayer expert_layer(ModelFields& fields, const Architecture& architecture, const Experts& experts,
                        const std::vector<std::int64_t>& at) {
  ModelLayer layer{.name = "experts", .at = at, .bias = architecture.expert_bias};
  for (const std::string_view part : architecture.expert) {
    layer.modules.push_back(module_of(architecture, fmt::format("experts.0.{}", part)));
  }
  // Both are at most max_dimension, int32's largest.
  layer.moe = MoeShape{.experts = static_cast<std::int32_t>(experts.count),
                       .topk = static_cast<std::int32_t>(experts.topk),
                       .activation = activation_of(fields, architecture),
                       .gated = architecture.gated,
                       .doweight_stage1 = architecture.doweight_stage1};
  return layer;
}

std::vector<ModelLayer> sparse_layers(ModelFields& fields, const Architecture& architecture,
                                      RankShares& shares, const char* count_field,
                                      const std::vector<std::int64_t>& at) {
  const std::int64_t hidden = fields.number({"hidden_size"});
  const Experts experts = experts_of(fields, count_field);
  // Mixtral, gpt-oss and Llama 4 have one size, the experts'.
  const char* size_field =
      fields.has("moe_intermediate_size") ? "moe_intermediate_size" : "intermediate_size";
  const std::int64_t expert_size = fields.number({size_field});

  std::vector<ModelLayer> list{router_layer(architecture, experts.count, hidden, at)};
  if (const std::int64_t shared = shared_size(fields, architecture, expert_size); shared > 0) {
    const std::string modules = module_of(architecture, architecture.shared);
    const bool own_size = fields.has("shared_expert_intermediate_size");
    const char* shared_field =
        own_size ? "shared_expert_intermediate_size" : "n_shared_experts * moe_intermediate_size";
    append(list, gated_pair("shared_", modules, shares.of(shared_field, shared), hidden, at));
    if (own_size) {  // Qwen weighs the shared expert by a learnt gate
      list.push_back({.name = "shared_expert_gate",
                      .modules = {module_of(architecture, "shared_expert_gate")},
                      .n = 1,
                      .k = hidden,
                      .at = at,
                      .by_name_only = true});
    }
  }
  list.push_back(expert_layer(fields, architecture, experts, at));
  if (shares.whole_experts()) {
    list.back().moe->experts = static_cast<std::int32_t>(shares.of(count_field, experts.count));
    if (list.back().moe->experts < experts.topk) {
      fields.refuse(
          fmt::format("{}: {} = {} with --expert-parallel and --tp {}: a rank has fewer experts than "
                      "the {} of a token",
                      fields.path(), count_field, experts.count, shares.ranks(), experts.topk));
    }
    list.back().n = expert_size;
  } else {
    list.back().n = shares.of(size_field, expert_size);
  }
  list.back().k = hidden;
  return list;
}

/// Hidden elements of the dense layer, before they are divided, and the field that says them.
std::pair<const char*, std::int64_t> dense_size(ModelFields& fields, const Architecture& architecture,
                                                std::int64_t hidden) {
  for (const char* key :
       {architecture.dense_size, "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"}) {
    if (fields.has(key)) return {key, fields.number({key})};
  }
  if (architecture.default_width == 0) return {"intermediate_size", fields.number({"intermediate_size"})};
  return {"hidden_size", bounded_product(architecture.default_width, hidden)};
}

std::vector<ModelLayer> dense_layers(ModelFields& fields, const Architecture& architecture,
                                     RankShares& shares, const std::vector<std::int64_t>& at) {
  const std::int64_t hidden = fields.number({"hidden_size", "n_embd"});
  const auto [field, size] = dense_size(fields, architecture, hidden);
  const std::int64_t width = shares.of(field, size);
  std::vector<ModelLayer> list = gated_pair("", std::string(architecture.block), width, hidden, at);
  if (!architecture.gated) {
    list.front().name = "up_proj";
    list.front().n = width;
    list.front().modules = {module_of(architecture, "up_proj")};
    if (!architecture.up_module.empty()) list.front().modules = {std::string(architecture.up_module)};
    if (!architecture.down_module.empty()) list.back().modules = {std::string(architecture.down_module)};
  }
  for (ModelLayer& layer : list) layer.bias = has_bias(fields, architecture.feed_forward_bias);
  return list;
}

}  // namespace

std::vector<ModelLayer> feed_forward_layers(ModelFields& fields, const Architecture& architecture,
                                            RankShares& shares, std::int64_t layers) {
  const char* count_field = expert_count_field(fields);
  const LayerKinds kinds = layer_kinds(fields, layers, count_field != nullptr);
  std::vector<ModelLayer> list;
  if (!kinds.dense.empty()) append(list, dense_layers(fields, architecture, shares, kinds.dense));
  if (!kinds.sparse.empty()) {
    append(list, sparse_layers(fields, architecture, shares, count_field, kinds.sparse));
  }
  return list;
}

}  // namespace gemmtune
