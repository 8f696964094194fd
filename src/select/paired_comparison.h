// The paired comparison: rules that decide from ratios of paired times which of two kernels is faster. Finals,
// the confirmation pass, comparisons over a range of M and `bench` use these and no others.
// docs/statistics.md.
#pragma once

#include <span>
#include <vector>

#include "measure/policy.h"

namespace gemmtune {

/// Probability that a kernel which is not faster passes the test, over all evaluations of the test together.
inline constexpr double test_alpha = 0.01;

/// Numbers of rounds after which a test is evaluated: 15, 30 and 60 as far as `round_limit` allows; a smaller
/// limit is the only one. Fixed in advance, because a test that is evaluated after every round passes sooner
/// or later.
std::vector<int> interim_rounds(int round_limit);

/// The wider of a band and the noise floor, as a share of the time: a difference that A against A shows too is
/// none.
double effective_band(double band, double noise_floor);

/// What the ratio of A's time to B's is compared with.
struct RatioLimits {
  double win = 1;           // A beats B below it: prefer_ratio, or 1 − noise floor where that is smaller
  double no_win = 1;        // A cannot beat B above it: prefer_ratio
  double tie = 1;           // A is as fast as B up to it: 1 + the wider of tie band and noise floor
  double declared_tie = 1;  // another run may measure a tie up to it: its noise moves the times and the band
};
RatioLimits ratio_limits(const Policy& policy, double noise_floor);

/// Standard deviation, in logarithms, of a ratio of two kernels from a run to one on another machine of the kind. Two
/// H200s: docs/lab/measuring.md, "Two machines of a kind".
inline constexpr double machine_deviation = 0.006;
/// The same where ratios on this machine have a deviation of their own too.
double deviation_of_runs(double drift);

/// One-sided sign test: the median of `ratios` is below (above) `limit`, with an error probability of at most
/// `alpha`. False without ratios.
bool is_below(std::span<const double> ratios, double limit, double alpha);
bool is_above(std::span<const double> ratios, double limit, double alpha);

/// What few rounds prove by the size of a difference, where they are too few for a sign test: at least three ratios,
/// each below 1 by more than ten times the noise floor, or 0.1 if that is larger. That the same kernel stalls by
/// chance in each of three rounds is as rare as 1 in 30,000 where stalls are 3 % of the samples.
bool is_far_below(std::span<const double> ratios, double noise_floor);

}  // namespace gemmtune
