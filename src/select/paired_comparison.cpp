#include "select/paired_comparison.h"

#include <algorithm>
#include <cmath>

#include "measure/statistics.h"

namespace gemmtune {

std::vector<int> interim_rounds(int round_limit) {
  std::vector<int> numbers;
  for (const int rounds : {15, 30, 60})
    if (rounds <= round_limit) numbers.push_back(rounds);
  if (numbers.empty()) numbers.push_back(std::max(1, round_limit));
  return numbers;
}

double effective_band(double band, double noise_floor) { return std::max(band, noise_floor); }

RatioLimits ratio_limits(const Policy& policy, double noise_floor) {
  const double band = effective_band(policy.tie_band, noise_floor);
  return {std::min(policy.prefer_ratio, 1 - noise_floor), policy.prefer_ratio, 1 + band,
          1 + (band + noise_floor)};
}

double deviation_of_runs(double drift) { return std::hypot(drift, machine_deviation); }

bool is_below(std::span<const double> ratios, double limit, double alpha) {
  return sign_test_below(ratios, limit) <= alpha;
}

bool is_above(std::span<const double> ratios, double limit, double alpha) {
  std::vector<double> inverse;
  for (const double ratio : ratios) inverse.push_back(1 / ratio);
  return is_below(inverse, 1 / limit, alpha);
}

bool is_far_below(std::span<const double> ratios, double noise_floor) {
  constexpr std::size_t fewest = 3;
  const double limit = 1 - std::max(0.1, 10 * noise_floor);
  return ratios.size() >= fewest && std::ranges::all_of(ratios, [&](double ratio) { return ratio < limit; });
}

}  // namespace gemmtune
