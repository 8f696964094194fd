#include "cli/shared/routing_options.h"

#include <algorithm>

#include "formats/routing/routing_trace_file.h"

namespace gemmtune::cli {

Status read_routings(const std::string& routing, const std::string& trace, Policy& policy) {
  constexpr std::string_view prefix = "trace:";
  std::string path = trace;
  if (routing.starts_with(prefix)) {
    path = routing.substr(prefix.size());
    if (path.empty()) return Status::invalid("--routing {}: expected a file behind 'trace:'", routing);
    if (!trace.empty() && trace != path)
      return Status::invalid("--routing {} and --routing-trace {}: expected one file", routing, trace);
    policy.routing = RoutingKind::trace;
  } else {
    const auto kind = parse_routing_kind(routing);
    if (!kind || *kind == RoutingKind::trace)
      return Status::invalid("--routing {}: expected uniform, zipf or trace:FILE", routing);
    policy.routing = *kind;
  }
  if (path.empty()) return {};
  GEMMTUNE_TRY(policy.routing_trace, read_routing_trace(path));
  return {};
}

Status check_routings(const Policy& policy, const std::vector<ShapeRow>& shapes) {
  const auto any = [&](const auto& fits) {
    return std::ranges::any_of(shapes, [&](const ShapeRow& shape) { return fits(shape.problem); });
  };
  if (policy.routing_trace != nullptr) {
    const RoutingTrace& trace = *policy.routing_trace;
    if (any([&](const Problem& problem) { return trace.is_of(problem); })) return {};
    return Status::invalid("routing trace {}: of {} experts and topk {}, which no shape has", trace.name,
                           trace.experts, trace.topk);
  }
  if (policy.routing == RoutingKind::uniform || any(is_mixture)) return {};
  return Status::invalid("--routing {}: no shape is of fused_moe", to_string(policy.routing));
}

}  // namespace gemmtune::cli
