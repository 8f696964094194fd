// A second look at a problem that was settled a while ago. On a shared machine the neighbours stay for
// seconds to minutes, and what is fastest beside one is not beside the next: rounds that follow one another,
// however many, see one of them. Finalists that meet again minutes later show it; the kernel that is good in
// both looks is chosen, and how far ratios moved between the looks says what else a later run may name.
#pragma once

#include <span>
#include <vector>

#include "select/finals.h"

namespace gemmtune {

struct SecondLook {
  Settled settled;  // what both looks say together; the first as it was where nothing was measured
  std::vector<double> changes;  // of each finalist's log ratio to the first winner, between the looks
  Quietness quietness;          // of the second look's rounds
};

/// Measures the winner, the default and those that the first look could not tell from the winner in fresh
/// rounds. The winner is the fastest in the geometric mean of both looks, a tie decided by the fixed order;
/// one that was not the winner before has to pass a test against the default, in these rounds and further
/// ones (and be right at the other M of its row). A winner that both looks together no longer see ahead of
/// the default gives way to it, as `undecided`.
SecondLook look_again(const Problem& problem, WeightLayout layout, const Policy& policy, const Settled& first,
                      Evaluator& evaluator, const Deadline& deadline);

/// Standard deviation, in logarithms, of a ratio in one look around its mean over many: from the 90th
/// percentile of the changes of many finalists, because the machine's states are few and far apart. 0 without
/// changes.
double look_deviation(std::span<const double> changes);

/// Adds to the ties what a later run with as many looks may name instead of the winner: finalists, and
/// candidates that only screening saw (`screened`, all of the winner's layout), whose ratio is not above the
/// tie band with 99.5 % confidence, both runs allowed for.
void widen_ties(const std::vector<Trial>& screened, const Policy& policy, double look_deviation,
                Settled& settled);

}  // namespace gemmtune
