// The canary bands before and after a guarded buffer (Placement::guarded).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"

namespace gemmtune {

/// No two neighbours are equal and none is 0x00 or 0xff, so that neither a fill nor a shifted copy passes for it.
std::vector<std::byte> guard_band(std::size_t bytes);

/// ok, or how many bytes of the bands around a buffer of `buffer_bytes` are other than guard_band()'s, on one side, and
/// how far the nearest one is.
Status check_guard_bands(std::span<const std::byte> before, std::span<const std::byte> after,
                         std::size_t buffer_bytes);

}  // namespace gemmtune
