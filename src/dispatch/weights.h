// Packing of weights, checked.
#pragma once

#include <cstddef>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune {

/// Bytes of the weight in `layout`, which must be a packed one.
Result<std::size_t> packed_weight_bytes(const Device& device, const Problem& problem, WeightLayout layout);
Status pack_weight(Device& device, const Problem& problem, WeightLayout layout, const void* plain,
                   void* packed);
/// `unsupported` where the device has no inverse of the layout.
Status unpack_weight(const Device& device, const Problem& problem, WeightLayout layout, const void* packed,
                     void* plain);

}  // namespace gemmtune
