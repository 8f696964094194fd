#include "search/samples.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {

double sample_median(std::vector<double> samples) {
  std::ranges::sort(samples);
  const std::size_t half = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

double sample_deviation(std::span<const SearchPoint> points) {
  std::vector<double> changes;
  for (const SearchPoint& point : points) {
    for (std::size_t i = 1; !point.failed && i < point.samples.size(); ++i)
      changes.push_back(std::fabs(std::log(point.samples[i] / point.samples[i - 1])));
  }
  if (changes.empty()) return 0;
  // Median of the absolute difference of two: 0.6745 √2 standard deviations of one, were they normal.
  return sample_median(std::move(changes)) / (0.6745 * M_SQRT2);
}

}  // namespace gemmtune
