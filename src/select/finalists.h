// Chooses the finalists from the screened candidates.
#pragma once

#include <cstddef>
#include <optional>
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

/// Adds the default kernel under the policy to the finalists, unless it is one already, and sets task.baseline. A
/// default that has an erratum is task.wrong_default instead. Neither is set if the device has no default.
void add_baseline(const Device& device, const std::vector<Trial>& trials, FinalsTask& task);

}  // namespace gemmtune
