// A mixture of experts as a user without gemmtune would run it: tokens are gathered by expert, and each
// expert is two calls of the library with the activation between them.
#pragma once

#include <memory>
#include <span>

#include "backends/backend.h"

namespace gemmtune::speed {

/// Of a bf16, gated, silu problem. Weights are the library's packed ones where `packed`, one expert after
/// another. `ids` are all routes that calls will have, for a kernel is made for each number of tokens that
/// they give an expert.
Result<std::unique_ptr<Kernel>> make_separate_experts(Device& device, const Problem& mixture, bool packed,
                                                      std::span<const std::vector<std::int32_t>> ids);

/// One expert's two multiplications of `m` tokens.
Problem first_of_expert(const Problem& mixture, std::int64_t m, bool packed);
Problem second_of_expert(const Problem& mixture, std::int64_t m, bool packed);

}  // namespace gemmtune::speed
