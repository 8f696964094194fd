// Candidates that never reached the finals, but that their few screening samples cannot tell from the winner:
// another run may as well choose one of them.
#pragma once

#include <string>
#include <vector>

#include "select/finals.h"
#include "evaluate/outcome.h"

namespace gemmtune {

/// Standard deviation of the logarithm of one screening sample, from consecutive samples of each candidate
/// (the median of their absolute log ratios, so that a stall counts once); 0 where no candidate has two.
double screening_deviation(const std::vector<Trial>& trials);

struct TieMargin {
  double band = 0;   // a share: tie band and noise floor
  double drift = 0;  // of ratios between batches of rounds, Decision::drift
};

/// With whom the screened candidates are compared: the winner; where that is the default kernel, whose
/// samples come from another thread pool, the fastest of its ties.
std::string screening_reference(const std::vector<Trial>& screened, const Settled& settled);

/// Adds to the ties of a settled problem the screened candidates (all of the winner's layout) that `margin`
/// allows. Finalists were compared with the winner in the finals: what screening said of them no longer
/// counts.
void add_screened_ties(const std::vector<Trial>& screened, const TieMargin& margin, Settled& settled);

/// Names, in the order of the trials, without `reference`: right candidates with samples whose median is not
/// above the reference's by more than the band with 99.5 % confidence, by screening_deviation and drift.
/// Empty where the reference was not screened.
std::vector<std::string> screened_ties(const std::vector<Trial>& trials, const std::string& reference,
                                       const TieMargin& margin);

}  // namespace gemmtune
