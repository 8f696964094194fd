// The reference of fused_moe. Inside verify/ only.
#pragma once

#include "verify/reference.h"

namespace gemmtune {

/// Tokens that moe_reference() computes: as many as the flops allow, at least the sampled rows.
std::size_t sampled_token_count(const Problem& problem, const ReferenceOptions& options);

/// `unsupported` for an activation that has no definition here.
Result<Reference> moe_reference(const Problem& problem, const HostOperands& operands,
                                const ReferenceOptions& options);

}  // namespace gemmtune
