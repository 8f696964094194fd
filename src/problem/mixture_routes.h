// Which expert each slot of a token of a mixture is of, and with what weight: what operands name, and the shared experts behind
// it, which they do not name. A slot may be empty: its expert is another rank's, or the token is padding.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune {

/// The expert of a slot that adds nothing, whatever its weight. Kernels of GPUs know it by the number too.
inline constexpr std::int32_t empty_slot = -1;

/// A pair is a token's number times topk plus the slot. Owns nothing.
class MixtureRoutes {
 public:
  /// ids and weights: [tokens, routed_topk()].
  MixtureRoutes(const MoeShape& shape, const std::int32_t* ids, const float* weights)
      : topk_(shape.topk),
        routed_topk_(shape.routed_topk()),
        routed_experts_(shape.routed_experts()),
        ids_(ids),
        weights_(weights) {}

  /// empty_slot, or an expert.
  std::int32_t expert(std::int64_t pair) const {
    if (topk_ == routed_topk_) return ids_[pair];
    const std::int64_t slot = pair % topk_;
    if (slot < routed_topk_) return ids_[pair / topk_ * routed_topk_ + slot];
    return static_cast<std::int32_t>(routed_experts_ + slot - routed_topk_);
  }
  float weight(std::int64_t pair) const {
    if (topk_ == routed_topk_) return weights_[pair];
    const std::int64_t slot = pair % topk_;
    return slot < routed_topk_ ? weights_[pair / topk_ * routed_topk_ + slot] : 1.0F;
  }
  /// The error names the first id that is neither a routed expert's nor empty_slot.
  Status check(std::int64_t tokens) const {
    for (std::int64_t i = 0; i < tokens * routed_topk_; ++i)
      if (ids_[i] < empty_slot || ids_[i] >= routed_experts_)
        return Status::invalid("topk_ids[{}][{}] = {}, expected 0 to {}, or {} for an empty slot",
                               i / routed_topk_, i % routed_topk_, ids_[i], routed_experts_ - 1, empty_slot);
    return {};
  }

 private:
  std::int64_t topk_;
  std::int64_t routed_topk_;
  std::int64_t routed_experts_;
  const std::int32_t* ids_;
  const float* weights_;
};

}  // namespace gemmtune
