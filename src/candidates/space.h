// Space: a family's parameters and their constraints for one problem.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "candidates/config.h"

namespace gemmtune {

/// One tunable parameter. A key that a kernelName lacks means `absent`: what kernels did before the key
/// existed.
struct Parameter {
  std::string key;
  std::vector<std::string> values;  // none: no choice for this problem, and names leave the key out
  std::string absent;
  std::string meaning;  // a phrase for `gemmtune explain`
  bool open = false;    // any number is legal, not only `values`
};

/// What a constraint is about. A row tuned for one M serves other M through padding: rules of the search must
/// not stand in the way of running it there.
enum class Rule {
  build,   // the kernel cannot be built or would be wrong
  search,  // it can, but trying it is a waste: the same as another config, or never good
};

/// A rule over a full config: empty text = allowed, else the reason for the refusal (fixed wording a rule).
struct Constraint {
  std::string name;
  std::function<std::string(const Config&)> refusal;
  Rule rule = Rule::build;
  /// The keys that decide it; it is then also asked of configs that hold these and those before them, so that
  /// enumeration leaves out what they rule out at once. Empty: all keys.
  std::vector<std::string> reads = {};
};

/// Parameters (in kernelName order) and constraints for one problem on one device.
class Space {
 public:
  void add(Parameter parameter) { parameters_.push_back(std::move(parameter)); }
  void add(Constraint constraint) { constraints_.push_back(std::move(constraint)); }
  /// The configs to try are these instead of all combinations of values: where a library proposes them.
  void list(std::vector<Config> configs) { listed_ = std::move(configs); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }
  std::vector<std::string> keys() const;
  /// Product of the parameters' value counts; 1 for a space without parameters.
  std::int64_t points() const;
  /// The first refusal over all constraints; empty where the config is worth trying.
  std::string refusal(const Config& config) const;
  /// The first refusal of a build rule; empty where the config can be built.
  std::string build_refusal(const Config& config) const;
  /// All allowed configs, last parameter fastest; stops at `limit`.
  std::vector<Config> enumerate(std::size_t limit = static_cast<std::size_t>(-1)) const;

 private:
  std::string first_refusal(const Config& config, bool search_rules) const;
  /// How many leading parameters must have their values before the constraint can be asked.
  std::size_t parameters_before(const Constraint& constraint) const;

  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  std::vector<Config> enumerate_listed(std::size_t limit) const;

  std::optional<std::vector<Config>> listed_;
};

}  // namespace gemmtune
