// A mixture's kernel must serve every routing, not only the one it was tuned on: what the winner loses on others, and the
// safer kernel where that is too much. docs/measuring.md, "Routing".
#pragma once

#include <optional>

#include "base/deadline.h"
#include "evaluate/evaluator.h"
#include "measure/policy.h"
#include "select/finals.h"

namespace gemmtune {

/// What a kernel may lose on a routing against the best finalist there, as a share of that one's time.
inline constexpr double max_routing_loss = 0.03;

/// Seconds of hold_on_routings for a mixture whose kernels take about so long; 0 of other problems.
double expected_routing_seconds(const Problem& problem, double microseconds, const Policy& policy);

/// `tuned`, what finals have settled on the policy's routing, with its winner's losses on the policy's other routings. If
/// one is above max_routing_loss in fresh rounds too, the finalist whose largest loss over all routings is the smallest
/// wins instead; its row's time and ratio to the default are then of rounds of its own on the policy's routing. If the
/// deadline or an error leaves no rounds, `tuned` with the reason. Problems that are no mixtures stay as they are.
Settled hold_on_routings(const Problem& problem, WeightLayout layout, const Policy& policy, Settled tuned,
                         Evaluator& evaluator, const Deadline& deadline);

/// A kernel that gave way on other routings does not come back because later finals had no time for these rounds: `safer` has
/// the last choice that they made, and gets this one if they made it. Empty: they left the fastest one.
Settled keep_safer(Settled settled, std::optional<Settled>& safer);

}  // namespace gemmtune
