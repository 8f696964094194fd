// Candidates outside the finals whose few screening samples do not distinguish them from the winner: another
// run may as well choose one of them.
#pragma once

#include <string>
#include <vector>

#include "evaluate/outcome.h"
#include "select/finals.h"

namespace gemmtune {

/// Standard deviation of the logarithm of one screening sample, from consecutive samples of each candidate
/// (the median of their absolute log ratios, so that a stall counts once); 0 if no candidate has two.
double screening_deviation(const std::vector<Trial>& trials);

struct TieMargin {
  double ratio = 1;  // RatioLimits::tie or declared_tie
  double drift = 0;  // of ratios between batches of rounds, Decision::drift
};

/// The kernel with which the screened candidates are compared: the winner; if that is the default kernel,
/// whose samples are of another thread pool, the fastest of its ties.
std::string screening_reference(const std::vector<Trial>& screened, const Settled& settled);

/// Adds to the ties of a settled problem the screened candidates (all of the winner's layout) that `margin`
/// allows. Finalists were compared with the winner in the finals, so their screening samples do not count.
void add_screened_ties(const std::vector<Trial>& screened, const TieMargin& margin, Settled& settled);

/// Names, in the order of the trials, without `reference`: right candidates with samples whose median is not
/// above the reference's times `margin.ratio` with 99.5 % confidence, by screening_deviation and drift.
/// Empty if the reference was not screened.
std::vector<std::string> screened_ties(const std::vector<Trial>& trials, const std::string& reference,
                                       const TieMargin& margin);

}  // namespace gemmtune
