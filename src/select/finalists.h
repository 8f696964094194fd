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

/// Adds the default kernel unless it is a finalist already. Returns its index; empty if the device has none.
std::optional<std::size_t> add_baseline(const Device& device, const Problem& problem,
                                        const std::vector<Trial>& trials, std::vector<Finalist>& finalists);

}  // namespace gemmtune
