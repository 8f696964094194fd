// Routing traces: which experts recorded tokens were sent to. docs/formats.md, "Routing traces".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "verify/routing.h"

namespace gemmtune {

/// Errors name file, line, value and what was expected.
Result<std::shared_ptr<const RoutingTrace>> read_routing_trace(const std::string& path);
/// The same from memory; `source` stands for the path.
Result<std::shared_ptr<const RoutingTrace>> parse_routing_trace(const std::string& source,
                                                                std::string_view content);

}  // namespace gemmtune
