// What the samples of a search say.
#pragma once

#include <span>
#include <vector>

#include "search/strategy.h"

namespace gemmtune {

inline bool is_usable(const SearchPoint& point) { return !point.failed && !point.samples.empty(); }
/// Requires samples; the mean of the middle two for an even count.
double sample_median(std::vector<double> samples);
/// Standard deviation of one sample, in logarithms, from consecutive samples of each point (the median of
/// their changes, so that a stall counts once); 0 where none has two.
double sample_deviation(std::span<const SearchPoint> points);

}  // namespace gemmtune
