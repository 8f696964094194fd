// Chooses the finalists from the screened candidates.
#pragma once

#include <vector>

#include "evaluate/outcome.h"
#include "select/finals.h"

namespace gemmtune {

/// The candidates of one layout that take part in the finals, by the median of their samples, the best first:
/// policy.finalists, and fewer if a kernel is slow. A third of them are the plainest (fewest settings that
/// differ from the family's default) of those that screening cannot distinguish from the fastest.
std::vector<Finalist> choose_finalists(const std::vector<ListedCandidate>& candidates,
                                       const std::vector<Trial>& trials, WeightLayout layout,
                                       const Policy& policy);

/// Adds what the winner may not lose to, unless they are finalists already: the default kernel under the policy, and the vendor
/// library's of this layout if it is one of the candidates and did not fail. Sets task.baseline to the default; one that has an
/// erratum, or that is not to be had here, is task.default_fault instead. Neither is set if the device has no default.
void add_opponents(const Device& device, const std::vector<ListedCandidate>& candidates,
                   const std::vector<Trial>& trials, FinalsTask& task);

}  // namespace gemmtune
