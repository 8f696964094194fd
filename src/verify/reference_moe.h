// The reference of fused_moe. Inside verify/ only.
#pragma once

#include "verify/reference.h"

namespace gemmtune {

/// `unsupported` for an activation that has no definition here.
Result<Reference> moe_reference(const Problem& problem, const HostOperands& operands,
                                const ReferenceOptions& options);

}  // namespace gemmtune
