// Times of interleaved rounds: one column per kernel, one row per round.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gemmtune {

class PairedRounds {
 public:
  /// `kernels`: number of columns.
  explicit PairedRounds(std::size_t kernels = 0) : columns_(kernels) {}

  /// Adds `rounds`, each with one time (microseconds) for each of `measured` (column indices), in that order;
  /// NaN or a missing element: the kernel has no time in that round.
  void add(std::span<const std::size_t> measured, const std::vector<std::vector<double>>& rounds);
  /// Valid times (finite and above 0) of a kernel, in the order of the rounds.
  std::vector<double> times(std::size_t kernel) const;
  /// a / b, for each round in which both have a valid time.
  std::vector<double> ratios(std::size_t a, std::size_t b) const;

 private:
  std::vector<std::vector<double>> columns_;  // NaN in rounds without a valid time
};

}  // namespace gemmtune
