// Who goes from the screening to the finals.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "select/finals.h"
#include "evaluate/outcome.h"

namespace gemmtune {

/// The candidates of one layout that go to the finals, by the median of their samples, the best first:
/// policy.finalists, and fewer where a kernel is slow. A third of them are the plainest (fewest settings that
/// differ from the family's default) of those that screening cannot tell from the fastest.
std::vector<Entrant> best_entrants(const std::vector<ListedCandidate>& candidates,
                                   const std::vector<Trial>& trials, WeightLayout layout,
                                   const Policy& policy);

/// The index of the default kernel, which is put among the entrants unless it is there already; empty where
/// the device has none.
std::optional<std::size_t> add_baseline(const Device& device, const Problem& problem,
                                        const std::vector<Trial>& trials, std::vector<Entrant>& entrants);

}  // namespace gemmtune
