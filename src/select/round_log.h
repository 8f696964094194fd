// The times of interleaved rounds, aligned by round.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gemmtune {

class RoundLog {
 public:
  explicit RoundLog(std::size_t entrants = 0) : columns_(entrants) {}

  /// `rounds`: one time (microseconds) for each of `who`, indices of entrants; NaN where it has none.
  void add(std::span<const std::size_t> who, const std::vector<std::vector<double>>& rounds);
  /// Those that were taken, in their order.
  std::vector<double> times(std::size_t entrant) const;
  /// a / b of the rounds that measured both.
  std::vector<double> ratios(std::size_t a, std::size_t b) const;

 private:
  std::vector<std::vector<double>> columns_;  // NaN where a round did not measure it
};

}  // namespace gemmtune
