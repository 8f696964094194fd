// Candidates of a problem: every config of every family that takes it, and why the other families do not.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "candidates/search_space.h"

namespace gemmtune {

struct CandidateFilter {
  std::vector<std::string> libtypes;  // empty or "all": every family but `reference`, which must be named
  bool split_k = true;                // false: no config whose `sk` is above 1
  bool exhaustive = false;            // of KernelFamily::exhaustive_space
  AccuracyPolicy accuracy = AccuracyPolicy::keep;  // with `fast` all classes, else none below the default's
  bool dependent = false;  // only configs of programmatic dependent launches (`pdl` is 1), else none of them
  const SearchSpace* search_space = nullptr;  // of a user; null: the families' own spaces
  bool tree =
      false;  // only configs whose `tree` is 1: segments of k that are added in pairs, as ranks can add them
};

/// True of a kernel with `tree` 1.
bool adds_in_pairs(const Config& config);

/// One thing to try, with what search, ties and weight layouts need to know of it.
struct ListedCandidate {
  Candidate candidate;
  const KernelFamily* family = nullptr;       // owned by the device
  WeightLayout layout = WeightLayout::plain;  // that it reads
  Accuracy accuracy = Accuracy::fp32;
  double predicted = 0;      // microseconds; 0: no opinion
  int hint = 0;              // as SearchPoint::hint
  int departures = 0;        // settings that differ from the family's default config
  bool is_opponent = false;  // of DeviceInfo::opponent: no row can name it
};

struct CandidateList {
  std::vector<ListedCandidate> candidates;  // family after family; a family's default config is its first
  std::vector<std::string>
      refusals;  // "family: why it does not take the problem, or why not with all configs"
};

/// ok, or which name is no family of this device, with the known ones.
Status check_libtypes(const Device& device, const std::vector<std::string>& libtypes);

/// The space that a search goes through: the family's with what the user chooses. Requires a problem that the family
/// takes.
Space searched_space(const KernelFamily& family, const Problem& problem, const SearchSpace* search_space,
                     bool exhaustive);

/// ok, or an error with file, line and what is allowed: a family that the device does not have; a parameter, value or
/// rule that none of the problems' spaces has; a build rule that is turned off; a family that takes some of the
/// problems but is left without a config for each of them (then which parameter or rule left nothing).
Status check_search_space(const Device& device, const SearchSpace& search_space,
                          std::span<const Problem> problems, bool exhaustive);

/// The lowest class of a candidate under the policy: with `keep` that of default_kernel().
Accuracy lowest_accuracy(const Device& device, const Problem& problem, AccuracyPolicy policy);

/// Kernels that have an erratum are not listed; a refusal names the erratum, one of them and their number.
CandidateList list_candidates(const Device& device, const Problem& problem, const CandidateFilter& filter);

/// What the list would hold for this one candidate; an error where its family is not on the device.
Result<ListedCandidate> describe(const Device& device, const Problem& problem, const Candidate& candidate);

}  // namespace gemmtune
