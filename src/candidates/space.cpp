#include "candidates/space.h"

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
    if (count == 0) return 0;
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

std::vector<Config> Space::enumerate(std::size_t limit) const {
  std::vector<Config> configs;
  if (points() == 0) return configs;
  if (listed_) {
    for (const Config& config : *listed_) {
      if (configs.size() < limit && refusal(config).empty()) configs.push_back(config);
    }
    return configs;
  }
  std::vector<std::size_t> position(parameters_.size(), 0);
  while (configs.size() < limit) {
    Config config;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      config.set(parameters_[i].key, parameters_[i].values[position[i]]);
    }
    if (refusal(config).empty()) configs.push_back(std::move(config));
    std::size_t i = parameters_.size();
    while (i > 0 && ++position[i - 1] == parameters_[i - 1].values.size()) position[--i] = 0;
    if (i == 0) break;
  }
  return configs;
}

}  // namespace gemmtune
