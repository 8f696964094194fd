#include "candidates/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace gemmtune {
namespace {

bool holds(const std::vector<std::string>& values, std::string_view value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool is_tried(const Parameter& parameter, const Config& config) {
  return !parameter.chosen || holds(parameter.values, config.word(parameter.key, parameter.absent));
}

/// Of the counts of values from the parameter `first` on.
std::int64_t product(const std::vector<Parameter>& parameters, std::size_t first) {
  std::int64_t points = 1;
  for (std::size_t i = first; i < parameters.size(); ++i) {
    const auto count = static_cast<std::int64_t>(parameters[i].values.size());
    if (count == 0 && !parameters[i].chosen) continue;
    if (count != 0 && points > std::numeric_limits<std::int64_t>::max() / count)
      return std::numeric_limits<std::int64_t>::max();
    points *= count;
  }
  return points;
}

}  // namespace

bool NumberRange::holds(std::string_view text) const {
  const auto number = parse_integer(text);
  if (!number || *number < first || *number > last || std::to_string(*number) != text) return false;
  const auto distance = static_cast<std::uint64_t>(*number) - static_cast<std::uint64_t>(first);
  return distance % static_cast<std::uint64_t>(step) == 0;
}

std::string NumberRange::text() const {
  if (is_any()) return "any number";
  return fmt::format("{} to {}{}", first, last, step == 1 ? "" : fmt::format(" in steps of {}", step));
}

bool Parameter::holds(std::string_view value) const {
  return std::find(values.begin(), values.end(), value) != values.end() || (range && range->holds(value));
}

std::string Parameter::allowed_text() const {
  const std::string listed = values.empty() ? absent : fmt::format("{}", fmt::join(values, ", "));
  return range ? fmt::format("{}, or {}", listed, range->text()) : listed;
}

Constraint split_k_divides(std::int64_t k, const std::string& key, std::int64_t block_k) {
  return {"split-K divides",
          [k, key, block_k](const Config& config) -> std::string {
            const std::int64_t splits = config.number(key, 1);
            return splits > 1 && k % (splits * block_k) != 0 ? key + " does not divide k evenly" : "";
          },
          Rule::search,
          {key},
          false};
}

std::vector<std::string> Space::keys() const {
  std::vector<std::string> keys;
  keys.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) keys.push_back(parameter.key);
  return keys;
}

std::int64_t Space::points() const {
  return listed_ ? static_cast<std::int64_t>(listed_->size()) : product(parameters_, 0);
}

void Space::choose(const std::string& key, const std::vector<std::string>& values) {
  for (Parameter& parameter : parameters_) {
    if (parameter.key != key) continue;
    parameter.chosen = true;
    std::set<std::int64_t> added;
    for (const std::string& value : values)
      if (!listed_ && parameter.range && parameter.range->holds(value) && !holds(parameter.values, value))
        added.insert(*parse_integer(value));
    if (parameter.values.empty()) parameter.values = {parameter.absent};
    std::erase_if(parameter.values, [&](const std::string& value) { return !holds(values, value); });
    for (const std::int64_t value : added)
      if (!holds(parameter.values, std::to_string(value))) parameter.values.push_back(std::to_string(value));
    if (!listed_) continue;
    std::erase_if(*listed_, [&](const Config& config) { return !is_tried(parameter, config); });
  }
}

void Space::turn(const std::string& rule, bool on) {
  for (Constraint& constraint : constraints_)
    if (constraint.name == rule && constraint.rule == Rule::search) constraint.on = on;
}

std::string Space::first_refusal(const Config& config, bool search_rules) const {
  const AskedConfig asked(config);
  for (const Constraint& constraint : constraints_) {
    if (!constraint.on || (constraint.rule == Rule::search && !search_rules)) continue;
    if (std::string reason = constraint.refusal(asked); !reason.empty()) return reason;
  }
  return {};
}

std::string Space::refusal(const Config& config) const {
  for (const Parameter& parameter : parameters_)
    if (!is_tried(parameter, config)) return parameter.key + " has a value that was not chosen";
  return first_refusal(config, true);
}
std::string Space::build_refusal(const Config& config) const { return first_refusal(config, false); }

std::size_t Space::parameters_before(const Constraint& constraint) const {
  if (constraint.reads.empty()) return parameters_.size();
  std::size_t before = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (holds(constraint.reads, parameters_[i].key)) before = i + 1;
  }
  return before;
}

std::vector<std::vector<const Constraint*>> Space::asked_after() const {
  std::vector<std::vector<const Constraint*>> asked(parameters_.size() + 1);
  for (const Constraint& constraint : constraints_)
    if (constraint.on) asked[listed_ ? 0 : parameters_before(constraint)].push_back(&constraint);
  return asked;
}

void Space::walk_listed(const Walk& walk) const {
  const auto constraints = asked_after().front();
  std::any place;
  for (const Config& config : *listed_) {
    const AskedConfig asked(config, place);
    const auto refusing = std::ranges::find_if(
        constraints, [&](const Constraint* each) { return !each->refusal(asked).empty(); });
    if (refusing != constraints.end()) {
      walk.refused(**refusing, 1);
    } else if (!walk.visit(config)) {
      return;
    }
  }
}

void Space::walk(const Walk& walk) const {
  if (listed_) return walk_listed(walk);
  const auto constraints = asked_after();
  std::any place;
  // False: it ends.
  const std::function<bool(const Config&, std::size_t)> extend = [&](const Config& begun, std::size_t count) {
    const AskedConfig asked(begun, place);
    for (const Constraint* constraint : constraints[count]) {
      if (constraint->refusal(asked).empty()) continue;
      walk.refused(*constraint, product(parameters_, count));
      return true;
    }
    if (count == parameters_.size()) return walk.visit(begun);
    const Parameter& parameter = parameters_[count];
    if (parameter.values.empty() && !parameter.chosen) return extend(begun, count + 1);
    Config longer = begun;
    return std::ranges::all_of(parameter.values, [&](const std::string& value) {
      longer.set(parameter.key, value);
      return extend(longer, count + 1);
    });
  };
  extend({}, 0);
}

std::vector<RuleEffect> Space::effects() const {
  std::map<const Constraint*, std::int64_t> removed;
  walk({[](const Config&) { return true; },
        [&](const Constraint& constraint, std::int64_t configs) { removed[&constraint] += configs; }});
  std::vector<RuleEffect> effects;
  for (const auto& constraints : asked_after()) {
    for (const Constraint* constraint : constraints)
      effects.push_back({constraint->name, constraint->rule, true, removed[constraint]});
  }
  for (const Constraint& constraint : constraints_)
    if (!constraint.on) effects.push_back({constraint.name, constraint.rule, false, 0});
  return effects;
}

std::vector<Config> Space::enumerate(std::size_t limit) const {
  std::vector<Config> configs;
  if (limit == 0) return configs;
  walk({[&](const Config& config) {
          configs.push_back(config);
          return configs.size() < limit;
        },
        [](const Constraint&, std::int64_t) {}});
  return configs;
}

}  // namespace gemmtune
