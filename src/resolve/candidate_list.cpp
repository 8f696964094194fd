#include "resolve/candidate_list.h"

#include <algorithm>
#include <map>
#include <utility>

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
  if (problem.bpreshuffle) listed.layout = family.packed_layout(problem).value_or(WeightLayout::any);
  listed.accuracy = family.accuracy(problem, config);
  listed.predicted = family.predicted_microseconds(problem, config);
  listed.departures = settings_apart(config, usual);
  return listed;
}

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

void list_family(const KernelFamily& family, const Problem& problem, const CandidateFilter& filter,
                 Accuracy lowest, const DeviceErrata& errata, CandidateList& list) {
  if (const Status accepted = family.accepts(problem); !accepted.ok()) {
    list.refusals.push_back(fmt::format("{}: {}", family.name(), accepted.message()));
    return;
  }
  const Space space = filter.exhaustive ? family.exhaustive_space(problem) : family.space(problem);
  std::vector<Config> configs = space.enumerate();
  const Config first = family.default_config(problem);
  std::erase(configs, first);
  if (space.refusal(first).empty()) configs.insert(configs.begin(), first);
  std::erase_if(configs, [&](const Config& config) { return !passes(config, filter); });
  const bool any = !configs.empty();
  remove_wrong(family, problem, errata, configs, list);
  remove_inaccurate(family, problem, lowest, configs, list);
  if (!any) {
    list.refusals.push_back(fmt::format("{}: no config is allowed for this problem", family.name()));
  }
  for (const Config& config : configs) list.candidates.push_back(list_one(family, problem, config, first));
}

}  // namespace

Status check_libtypes(const Device& device, const std::vector<std::string>& libtypes) {
  for (const std::string& libtype : libtypes) {
    if (libtype == "all" || device.find_family(libtype) != nullptr) continue;
    std::string known;
    for (const KernelFamily* family : device.families()) {
      known += known.empty() ? "" : ", ";
      known += family->name();
    }
    return Status::invalid("libtype '{}' is no kernel family of {}, expected some of {}", libtype,
                           device.info().name, known);
  }
  return {};
}

Accuracy lowest_accuracy(const Device& device, const Problem& problem, AccuracyPolicy policy) {
  if (policy == AccuracyPolicy::fast) return Accuracy::tensor_core;
  const auto baseline = device.baseline(problem);
  return baseline.ok() ? device.accuracy(*baseline, problem) : Accuracy::fp32;
}

CandidateList list_candidates(const Device& device, const Problem& problem, const CandidateFilter& filter) {
  CandidateList list;
  const DeviceErrata errata(device.info());
  const Accuracy lowest = lowest_accuracy(device, problem, filter.accuracy);
  for (const KernelFamily* family : device.families()) {
    if (wanted(*family, filter.libtypes)) list_family(*family, problem, filter, lowest, errata, list);
  }
  return list;
}

Result<ListedCandidate> describe(const Device& device, const Problem& problem, const Candidate& candidate) {
  const KernelFamily* family = device.find_family(candidate.family);
  if (family == nullptr) {
    return Status::not_found("{} has no kernel family {}", device.info().name, candidate.family);
  }
  return list_one(*family, problem, candidate.config, family->default_config(problem));
}

}  // namespace gemmtune
