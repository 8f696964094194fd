#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gemmtune {
namespace {

// P(X = k) for X of binomial(n, 1/2), through logarithms: 2⁻ⁿ underflows for n above 1074.
double binomial_half(std::size_t n, std::size_t k) {
  const auto trials = static_cast<double>(n);
  const auto hits = static_cast<double>(k);
  const double logarithm = std::lgamma(trials + 1) - std::lgamma(hits + 1) - std::lgamma(trials - hits + 1);
  return std::exp(logarithm - trials * std::log(2.0));
}

}  // namespace

double median(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  const std::size_t middle = sorted.size() / 2;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle), sorted.end());
  const double upper = sorted[middle];
  if (sorted.size() % 2 == 1) return upper;
  const double lower =
      *std::max_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle));
  return lower + (upper - lower) / 2;
}

double lower_quartile(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const double place = static_cast<double>(sorted.size() - 1) / 4;
  const auto below = static_cast<std::size_t>(place);
  const double above = sorted[std::min(below + 1, sorted.size() - 1)];
  return sorted[below] + (place - static_cast<double>(below)) * (above - sorted[below]);
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double logarithms = 0;
  for (const double value : values) logarithms += std::log(value);
  return std::exp(logarithms / static_cast<double>(values.size()));
}

Interval median_interval(std::span<const double> samples, double confidence) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  if (n == 0) return {};
  // [x(d), x(n+1−d)] covers the median unless fewer than d samples lie on one side of it: 1 − 2·P(X ≤ d − 1).
  std::size_t depth = 1;
  double tail = binomial_half(n, 0);
  while (2 * (depth + 1) <= n + 1) {
    const double next_tail = tail + binomial_half(n, depth);
    if (1 - 2 * next_tail < confidence) break;
    tail = next_tail;
    ++depth;
  }
  return {sorted[depth - 1], sorted[n - depth]};
}

double spread(std::span<const double> samples) {
  const Interval interval = median_interval(samples, 0.95);
  return (interval.high - interval.low) / 2;
}

double noise_floor(std::span<const double> same_ratios) {
  if (same_ratios.empty()) return 0;
  const Interval interval = median_interval(same_ratios, 0.95);
  return std::max(std::fabs(1 - interval.low), std::fabs(interval.high - 1));
}

double sign_test_below(std::span<const double> ratios, double limit) {
  const std::size_t n = ratios.size();
  const auto below =
      static_cast<std::size_t>(std::ranges::count_if(ratios, [&](double r) { return r < limit; }));
  double probability = 0;
  for (std::size_t k = n + 1; k-- > below;) probability += binomial_half(n, k);
  return std::min(probability, 1.0);
}

}  // namespace gemmtune
