#include "evaluate/fields_json.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace gemmtune {

namespace {

/// A word that `parse` knows, or what the JSON library throws.
template <typename Value>
void read_word(const Json& json, std::optional<Value> (*parse)(std::string_view), std::string_view what,
               Value& value) {
  const auto text = json.get<std::string>();
  const auto parsed = parse(text);
  if (!parsed) throw Json::other_error::create(501, fmt::format("no {}: {}", what, text), &json);
  value = *parsed;
}

}  // namespace

void to_json(Json& json, CacheMode mode) { json = to_string(mode); }
void from_json(const Json& json, CacheMode& mode) { read_word(json, parse_cache_mode, "cache mode", mode); }

void to_json(Json& json, AccuracyPolicy policy) { json = to_string(policy); }
void from_json(const Json& json, AccuracyPolicy& policy) {
  read_word(json, parse_accuracy_policy, "accuracy policy", policy);
}

void to_json(Json& json, Team team) { json = to_string(team); }
void from_json(const Json& json, Team& team) { read_word(json, parse_any_team, "team", team); }

void to_json(Json& json, LaunchMode mode) { json = to_string(mode); }
void from_json(const Json& json, LaunchMode& mode) {
  read_word(json, parse_launch_mode, "launch mode", mode);
}

void to_json(Json& json, Objective objective) { json = to_string(objective); }
void from_json(const Json& json, Objective& objective) {
  read_word(json, parse_objective, "objective", objective);
}

void to_json(Json& json, RoutingKind kind) { json = to_string(kind); }
void from_json(const Json& json, RoutingKind& kind) { read_word(json, parse_routing_kind, "routing", kind); }
void to_json(Json& json, const std::optional<RoutingKind>& kind) { json = kind ? Json(*kind) : Json(); }
void from_json(const Json& json, std::optional<RoutingKind>& kind) {
  kind = json.is_null() ? std::nullopt : std::optional(json.get<RoutingKind>());
}

void to_json(Json& json, const std::shared_ptr<const RoutingTrace>& trace) {
  json = trace == nullptr ? Json() : Json(*trace);
}
void from_json(const Json& json, std::shared_ptr<const RoutingTrace>& trace) {
  trace = json.is_null() ? nullptr : std::make_shared<const RoutingTrace>(json.get<RoutingTrace>());
}

void to_json(Json& json, InitType type) { json = to_string(type); }
void from_json(const Json& json, InitType& type) { read_word(json, parse_init_type, "init type", type); }

void to_json(Json& json, const Config& config) { json = config.settings(); }

void from_json(const Json& json, Config& config) {
  config = {};
  for (const auto& [key, value] : json.get<std::vector<std::pair<std::string, std::string>>>())
    config.set(key, value);
}

void to_json(Json& json, const Problem& problem) { json = print(problem); }

void from_json(const Json& json, Problem& problem) {
  auto parsed = parse_problem(json.get<std::string>());
  if (!parsed.ok()) throw Json::other_error::create(501, parsed.message(), &json);
  problem = *parsed;
}

}  // namespace gemmtune
