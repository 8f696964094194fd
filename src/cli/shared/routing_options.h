// Routings of mixtures on the command line: the same words on tune and bench.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shapes/shape_list.h"
#include "measure/policy.h"

namespace gemmtune::cli {

/// The help of --routing.
inline constexpr const char* routing_help =
    "Where a mixture's tokens go: uniform, zipf (the r-th most popular expert in proportion to 1/r) or "
    "trace:FILE, recorded tokens";

/// --routing and --routing-trace, a file or empty; traces are read. Both may name one file, not two.
Status read_routings(const std::string& routing, const std::string& trace, Policy& policy);
/// An error where a routing or a trace was asked for and no shape is a mixture that it fits.
Status check_routings(const Policy& policy, const std::vector<ShapeRow>& shapes);

}  // namespace gemmtune::cli
