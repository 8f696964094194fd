// Transfer: good candidates of other problems go first in the search of a problem like them. They are only an
// order; nothing is taken for a result.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/backend.h"
#include "resolve/candidate_list.h"

namespace gemmtune {

/// The winners of this run. One thread at a time.
class Transfer {
 public:
  /// The kernel of this name was chosen for `problem`; a later one for the same problem is added to it.
  void learn(const Problem& problem, std::string winner);
  /// Kernel names of the nearest winners of problems that differ from this one in M, N and K only, each once:
  /// first those of the same N and K, by |ln M/M'|; then by |ln M/M'| + |ln N/N'| + |ln K/K'|.
  std::vector<std::string> winners_near(const Problem& problem) const;

 private:
  struct Winner {
    std::int64_t m = 0, n = 0, k = 0;
    std::string name;
  };
  std::unordered_map<std::string, std::vector<Winner>> winners_;  // by the problem without its sizes
};

/// Kernel names as candidates, in their order; those of families that the device does not have are left out.
std::vector<Candidate> candidates_named(const std::vector<std::string>& kernel_names, const Device& device,
                                        const Problem& problem);

/// Numbers the listed candidates that the hints mean: 1 for the first. A hint that is not in the list (a
/// block that this K makes the same as a smaller one, say) means the candidate of its family that shares the
/// most settings with it.
void mark_hints(const std::vector<Candidate>& hints, std::vector<ListedCandidate>& candidates);

}  // namespace gemmtune
