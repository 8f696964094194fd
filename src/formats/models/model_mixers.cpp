// Layers without softmax attention: which they are, and their projections as vLLM splits them (MambaMixer,
// Qwen3NextGatedDeltaNet).
#include <algorithm>
#include <array>

#include "base/rounding.h"
#include "formats/models/model_layers.h"

namespace gemmtune {
namespace {

/// The word of layer_types for the layers of a mixer; empty: the architecture has none.
std::string_view word_of(Mixer mixer) {
  switch (mixer) {
    case Mixer::mamba:
      return "mamba";
    case Mixer::gated_delta_net:
      return "linear_attention";
    case Mixer::none:
      break;
  }
  return {};
}

bool is_attention(std::string_view word) {
  constexpr std::array<std::string_view, 4> words{"full_attention", "sliding_attention", "chunked_attention",
                                                  "attention"};
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// nullopt: neither of the two.
std::optional<bool> has_attention(const Json& type, const Architecture& architecture) {
  if (!type.is_string()) return std::nullopt;
  const auto& word = type.get_ref<const std::string&>();
  if (is_attention(word)) return true;
  return !word.empty() && word == word_of(architecture.mixer) ? std::optional(false) : std::nullopt;
}

LayerTypes types_of_list(ModelFields& fields, const Architecture& architecture, std::int64_t layers) {
  LayerTypes types;
  const Json& list = *fields.find("layer_types");
  bool good = list.is_array() && std::ssize(list) == layers;
  for (std::int64_t layer = 0; good && layer < layers; ++layer) {
    const auto attention = has_attention(list[static_cast<std::size_t>(layer)], architecture);
    good = attention.has_value();
    if (good) (*attention ? types.attention : types.mixer).push_back(layer);
  }
  if (good) return types;
  const std::string_view word = word_of(architecture.mixer);
  fields.refuse(
      fields.named("layer_types",
                   fmt::format("{} of full_attention, sliding_attention, chunked_attention{}{}: the GEMMs of "
                               "other layers of {} are not known",
                               layers, word.empty() ? "" : ", ", word, architecture.model_type)));
  return {};
}

std::vector<ModelLayer> mamba(ModelFields& fields, RankShares& shares, const std::vector<std::int64_t>& at) {
  const std::int64_t hidden = fields.number({"hidden_size"});
  const std::int64_t inner =
      shares.of("mamba_expand * hidden_size", bounded_product(fields.number_or("mamba_expand", 2), hidden));
  const Json* rank_field = fields.find("mamba_dt_rank");
  const bool computed = rank_field == nullptr || *rank_field == "auto";
  const std::int64_t rank = computed ? ceil_div(hidden, 16) : fields.number({"mamba_dt_rank"});
  const std::int64_t state = fields.number_or("mamba_d_state", 16);
  const bool bias = fields.flag("mamba_proj_bias");
  const auto layer = [&](const char* name, std::int64_t n, std::int64_t k, bool biased) {
    return ModelLayer{.name = std::string("mamba_") + name,
                      .modules = {std::string("mamba.") + name},
                      .n = n,
                      .k = k,
                      .at = at,
                      .bias = biased};
  };
  // The scan adds dt_proj's bias.
  return {layer("in_proj", bounded_product(2, inner), hidden, bias),
          layer("x_proj", bounded_product(2, state) + rank, inner, false),
          layer("dt_proj", inner, rank, false), layer("out_proj", hidden, inner, bias)};
}

std::vector<ModelLayer> gated_delta_net(ModelFields& fields, RankShares& shares,
                                        const std::vector<std::int64_t>& at) {
  const std::int64_t hidden = fields.number({"hidden_size"});
  const std::int64_t key_heads = shares.of("linear_num_key_heads", fields.number({"linear_num_key_heads"}));
  const std::int64_t value_heads =
      shares.of("linear_num_value_heads", fields.number({"linear_num_value_heads"}));
  const std::int64_t keys = bounded_product(key_heads, fields.number({"linear_key_head_dim"}));
  const std::int64_t values = bounded_product(value_heads, fields.number({"linear_value_head_dim"}));
  const auto layer = [&](const char* name, const char* module, std::int64_t n, std::int64_t k) {
    return ModelLayer{
        .name = name, .modules = {std::string("linear_attn.") + module}, .n = n, .k = k, .at = at};
  };
  return {layer("in_proj_qkvz", "in_proj_qkvz", bounded_product(2, keys + values), hidden),
          layer("in_proj_ba", "in_proj_ba", bounded_product(2, value_heads), hidden),
          layer("linear_out_proj", "out_proj", hidden, values)};
}

}  // namespace

LayerTypes layer_types(ModelFields& fields, const Architecture& architecture, std::int64_t layers) {
  if (fields.has("layer_types")) return types_of_list(fields, architecture, layers);
  std::int64_t period = 1;
  std::int64_t offset = 0;
  if (architecture.mixer == Mixer::mamba) {
    period = fields.number({"attn_layer_period"});
    offset = fields.number_or("attn_layer_offset", 0, 0);
  } else if (architecture.mixer == Mixer::gated_delta_net) {
    period = fields.number({"full_attention_interval"});
    offset = period - 1;
  }
  LayerTypes types;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    (layer % period == offset ? types.attention : types.mixer).push_back(layer);
  }
  return types;
}

std::vector<ModelLayer> mixer_layers(ModelFields& fields, const Architecture& architecture,
                                     RankShares& shares, const std::vector<std::int64_t>& at) {
  if (at.empty()) return {};
  return architecture.mixer == Mixer::mamba ? mamba(fields, shares, at) : gated_delta_net(fields, shares, at);
}

}  // namespace gemmtune
