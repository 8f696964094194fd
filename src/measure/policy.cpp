#include "measure/policy.h"

#include <fmt/format.h>

#include "backends/backend.h"
#include "base/enumerators.h"

namespace gemmtune {

constexpr EnumeratorNames<CacheMode, 3> cache_names({{CacheMode::warm, "warm"},
                                                     {CacheMode::weights_cold, "weights-cold"},
                                                     {CacheMode::cold, "cold"}});
std::string_view to_string(CacheMode mode) { return cache_names.of(mode); }
std::optional<CacheMode> parse_cache_mode(std::string_view text) {
  return cache_names.find(text == "weights_cold" ? "weights-cold" : text);
}

constexpr EnumeratorNames<LaunchMode, 2> launch_names({{LaunchMode::graph, "graph"},
                                                       {LaunchMode::eager, "eager"}});
std::string_view to_string(LaunchMode mode) { return launch_names.of(mode); }
std::optional<LaunchMode> parse_launch_mode(std::string_view text) { return launch_names.find(text); }

constexpr EnumeratorNames<Objective, 3> objective_names({{Objective::time, "time"},
                                                         {Objective::energy, "energy"},
                                                         {Objective::edp, "edp"}});
std::string_view to_string(Objective objective) { return objective_names.of(objective); }
std::optional<Objective> parse_objective(std::string_view text) { return objective_names.find(text); }

Policy default_policy(const DeviceInfo& device) {
  Policy policy;
  policy.sample_microseconds = traits_of(device).sample_microseconds;
  policy.pass_factor = traits_of(device).pass_factor;
  policy.team = device.team;
  return policy;
}

std::vector<Routing> Policy::other_routings(const Problem& problem) const {
  std::vector<Routing> others;
  if (!is_mixture(problem)) return others;
  for (const RoutingKind kind : {RoutingKind::uniform, RoutingKind::zipf, RoutingKind::trace}) {
    const bool has_tokens = kind != RoutingKind::trace || (routing_trace && routing_trace->is_of(problem));
    if (kind != routing && has_tokens) others.push_back(routing_of(kind));
  }
  return others;
}

std::string Policy::text() const {
  // The pool's limit, rounds, seed and the rules of choosing are left out: they change how sure a time is,
  // not what it is a time of. data=normal1 names the generator of verify/inputs.cpp; a change there that
  // changes times raises it.
  std::string text =
      fmt::format("cache={} warmup={} iters={} sample_us={} data={}", to_string(cache), warmup, iterations,
                  sample_microseconds, init == InitType::randn ? "normal1" : to_string(init));
  if (accuracy != AccuracyPolicy::keep) text += fmt::format(" accuracy={}", to_string(accuracy));
  if (launch != LaunchMode::graph) text += fmt::format(" launch={}", to_string(launch));
  if (rotating_mb > 0) text += fmt::format(" rotating_mb={}", rotating_mb);
  if (objective != Objective::time) text += fmt::format(" objective={}", to_string(objective));
  if (routing != RoutingKind::uniform) text += fmt::format(" routing={}", routing_of(routing).text());
  if (routing != RoutingKind::trace && routing_trace)
    text += fmt::format(" routing_trace={}", routing_trace->text());
  if (!team.empty()) text += fmt::format(" team={}", team);
  if (parallel_pass) text += " between=parallel";
  if (processor_time) text += " clock=processor";
  return text;
}

}  // namespace gemmtune
