// Deadline: a point in time of a clock that may be simulated.
#pragma once

#include <functional>
#include <limits>
#include <utility>

#include "base/clock.h"

namespace gemmtune {

/// A clock in seconds; a replay has one of its own.
using SecondsClock = std::function<double()>;

/// A point in time, or never.
class Deadline {
 public:
  static Deadline never(SecondsClock clock = steady_seconds) {
    return {std::numeric_limits<double>::infinity(), std::move(clock)};
  }
  static Deadline in(double seconds, SecondsClock clock = steady_seconds) {
    return {seconds, std::move(clock)};
  }
  double seconds_left() const { return seconds_ - seconds_elapsed(); }
  /// Since it was made.
  double seconds_elapsed() const { return clock_() - begin_; }
  bool over() const { return seconds_left() <= 0; }
  /// The moment when `share` (0 to 1) of the time that is left now will have passed.
  Deadline part(double share) const { return {seconds_left() * share, clock_}; }

 private:
  Deadline(double seconds, SecondsClock clock)
      : seconds_(seconds), clock_(std::move(clock)), begin_(clock_()) {}

  double seconds_;
  SecondsClock clock_;
  double begin_;
};

}  // namespace gemmtune
