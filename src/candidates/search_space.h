// SearchSpace: what a user wants of the families' spaces (`--search-space FILE`): other values of parameters,
// rules of the search on or off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "candidates/space.h"
#include "candidates/tune_gemm_rules.h"

namespace gemmtune {

/// A word of the file.
struct LocatedWord {
  std::string text;
  std::size_t line = 0;  // 1-based
};

struct ChosenParameter {
  LocatedWord key;
  std::vector<LocatedWord> values;  // at least one
};

struct ChosenRule {
  LocatedWord name;
  bool on = true;
};

struct FamilySpace {
  LocatedWord family;
  std::vector<ChosenParameter> parameters;
  std::vector<ChosenRule> rules;
  /// Nothing of the family's own: its search rules are off, but for those in `rules`; and if `parameters` names any,
  /// the others have the default kernel's value alone.
  bool replace = false;
};

struct SearchSpace {
  std::string source;                 // the file, for errors
  RuleSet rules = RuleSet::own;       // of all families, before what the file turns on or off
  std::vector<FamilySpace> families;  // of the others nothing changes

  const FamilySpace* find(std::string_view family) const;
  /// The family's space may be another one than its own.
  bool changes(std::string_view family) const { return rules != RuleSet::own || find(family) != nullptr; }
  /// Equal for files that choose the same: for the identity of a run. Empty if every family has its own space.
  std::string text() const;
};

/// The family's space with what the file chooses; names and values that it cannot have change nothing. `usual`: the
/// family's default config.
void choose(const FamilySpace& chosen, const Config& usual, Space& space);
/// The same of the whole request, for one family.
void choose(const SearchSpace& request, std::string_view family, const Config& usual, Space& space);

/// A parameter or rule of a space, and how many configs it takes away of those that the ones before left.
struct SpaceStep {
  enum class Kind { parameter, build, search };
  Kind kind = Kind::parameter;
  std::string name;
  bool on = true;            // of a rule
  std::int64_t removed = 0;  // of a parameter by the file; below 0: added
  std::int64_t left = 0;
};
std::string_view to_string(SpaceStep::Kind kind);

/// Parameters, then rules in the order of asking. `chosen`: null if no file names the family. Of the last step `left`
/// is the number of allowed configs; no step without parameters and rules.
std::vector<SpaceStep> space_steps(Space family_space, const FamilySpace* chosen, const Config& usual,
                                   RuleSet rules = RuleSet::own);

/// "rule 'waste' removed the last 12 of 96 configs": the step that left nothing. Empty where something is left.
std::string emptied_by(const std::vector<SpaceStep>& steps);

}  // namespace gemmtune
