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

namespace {

std::vector<double> sorted_times(std::span<const double> microseconds) {
  std::vector<double> sorted;
  for (const double time : microseconds) {
    if (std::isfinite(time)) sorted.push_back(time);
  }
  std::ranges::sort(sorted);
  return sorted;
}

}  // namespace

double quiet_level(std::span<const double> reference_microseconds) {
  const std::vector<double> sorted = sorted_times(reference_microseconds);
  if (sorted.size() < min_rounds_for_level) return std::numeric_limits<double>::infinity();
  return sorted[sorted.size() / 4];
}

std::vector<double> disturbance(std::span<const double> reference_microseconds, double known_microseconds,
                                double min_excess) {
  constexpr double natural_widths = 4;
  constexpr double level_margin = 1.05;
  std::vector<double> shares(reference_microseconds.size(), 0);
  const std::vector<double> sorted = sorted_times(reference_microseconds);
  if (sorted.size() < min_rounds_for_level) return shares;
  const double quiet = sorted[sorted.size() / 4];
  double limit = quiet + std::max(min_excess * quiet, natural_widths * (quiet - sorted.front()));
  if (known_microseconds * level_margin < quiet)
    limit = std::min(limit, known_microseconds * level_margin * (1 + min_excess));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (std::isfinite(reference_microseconds[i])) shares[i] = reference_microseconds[i] / limit;
  }
  return shares;
}

}  // namespace gemmtune
