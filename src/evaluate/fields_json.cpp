#include "evaluate/fields_json.h"

#include <utility>
#include <vector>

#include "formats/json_text.h"

namespace gemmtune {

void to_json(Json& json, CacheMode mode) { json = to_string(mode); }

void from_json(const Json& json, CacheMode& mode) {
  const auto parsed = parse_cache_mode(json.get<std::string>());
  if (!parsed) throw Json::other_error::create(501, "no cache mode: " + json_line(json), &json);
  mode = *parsed;
}

void to_json(Json& json, AccuracyPolicy policy) { json = to_string(policy); }

void from_json(const Json& json, AccuracyPolicy& policy) {
  const auto text = json.get<std::string>();
  const auto parsed = parse_accuracy_policy(text);
  if (!parsed) throw Json::other_error::create(501, "no accuracy policy: " + text, &json);
  policy = *parsed;
}

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
