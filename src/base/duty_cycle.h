// Rests between tasks that keep a process or a thread within a share of the machine.
#pragma once

#include <functional>

#include "base/clock.h"

namespace gemmtune {

/// What a DutyCycle counts and how it sleeps; a test has others.
struct DutyClocks {
  std::function<double()> now = steady_seconds;
  std::function<double()> used = process_cpu_seconds;  // processor time of what rests
  std::function<void(double seconds)> sleep;           // empty: the thread sleeps
};

/// Counts processor time, not time that passes: what other programs take from this one is no work of its own, and
/// threads that spin are.
class DutyCycle {
 public:
  /// `share`: of `cores` cores, above 0; 1: never rests.
  DutyCycle(double share, int cores, DutyClocks clocks = {});
  /// Sleeps until what was used since the last rest is within the share of the time that has passed since. Where little
  /// is missing it is left to the next rest. What was not used is not saved for later: there are no longer bursts.
  void rest();

 private:
  double cores_of_share_;
  bool rests_;
  DutyClocks clocks_;
  double begin_;
  double used_before_;
};

}  // namespace gemmtune
