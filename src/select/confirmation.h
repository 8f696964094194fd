// The confirmation pass: a second measuring of a problem's winner, minutes after its finals. On a shared
// machine the neighbours stay for seconds to minutes, and which kernel is fastest depends on them; rounds
// that follow one another, however many, see one state of the machine. Finalists that are measured again
// later see another one: the kernel that is good in both is chosen, and how far ratios moved between the
// passes says which kernels a later run may choose.
#pragma once

#include <span>
#include <vector>

#include "select/finals.h"

namespace gemmtune {

struct Confirmation {
  Settled settled;              // the decision of both passes; that of the finals if nothing was measured
  std::vector<double> changes;  // log ratios to the winner of the finals: this pass minus the finals
  Quietness quietness;          // of this pass's rounds
};

/// Measures the winner, the default and the closest finalists in fresh rounds. The winner is the fastest in
/// the geometric mean of both passes, a tie decided by the fixed order. A kernel that did not win the finals
/// must pass a test against the default, in these rounds and further ones, and be right at the other M of its
/// row. A winner that is not faster than the default in both passes together is replaced by it, as
/// `undecided`.
Confirmation confirm(const Problem& problem, WeightLayout layout, const Policy& policy, const Settled& first,
                     Evaluator& evaluator, const Deadline& deadline);

/// Standard deviation, in logarithms, of a ratio in one pass around its mean over many: from the 90th
/// percentile of the changes of many finalists, because the machine's states are few and far apart. 0 without
/// changes.
double pass_deviation(std::span<const double> changes);

/// Adds to the ties what a later run with as many passes may choose instead of the winner: finalists, and
/// candidates that were only screened (`screened`, all of the winner's layout), whose ratio is not above
/// RatioLimits::declared_tie with 99.5 % confidence, by the deviation of both runs.
void widen_ties(const std::vector<Trial>& screened, const Policy& policy, double pass_deviation,
                Settled& settled);

}  // namespace gemmtune
