// The power behind an energy counter that is updated a few times a second: the slope between its updates.
#pragma once

#include <optional>

namespace gemmtune::gpu {

/// A reading between two updates says when the counter was read and not when its energy was taken, so only readings
/// that differ from the one before count.
class CounterSlope {
 public:
  void add(double seconds, double joules) {
    if (latest_ && joules != *latest_) {
      if (updates_ == 0) {
        first_seconds_ = seconds;
        first_joules_ = joules;
      }
      last_seconds_ = seconds;
      last_joules_ = joules;
      ++updates_;
    }
    latest_ = joules;
  }
  /// From the first update to the last one.
  double seconds() const { return last_seconds_ - first_seconds_; }
  /// Joules a second in that time; empty before two updates.
  std::optional<double> watts() const {
    if (updates_ < 2 || seconds() <= 0) return std::nullopt;
    return (last_joules_ - first_joules_) / seconds();
  }

 private:
  std::optional<double> latest_;
  int updates_ = 0;
  double first_seconds_ = 0;
  double first_joules_ = 0;
  double last_seconds_ = 0;
  double last_joules_ = 0;
};

}  // namespace gemmtune::gpu
