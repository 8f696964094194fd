// Order statistics and paired tests. They assume no distribution, so that one stall of a shared machine
// decides nothing.
#pragma once

#include <span>

namespace gemmtune {

/// Requires samples; the mean of the middle two for an even count.
double median(std::span<const double> samples);

/// The median absolute deviation times this is the standard deviation, in a normal distribution.
inline constexpr double deviation_of_median_absolute = 1.4826;
/// Standard deviations above the mean that 99.5 % of a normal distribution lie below.
inline constexpr double normal_99_5 = 2.576;

/// Lower quartile, between order statistics where it falls between two; requires samples.
double lower_quartile(std::span<const double> samples);

/// Requires positive values; 0 for none.
double geometric_mean(std::span<const double> values);

struct Interval {
  double low = 0;
  double high = 0;
};

/// Interval of the median from order statistics with at least `confidence` coverage (binomial(n, ½)); with
/// too few samples for it, the whole range.
Interval median_interval(std::span<const double> samples, double confidence);
/// Half of the width of the 95 % interval: the `spread` column.
double spread(std::span<const double> samples);
/// One-sided sign test: the probability, under "the median ratio is not below `limit`", of at least as many
/// ratios below it as were seen. Ratios equal to the limit count as not below.
double sign_test_below(std::span<const double> ratios, double limit);

/// Noise floor of paired rounds, as a share of the time. `same_ratios`: time of a kernel over its own second
/// time in the same round. The floor is the distance from 1 of the farther end of the 95 % interval of their
/// median; 0 without ratios. The half-width of the interval would not do: where the two times of one kernel
/// differ in the same direction in every round, the interval is narrow but not around 1, and any two equal
/// kernels would differ by that shift.
double noise_floor(std::span<const double> same_ratios);

}  // namespace gemmtune
