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
  bool chosen = false;  // a user chose `values`: nothing else is tried, what absence means neither
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
  /// Off: a rule of the search that holds only where a user turns it on.
  bool on = true;
};

/// Off until it is turned on: split-K, the parameter `key`, divides k into equal numbers of tiles of `block_k`. It is
/// tune_gemm's rule, whose kernels need it; ours do not.
Constraint split_k_divides(std::int64_t k, const std::string& key, std::int64_t block_k);

/// What a rule does to a space: the configs that it is the first to refuse, in the order of asking.
struct RuleEffect {
  std::string name;
  Rule rule = Rule::build;
  bool on = true;
  std::int64_t removed = 0;
};

/// Parameters (in kernelName order) and constraints for one problem on one device.
class Space {
 public:
  void add(Parameter parameter) { parameters_.push_back(std::move(parameter)); }
  void add(Constraint constraint) { constraints_.push_back(std::move(constraint)); }
  /// The configs to try are these instead of all combinations of values: where a library proposes them.
  void list(std::vector<Config> configs) { listed_ = std::move(configs); }
  /// Narrows a parameter to those of its values that are in `values`; listed configs with others go. A
  /// parameter without values means its `absent` value.
  void choose(const std::string& key, const std::vector<std::string>& values);
  /// Turns all search rules of this name on or off; build rules stay.
  void turn(const std::string& rule, bool on);
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }
  std::vector<std::string> keys() const;
  /// Product of the parameters' value counts; 1 for a space without parameters.
  std::int64_t points() const;
  /// The first refusal over all constraints; empty where the config is worth trying.
  std::string refusal(const Config& config) const;
  /// The first refusal of a build rule; empty where the config can be built.
  std::string build_refusal(const Config& config) const;
  /// Each constraint in the order of asking; points() less all of `removed` are allowed.
  std::vector<RuleEffect> effects() const;
  /// All allowed configs, last parameter fastest; stops at `limit`.
  std::vector<Config> enumerate(std::size_t limit = static_cast<std::size_t>(-1)) const;

 private:
  /// Config by config, `visit` until it answers false. What a rule refuses before all parameters have their values is
  /// one call of `refused` with the number of configs.
  struct Walk {
    std::function<bool(const Config&)> visit;
    std::function<void(const Constraint&, std::int64_t)> refused;
  };
  void walk(const Walk& walk) const;
  std::string first_refusal(const Config& config, bool search_rules) const;
  /// How many leading parameters must have their values before the constraint can be asked.
  std::size_t parameters_before(const Constraint& constraint) const;
  /// Those that are on, by parameters_before(): element i is asked once i parameters have their values.
  std::vector<std::vector<const Constraint*>> asked_after() const;
  void walk_listed(const Walk& walk) const;

  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  std::optional<std::vector<Config>> listed_;
};

}  // namespace gemmtune
