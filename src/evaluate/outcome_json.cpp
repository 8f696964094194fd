#include "evaluate/outcome_json.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "formats/json.h"

namespace gemmtune {
namespace {

/// Written if they were measured.
constexpr std::array<std::pair<const char*, double MeasuredError::*>, 3> error_members{
    {{"rms", &MeasuredError::rms}, {"max", &MeasuredError::max}, {"one_sign", &MeasuredError::one_sign}}};

/// A count that is only written where it is above 0.
int count_from_json(const Json& json) { return json.is_number_integer() ? json.get<int>() : 0; }

double number_from_json(const Json& json) {
  return json.is_number() ? json.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// The member, or null where the object has none.
const Json& member(const Json& object, const char* name) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

/// False where a round is none of `candidates` numbers.
bool read_rounds(const Json& json, std::size_t candidates, std::vector<std::vector<double>>& rounds) {
  for (const Json& value : json) {
    auto round = numbers_from_json(value);
    if (!round || round->size() != candidates) return false;
    rounds.push_back(std::move(*round));
  }
  return true;
}

}  // namespace

Json to_json(const std::vector<double>& numbers) { return Json(numbers); }

Json to_json(const Outcome& outcome) {
  Json json;
  json["kind"] = to_string(outcome.kind);
  json["us"] = to_json(outcome.microseconds);
  json["err"] = outcome.err_ratio;
  json["same"] = outcome.deterministic;
  if (!outcome.reason.empty()) json["reason"] = outcome.reason;
  json.update(to_json(outcome.error));
  json.update(to_json(outcome.bits));
  return json;
}

Json to_json(const MeasuredError& error) {
  Json json = Json::object();
  for (const auto& [name, member] : error_members) {
    if (std::isfinite(error.*member)) json[name] = error.*member;
  }
  return json;
}

Json to_json(const BitClass& bits) {
  Json json = Json::object();
  if (!bits.id.empty()) json["bits"] = bits.id;
  if (!bits.reason.empty()) json["no_bits"] = bits.reason;
  return json;
}

Json to_json(const FinalsResult& result) {
  Json json;
  json["outcomes"] = Json::array();
  json["times"] = Json::array();
  json["same_ratios"] = to_json(result.same_ratios);
  if (result.quietness.repeated > 0) json["repeated"] = result.quietness.repeated;
  if (result.quietness.disturbed > 0) json["disturbed"] = result.quietness.disturbed;
  for (const Outcome& outcome : result.outcomes) json["outcomes"].push_back(to_json(outcome));
  for (const auto& round : result.times) json["times"].push_back(to_json(round));
  for (const auto& round : result.joules) json["joules"].push_back(to_json(round));
  if (result.routing) json["routing"] = to_string(*result.routing);
  if (result.roof_microseconds > 0) json["roof_us"] = result.roof_microseconds;
  return json;
}

std::optional<std::vector<double>> numbers_from_json(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& value : json) numbers.push_back(number_from_json(value));
  return numbers;
}

std::optional<std::vector<std::string>> texts_from_json(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<std::string> texts;
  for (const Json& value : json) {
    if (!value.is_string()) return std::nullopt;
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

MeasuredError error_from_json(const Json& json) {
  MeasuredError error;
  for (const auto& [name, field] : error_members) error.*field = number_from_json(member(json, name));
  return error;
}

BitClass bits_from_json(const Json& json) {
  BitClass bits;
  if (const Json& id = member(json, "bits"); id.is_string()) bits.id = id;
  if (const Json& reason = member(json, "no_bits"); reason.is_string()) bits.reason = reason;
  return bits;
}

std::optional<Outcome> outcome_from_json(const Json& json) {
  const Json& kind = member(json, "kind");
  if (!kind.is_string()) return std::nullopt;
  const auto known = parse_outcome_kind(kind.get<std::string>());
  auto samples = numbers_from_json(member(json, "us"));
  if (!known || !samples) return std::nullopt;
  Outcome outcome;
  outcome.kind = *known;
  outcome.microseconds = std::move(*samples);
  outcome.err_ratio = number_from_json(member(json, "err"));
  outcome.deterministic = member(json, "same") != Json(false);
  outcome.error = error_from_json(json);
  outcome.bits = bits_from_json(json);
  if (const Json& reason = member(json, "reason"); reason.is_string()) outcome.reason = reason;
  return outcome;
}

std::optional<FinalsResult> finals_from_json(const Json& json) {
  FinalsResult result;
  const Json& outcomes = member(json, "outcomes");
  const Json& times = member(json, "times");
  auto same_ratios = numbers_from_json(member(json, "same_ratios"));
  if (!outcomes.is_array() || !times.is_array() || !same_ratios) return std::nullopt;
  for (const Json& value : outcomes) {
    auto outcome = outcome_from_json(value);
    if (!outcome) return std::nullopt;
    result.outcomes.push_back(std::move(*outcome));
  }
  if (!read_rounds(times, result.outcomes.size(), result.times)) return std::nullopt;
  if (json.contains("joules") && !read_rounds(json["joules"], result.outcomes.size(), result.joules))
    return std::nullopt;
  result.same_ratios = std::move(*same_ratios);
  if (const Json& routing = member(json, "routing"); !routing.is_null()) {
    result.routing = parse_routing_kind(routing.is_string() ? routing.get<std::string>() : std::string());
    if (!result.routing) return std::nullopt;
  }
  if (const Json& roof = member(json, "roof_us"); roof.is_number()) result.roof_microseconds = roof;
  result.quietness = {static_cast<int>(result.times.size()), count_from_json(member(json, "disturbed")),
                      count_from_json(member(json, "repeated"))};
  return result;
}

}  // namespace gemmtune
