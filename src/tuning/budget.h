// Budget: how much of a run's time each problem gets.
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

#include "problem/problem.h"

namespace gemmtune {

/// A point in time, or never.
class Deadline {
 public:
  static Deadline never() { return Deadline(std::numeric_limits<double>::infinity()); }
  static Deadline in(double seconds) { return Deadline(seconds); }
  double seconds_left() const { return seconds_ - seconds_elapsed(); }
  /// Since it was made.
  double seconds_elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool over() const { return seconds_left() <= 0; }
  /// The moment when `share` (0 to 1) of the time that is left now will have passed.
  Deadline part(double share) const { return Deadline(seconds_left() * share); }

 private:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(double seconds) : seconds_(seconds), begin_(Clock::now()) {}

  double seconds_;
  Clock::time_point begin_;
};

/// A rough time of one call, microseconds: the larger of traffic and arithmetic on a small machine. Only
/// ratios of it are used.
double expected_microseconds(const Problem& problem);

/// Shares out what is left: a part equally, so that every problem can pay for its fixed costs, the rest by
/// weight (calls × expected time). Time that a problem did not use goes to those after it.
class BudgetShares {
 public:
  /// `weights` of the problems still to do; 0 for one that needs no time.
  explicit BudgetShares(std::vector<double> weights) : weights_(std::move(weights)) {}
  /// Of `seconds_left`, the seconds for `problem`; called once a problem, which then no longer waits.
  double take(std::size_t problem, double seconds_left);

 private:
  std::vector<double> weights_;
};

}  // namespace gemmtune
