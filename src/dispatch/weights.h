// Weights that are packed once: which layout a table was tuned for, and the packing.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "dispatch/plan.h"
#include "dispatch/table_set.h"

namespace gemmtune {

/// The layout of the table's rows for this weight on this device (operation, N, K and types of `problem`; M,
/// bias and layout are ignored): the one that most rows whose kernel can run here read; plain where there is
/// none.
WeightLayout tuned_weight_layout(const Device& device, const TableSet& tables, const Problem& problem);

/// Bytes of the weight in `layout`, which must be a packed one.
Result<std::size_t> packed_weight_bytes(const Device& device, const Problem& problem, WeightLayout layout);
Status pack_weight(Device& device, const Problem& problem, WeightLayout layout, const void* plain,
                   void* packed);
/// `unsupported` where the device has no inverse of the layout.
Status unpack_weight(const Device& device, const Problem& problem, WeightLayout layout, const void* packed,
                     void* plain);

}  // namespace gemmtune
