#include "candidates/space.h"

#include <algorithm>
#include <limits>

namespace gemmtune {

std::vector<std::string> Space::keys() const {
  std::vector<std::string> keys;
  keys.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) keys.push_back(parameter.key);
  return keys;
}

std::int64_t Space::points() const {
  if (listed_) return static_cast<std::int64_t>(listed_->size());
  std::int64_t points = 1;
  for (const Parameter& parameter : parameters_) {
    const auto count = static_cast<std::int64_t>(parameter.values.size());
    if (count == 0) continue;
    if (points > std::numeric_limits<std::int64_t>::max() / count)
      return std::numeric_limits<std::int64_t>::max();
    points *= count;
  }
  return points;
}

std::string Space::first_refusal(const Config& config, bool search_rules) const {
  for (const Constraint& constraint : constraints_) {
    if (constraint.rule == Rule::search && !search_rules) continue;
    if (std::string reason = constraint.refusal(config); !reason.empty()) return reason;
  }
  return {};
}

std::string Space::refusal(const Config& config) const { return first_refusal(config, true); }
std::string Space::build_refusal(const Config& config) const { return first_refusal(config, false); }

std::size_t Space::parameters_before(const Constraint& constraint) const {
  if (constraint.reads.empty()) return parameters_.size();
  std::size_t before = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& reads = constraint.reads;
    if (std::find(reads.begin(), reads.end(), parameters_[i].key) != reads.end()) before = i + 1;
  }
  return before;
}

std::vector<Config> Space::enumerate_listed(std::size_t limit) const {
  std::vector<Config> configs;
  for (const Config& config : *listed_) {
    if (configs.size() < limit && refusal(config).empty()) configs.push_back(config);
  }
  return configs;
}

std::vector<Config> Space::enumerate(std::size_t limit) const {
  if (listed_) return enumerate_listed(limit);
  std::vector<std::vector<const Constraint*>> asked_after(parameters_.size() + 1);
  for (const Constraint& constraint : constraints_)
    asked_after[parameters_before(constraint)].push_back(&constraint);
  const auto allowed = [&](const Config& config, std::size_t count) {
    return std::all_of(asked_after[count].begin(), asked_after[count].end(),
                       [&](const Constraint* constraint) { return constraint->refusal(config).empty(); });
  };
  std::vector<Config> configs;
  const std::function<void(const Config&, std::size_t)> extend = [&](const Config& begun, std::size_t count) {
    if (configs.size() >= limit || !allowed(begun, count)) return;
    if (count == parameters_.size()) {
      configs.push_back(begun);
      return;
    }
    if (parameters_[count].values.empty()) extend(begun, count + 1);
    Config longer = begun;
    for (const std::string& value : parameters_[count].values) {
      longer.set(parameters_[count].key, value);
      extend(longer, count + 1);
    }
  };
  extend({}, 0);
  return configs;
}

}  // namespace gemmtune
