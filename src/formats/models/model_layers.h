// The GEMMs of a model's layers on one rank of a tensor-parallel group, before M and the types are known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/models/architectures.h"
#include "formats/models/model_fields.h"
#include "problem/problem.h"

namespace gemmtune {

/// One GEMM: y[M, n] = x[M, k] · w[n, k]ᵀ; of the experts n is inter_dim of one half and k is model_dim.
struct ModelLayer {
  std::string name = {};                  // the layer as engines fuse it: qkv_proj, gate_up_proj
  std::vector<std::string> modules = {};  // its parts in the checkpoint, below "layers.N."; of lm_head itself
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::int64_t> at = {};  // the transformer layers that have it; empty: once, outside of them
  bool bias = false;
  bool by_name_only = false;         // lm_head, routers: quantized only where the config names them
  std::optional<MoeShape> moe = {};  // of the experts, without quant_type
};

/// Sizes divided among ranks. What does not divide is remembered, so that one error names all of it.
class RankShares {
 public:
  /// `whole_experts`: a rank has some of the experts, and all of each.
  RankShares(std::int64_t ranks, bool whole_experts) : ranks_(ranks), whole_experts_(whole_experts) {}

  std::int64_t ranks() const { return ranks_; }
  bool whole_experts() const { return whole_experts_; }
  std::int64_t of(std::string_view field, std::int64_t value);
  /// "path: num_attention_heads = 8, vocab_size = 1001: not divisible by --tp 3".
  Status status(const std::string& path) const;

 private:
  std::int64_t ranks_;
  bool whole_experts_;
  std::string refused_;
};

/// At most max_dimension + 1, which no problem takes: a product of a hostile config does not overflow.
std::int64_t bounded_product(std::int64_t a, std::int64_t b);

/// The transformer layers with softmax attention, and those with the architecture's mixer: by layer_types, else
/// by the architecture's own fields.
struct LayerTypes {
  std::vector<std::int64_t> attention;
  std::vector<std::int64_t> mixer;
};
LayerTypes layer_types(ModelFields& fields, const Architecture& architecture, std::int64_t layers);

/// QKV and output projection, or those of multi-head latent attention, in the layers `at`.
std::vector<ModelLayer> attention_layers(ModelFields& fields, const Architecture& architecture,
                                         RankShares& shares, const std::vector<std::int64_t>& at);
/// The projections of the layers without softmax attention.
std::vector<ModelLayer> mixer_layers(ModelFields& fields, const Architecture& architecture,
                                     RankShares& shares, const std::vector<std::int64_t>& at);
/// Dense (gate+)up and down; router, shared experts and experts of the layers that have them.
std::vector<ModelLayer> feed_forward_layers(ModelFields& fields, const Architecture& architecture,
                                            RankShares& shares, std::int64_t layers);

}  // namespace gemmtune
