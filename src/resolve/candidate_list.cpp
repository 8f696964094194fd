#include "resolve/candidate_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "backends/default_kernels.h"
#include "base/text.h"
#include "resolve/errata.h"

namespace gemmtune {
namespace {

bool names_all(const std::vector<std::string>& libtypes) {
  return libtypes.empty() || std::find(libtypes.begin(), libtypes.end(), "all") != libtypes.end();
}

bool wanted(const KernelFamily& family, const std::vector<std::string>& libtypes) {
  if (std::find(libtypes.begin(), libtypes.end(), family.name()) != libtypes.end()) return true;
  return names_all(libtypes) && family.name() != "reference";
}

ListedCandidate list_one(const KernelFamily& family, const Problem& problem, const Config& config,
                         const Config& usual) {
  ListedCandidate listed;
  listed.candidate = {std::string(family.name()), family.revision(), config};
  listed.family = &family;
  if (is_packed(problem)) listed.layout = family.packed_layout(problem).value_or(WeightLayout::any);
  listed.accuracy = family.accuracy(problem, config);
  listed.predicted = family.predicted_microseconds(problem, config);
  listed.departures = settings_apart(config, usual);
  return listed;
}

const std::string tree_key = "tree";

bool splits_k(const Config& config) { return config.number("sk", 1) > 1; }

bool passes(const Config& config, const CandidateFilter& filter) {
  return (filter.split_k || !splits_k(config)) && filter.dependent == is_dependent(config);
}

/// Removes the configs that have an erratum, with a refusal for each erratum.
void remove_wrong(const KernelFamily& family, const Problem& problem, const DeviceErrata& errata,
                  std::vector<Config>& configs, CandidateList& list) {
  struct Struck {
    std::size_t configs = 0;
    std::string first;
  };
  if (errata.empty()) return;
  std::map<const Erratum*, Struck> struck;
  std::erase_if(configs, [&](const Config& config) {
    const Candidate candidate{std::string(family.name()), family.revision(), config};
    const Erratum* const erratum = errata.find(problem, candidate);
    if (erratum == nullptr) return false;
    Struck& known = struck[erratum];
    if (known.configs++ == 0) known.first = candidate.kernel_name();
    return true;
  });
  for (const auto& [erratum, known] : struck) {
    list.refusals.push_back(fmt::format("{}: {} kernel{} left out, the first {}: {}", family.name(),
                                        known.configs, known.configs == 1 ? "" : "s", known.first,
                                        describe(*erratum)));
  }
}

/// Removes the configs below a class, with a refusal.
void remove_inaccurate(const KernelFamily& family, const Problem& problem, Accuracy lowest,
                       std::vector<Config>& configs, CandidateList& list) {
  const std::size_t removed =
      std::erase_if(configs, [&](const Config& config) { return family.accuracy(problem, config) < lowest; });
  if (removed == 0) return;
  list.refusals.push_back(
      fmt::format("{}: {} kernel{} of a lower accuracy class than {} left out (--accuracy fast)",
                  family.name(), removed, removed == 1 ? "" : "s", to_string(lowest)));
}

/// "space.yaml", "--rules tune_gemm_v2", or both.
std::string changed_by(const SearchSpace& space, std::string_view family) {
  const std::string rules =
      space.rules == RuleSet::own ? "" : fmt::format("--rules {}", to_string(space.rules));
  if (space.find(family) == nullptr) return rules;
  return space.source + (rules.empty() ? "" : " and " + rules);
}

void list_family(const KernelFamily& family, const Problem& problem, const CandidateFilter& filter,
                 Accuracy lowest, const DeviceErrata& errata, CandidateList& list) {
  if (const Status accepted = family.accepts(problem); !accepted.ok()) {
    list.refusals.push_back(fmt::format("{}: {}", family.name(), accepted.message()));
    return;
  }
  Space space = searched_space(family, problem, filter.search_space, filter.exhaustive);
  if (filter.tree) {
    if (std::ranges::find(space.parameters(), tree_key, &Parameter::key) == space.parameters().end()) {
      list.refusals.push_back(
          fmt::format("{}: adds no segments of k in pairs, as tensor parallelism needs it", family.name()));
      return;
    }
    space.choose(tree_key, {"1"});
  }
  std::vector<Config> configs = space.enumerate();
  const Config first = family.default_config(problem);
  std::erase(configs, first);
  if (space.refusal(first).empty()) configs.insert(configs.begin(), first);
  std::erase_if(configs, [&](const Config& config) { return !passes(config, filter); });
  const bool any = !configs.empty();
  remove_wrong(family, problem, errata, configs, list);
  remove_inaccurate(family, problem, lowest, configs, list);
  if (!any) {
    list.refusals.push_back(
        fmt::format("{}: no config is allowed for this problem{}", family.name(),
                    filter.search_space == nullptr || !filter.search_space->changes(family.name())
                        ? ""
                        : " by " + changed_by(*filter.search_space, family.name())));
  }
  for (const Config& config : configs) list.candidates.push_back(list_one(family, problem, config, first));
}

using Words = std::vector<std::string>;

void add_new(const std::string& word, Words& words) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

bool holds(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Checks one family of a file against its spaces for the problems of a run, one after another.
class FamilyCheck {
 public:
  FamilyCheck(const SearchSpace& file, const FamilySpace& chosen) : file_(file), chosen_(chosen) {}

  /// True once nothing further can be learnt: all that the file names is known, and a config is left.
  bool add(const Space& space, const Config& usual) {
    taken_ = true;
    for (const Parameter& parameter : space.parameters()) {
      add_new(parameter.key, keys_);
      Parameter& known = parameters_[parameter.key];
      for (const std::string& value : parameter.values) add_new(value, known.values);
      if (parameter.values.empty()) add_new(parameter.absent, known.values);
      // A library's proposals are narrowed only.
      if (parameter.range && !space.is_listed()) known.range = parameter.range;
    }
    for (const Constraint& rule : space.constraints())
      add_new(rule.name, rule.rule == Rule::search ? search_rules_ : build_rules_);
    if (!any_left_) {
      Space narrowed = space;
      choose(file_, chosen_.family.text, usual, narrowed);
      any_left_ = !narrowed.enumerate(1).empty();
      if (!any_left_ && emptied_by_.empty())
        emptied_by_ = emptied_by(space_steps(space, &chosen_, usual, file_.rules));
    }
    return any_left_ && status().ok();
  }

  Status status() const {
    if (!taken_) return {};
    for (const ChosenParameter& parameter : chosen_.parameters) {
      const auto known = parameters_.find(parameter.key.text);
      if (known == parameters_.end()) return unknown(parameter.key, "has no parameter", some_of(keys_));
      for (const LocatedWord& value : parameter.values) {
        if (!known->second.holds(value.text))
          return unknown(value, "parameter '" + parameter.key.text + "' has no value",
                         "some of " + known->second.allowed_text());
      }
    }
    for (const ChosenRule& rule : chosen_.rules) {
      if (holds(search_rules_, rule.name.text)) continue;
      if (!holds(build_rules_, rule.name.text))
        return unknown(rule.name, "has no rule", some_of(search_rules_));
      if (!rule.on) return unknown(rule.name, "no kernel is built without rule", some_of(search_rules_));
    }
    if (any_left_) return {};
    return Status::invalid("{}:{}: {}: an empty space: {}", file_.source, chosen_.family.line,
                           chosen_.family.text, emptied_by_);
  }

 private:
  static std::string some_of(const Words& words) {
    return words.empty() ? "none" : fmt::format("some of {}", fmt::join(words, ", "));
  }
  Status unknown(const LocatedWord& word, std::string_view what, const std::string& expected) const {
    return Status::invalid("{}:{}: {}: {} '{}', expected {}", file_.source, word.line, chosen_.family.text,
                           what, printable_word(word.text), expected);
  }

  const SearchSpace& file_;
  const FamilySpace& chosen_;
  // Of all problems:
  Words keys_;
  std::map<std::string, Parameter> parameters_;  // by key: values and range
  Words search_rules_;
  Words build_rules_;
  std::string emptied_by_;  // of the first
  bool taken_ = false;      // the family takes a problem
  bool any_left_ = false;
};

}  // namespace

Space searched_space(const KernelFamily& family, const Problem& problem, const SearchSpace* search_space,
                     bool exhaustive) {
  Space space = exhaustive ? family.exhaustive_space(problem) : family.space(problem);
  if (search_space != nullptr && search_space->changes(family.name()))
    choose(*search_space, family.name(), family.default_config(problem), space);
  return space;
}

Status check_search_space(const Device& device, const SearchSpace& search_space,
                          std::span<const Problem> problems, bool exhaustive) {
  for (const FamilySpace& chosen : search_space.families) {
    const KernelFamily* family = device.find_family(chosen.family.text);
    if (family == nullptr) {
      return Status::invalid("{}:{}: {}", search_space.source, chosen.family.line,
                             device.missing_family(printable_word(chosen.family.text)).message());
    }
    FamilyCheck check(search_space, chosen);
    for (const Problem& problem : problems) {
      if (family->accepts(problem).ok() &&
          check.add(searched_space(*family, problem, nullptr, exhaustive), family->default_config(problem)))
        break;
    }
    GEMMTUNE_RETURN_IF_ERROR(check.status());
  }
  return {};
}

Status check_libtypes(const Device& device, const std::vector<std::string>& libtypes) {
  for (const std::string& libtype : libtypes) {
    if (libtype == "all" || device.find_family(libtype) != nullptr) continue;
    return Status::invalid("libtype '{}' is no kernel family of {}, expected some of {}", libtype,
                           device.info().name, joined(device.families(), ", ", &KernelFamily::name));
  }
  return {};
}

Accuracy lowest_accuracy(const Device& device, const Problem& problem, AccuracyPolicy policy) {
  if (policy == AccuracyPolicy::fast) return Accuracy::tensor_core;
  if (policy == AccuracyPolicy::fp32) return Accuracy::fp32;
  const auto candidate = default_kernel(device, problem, policy);
  return candidate.ok() ? device.accuracy(*candidate, problem) : Accuracy::fp32;
}

bool adds_in_pairs(const Config& config) { return config.number(tree_key, 0) == 1; }

CandidateList list_candidates(const Device& device, const Problem& problem, const CandidateFilter& filter) {
  CandidateList list;
  const DeviceErrata errata(device.info());
  const Accuracy lowest = lowest_accuracy(device, problem, filter.accuracy);
  for (const KernelFamily* family : device.families()) {
    if (family->name() == device.info().opponent) continue;
    if (wanted(*family, filter.libtypes)) list_family(*family, problem, filter, lowest, errata, list);
  }
  return list;
}

Result<ListedCandidate> describe(const Device& device, const Problem& problem, const Candidate& candidate) {
  const KernelFamily* family = device.find_family(candidate.family);
  if (family == nullptr) {
    return Status::not_found("{} has no kernel family {}", device.info().name, candidate.family);
  }
  ListedCandidate listed = list_one(*family, problem, candidate.config, family->default_config(problem));
  listed.is_opponent = family->name() == device.info().opponent;
  return listed;
}

}  // namespace gemmtune
