#include "measure/quietness.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {

Quietness& Quietness::operator+=(const Quietness& other) {
  rounds += other.rounds;
  disturbed += other.disturbed;
  repeated += other.repeated;
  return *this;
}

std::vector<std::size_t> disturbed_rounds(std::span<const double> canary_microseconds) {
  constexpr double least_excess = 0.10;
  constexpr double natural_widths = 4;
  std::vector<double> sorted;
  for (const double time : canary_microseconds) {
    if (std::isfinite(time)) sorted.push_back(time);
  }
  if (sorted.size() < least_rounds_to_judge) return {};
  std::sort(sorted.begin(), sorted.end());
  const double quiet = sorted[sorted.size() / 4];
  const double limit = quiet + std::max(least_excess * quiet, natural_widths * (quiet - sorted.front()));
  std::vector<std::size_t> rounds;
  for (std::size_t i = 0; i < canary_microseconds.size(); ++i) {
    if (canary_microseconds[i] > limit) rounds.push_back(i);  // false for NaN
  }
  return rounds;
}

}  // namespace gemmtune
