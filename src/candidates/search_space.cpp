#include "candidates/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/enumerators.h"

namespace gemmtune {
namespace {

std::vector<std::string> texts_of(const std::vector<LocatedWord>& words) {
  std::vector<std::string> texts;
  for (const LocatedWord& word : words) texts.push_back(word.text);
  return texts;
}

/// The file's values of a parameter; of one that a replaced space does not name the default's. None: all stay.
std::vector<std::string> values_of(const FamilySpace& chosen, const Config& usual,
                                   const Parameter& parameter) {
  for (const ChosenParameter& one : chosen.parameters)
    if (one.key.text == parameter.key) return texts_of(one.values);
  if (!chosen.replace || chosen.parameters.empty() || parameter.values.empty()) return {};
  const std::string value(usual.word(parameter.key, parameter.absent));
  return parameter.holds(value) ? std::vector<std::string>{value} : std::vector<std::string>();
}

void choose_values(const FamilySpace& chosen, const Config& usual, const Parameter& parameter, Space& space) {
  const std::vector<std::string> values = values_of(chosen, usual, parameter);
  if (values.empty()) return;
  const bool is_named =
      std::ranges::any_of(chosen.parameters, [&](const auto& one) { return one.key.text == parameter.key; });
  // A library's proposals are no product of values: each keeps what is not named.
  if (is_named || !space.is_listed()) space.choose(parameter.key, values);
}

void turn_rules(const FamilySpace& chosen, Space& space) {
  if (chosen.replace) {
    const std::vector<Constraint> rules = space.constraints();
    for (const Constraint& rule : rules) space.turn(rule.name, false);
  }
  for (const ChosenRule& rule : chosen.rules) space.turn(rule.name.text, rule.on);
}

/// Sorted, so that order and layout of the file do not matter.
std::string sorted_text(std::vector<std::string> words) {
  std::ranges::sort(words);
  return fmt::format("{}", fmt::join(words, ";"));
}

std::string text_of(const FamilySpace& family) {
  std::vector<std::string> words;
  for (const ChosenParameter& parameter : family.parameters)
    words.push_back(fmt::format("{}=({})", parameter.key.text, sorted_text(texts_of(parameter.values))));
  for (const ChosenRule& rule : family.rules)
    words.push_back(fmt::format("rule {}={}", rule.name.text, rule.on ? "on" : "off"));
  return fmt::format("{}{}({})", family.family.text, family.replace ? " replaced" : "",
                     sorted_text(std::move(words)));
}

}  // namespace

const FamilySpace* SearchSpace::find(std::string_view family) const {
  for (const FamilySpace& one : families)
    if (one.family.text == family) return &one;
  return nullptr;
}

std::string SearchSpace::text() const {
  std::vector<std::string> words;
  for (const FamilySpace& family : families) words.push_back(text_of(family));
  if (rules != RuleSet::own) words.push_back(fmt::format("rules {}", to_string(rules)));
  return sorted_text(std::move(words));
}

void choose(const FamilySpace& chosen, const Config& usual, Space& space) {
  const std::vector<Parameter> parameters = space.parameters();
  for (const Parameter& parameter : parameters) choose_values(chosen, usual, parameter, space);
  turn_rules(chosen, space);
}

void choose(const SearchSpace& request, std::string_view family, const Config& usual, Space& space) {
  turn_set(request.rules, space);
  if (const FamilySpace* chosen = request.find(family); chosen != nullptr) choose(*chosen, usual, space);
}

constexpr EnumeratorNames<SpaceStep::Kind, 3> step_names({{SpaceStep::Kind::parameter, "parameter"},
                                                          {SpaceStep::Kind::build, "build rule"},
                                                          {SpaceStep::Kind::search, "search rule"}});
std::string_view to_string(SpaceStep::Kind kind) { return step_names.of(kind); }

std::vector<SpaceStep> space_steps(Space family_space, const FamilySpace* chosen, const Config& usual,
                                   RuleSet rules) {
  Space& space = family_space;
  std::vector<SpaceStep> steps;
  std::int64_t left = space.points();
  const std::vector<Parameter> parameters = space.parameters();
  for (const Parameter& parameter : parameters) {
    if (chosen != nullptr) choose_values(*chosen, usual, parameter, space);
    const std::int64_t before = std::exchange(left, space.points());
    steps.push_back({SpaceStep::Kind::parameter, parameter.key, true, before - left, left});
  }
  turn_set(rules, space);
  if (chosen != nullptr) turn_rules(*chosen, space);
  for (const RuleEffect& effect : space.effects()) {
    left -= effect.removed;
    const auto kind = effect.rule == Rule::build ? SpaceStep::Kind::build : SpaceStep::Kind::search;
    steps.push_back({kind, effect.name, effect.on, effect.removed, left});
  }
  return steps;
}

std::string emptied_by(const std::vector<SpaceStep>& steps) {
  for (const SpaceStep& step : steps) {
    if (step.left != 0) continue;
    return fmt::format("{} '{}' leaves nothing of {} config{}", to_string(step.kind), step.name, step.removed,
                       step.removed == 1 ? "" : "s");
  }
  return {};
}

}  // namespace gemmtune
