// Architectures: what a model_type means where no field of the config says it. One row each in
// architectures.cpp; a model_type without a row is not guessed.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/models/model_fields.h"

namespace gemmtune {

/// Whether a projection has a bias: what the first field present says, else `otherwise`.
struct BiasRule {
  bool otherwise = false;
  std::array<const char*, 2> fields{};  // nullptr: none
};

/// What the layers without softmax attention are.
enum class Mixer { none, mamba, gated_delta_net };

struct Architecture {
  std::string_view model_type;
  bool gated = true;  // the feed-forward layer has a gate beside up
  BiasRule qkv_bias = {};
  BiasRule output_bias = {};
  BiasRule feed_forward_bias = {};
  bool lm_head = true;  // false: an encoder without logits
  bool lm_head_bias = false;
  int default_width = 0;         // of the dense layer where no field says it, in hidden_size; 0: a field must
  bool one_kv_head = false;      // where neither a count of KV heads nor multi_query is given
  Mixer mixer = Mixer::none;     // of the layers without softmax attention
  bool gated_attention = false;  // q_proj has a gate as wide as the queries, unless attn_output_gate says no
  // Modules of a layer in the checkpoint, below "layers.N."; empty: self_attn.q_proj, k_proj, v_proj …
  std::string_view qkv_module = {};
  std::string_view output_module = {};
  std::string_view up_module = {};
  std::string_view down_module = {};
  std::string_view block = "mlp";  // the feed-forward layer in the checkpoint, with router and experts
  std::string_view router = "gate";
  std::string_view shared = "shared_experts";
  std::array<std::string_view, 3> expert = {"gate_proj", "up_proj", "down_proj"};
  int shared_experts = 0;  // where n_shared_experts does not say them
  const char* dense_size = "intermediate_size";
  bool router_bias = false;
  bool expert_bias = false;
  bool swiglu = false;           // gpt-oss's clamped one, which its hidden_act does not say
  bool doweight_stage1 = false;  // the routing weight meets the expert's input
};

std::span<const Architecture> all_architectures();
/// nullptr where there is no row.
const Architecture* find_architecture(std::string_view model_type);
/// Of the config's model_type, else `assumed` (--assume) where that is not empty. Errors name the model_type,
/// and an `assumed` that has no row with all that have one.
Result<const Architecture*> architecture_of(ModelFields& fields, const std::string& assumed);

bool has_bias(ModelFields& fields, const BiasRule& rule);

}  // namespace gemmtune
