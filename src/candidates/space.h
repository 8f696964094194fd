// Space: a family's parameters and their constraints for one problem.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "candidates/config.h"

namespace gemmtune {

/// first, first + step, … up to last.
struct NumberRange {
  std::int64_t first = std::numeric_limits<std::int64_t>::min();
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  std::int64_t step = 1;

  bool is_any() const { return *this == NumberRange(); }
  /// True of a number of the range as names have it: no sign or zero in front.
  bool holds(std::string_view text) const;
  /// "1 to 4096", "16 to 4096 in steps of 16", "any number".
  std::string text() const;
  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

/// One tunable parameter. A key that a kernelName lacks means `absent`: what kernels did before the key
/// existed.
struct Parameter {
  std::string key;
  std::vector<std::string> values;  // none: no choice for this problem, and names leave the key out
  std::string absent;
  std::string meaning;  // a phrase for `gemmtune explain`
  // Of numbers that can be built as well, beside `values`, which are those worth trying. None: no others can.
  std::optional<NumberRange> range = {};
  bool chosen = false;  // a user chose `values`: nothing else is tried, what absence means neither

  /// One of `values`, or in the range.
  bool holds(std::string_view value) const;
  /// "64, 128, or 1 to 4096": what can be built; of a parameter without values what absence means.
  std::string allowed_text() const;
};

/// What a constraint is about. A row tuned for one M serves other M through padding: rules of the search must
/// not stand in the way of running it there.
enum class Rule {
  build,   // the kernel cannot be built or would be wrong
  search,  // it can, but trying it is a waste: the same as another config, or never good
};

/// A config that rules are asked about, one after another, with what one of them computed of it for all.
class AskedConfig {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  AskedConfig(const Config& config) : AskedConfig(config, own_) {}
  /// `place`: where values are kept, of one config after another, so that few are allocated.
  AskedConfig(const Config& config, std::any& place) : config_(config), value_(place) {}
  AskedConfig(const AskedConfig&) = delete;
  AskedConfig& operator=(const AskedConfig&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const Config&() const { return config_; }

  /// What `compute` made of the config when it was first wanted. All rules of a space want a value of one type.
  template <typename Value, typename Compute>
  const Value& computed(const Compute& compute) const {
    auto* value = std::any_cast<Value>(&value_);
    if (value == nullptr) {
      value = &value_.emplace<Value>(compute(config_));
    } else if (!is_computed_) {
      *value = compute(config_);
    }
    is_computed_ = true;
    return *value;
  }

 private:
  const Config& config_;
  mutable std::any own_;
  std::any& value_;
  mutable bool is_computed_ = false;
};

/// A rule over a full config: empty text = allowed, else the reason for the refusal (fixed wording a rule).
struct Constraint {
  std::string name;
  std::function<std::string(const AskedConfig&)> refusal;
  Rule rule = Rule::build;
  /// The keys that decide it. Such a constraint is also evaluated on partial configs (these keys and those before them), to
  /// prune the enumeration. Empty: all keys.
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
  /// The parameter's values become those of `values` that it can have: the family's in its order, then others of its
  /// range by size. Of listed configs those with other values go, and nothing is added. A parameter without values
  /// means its `absent` value.
  void choose(const std::string& key, const std::vector<std::string>& values);
  /// Turns all search rules of this name on or off; build rules stay.
  void turn(const std::string& rule, bool on);
  bool is_listed() const { return listed_.has_value(); }
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
