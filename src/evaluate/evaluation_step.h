// Options of an evaluator that measures in process, and the steps that it reports to its caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "measure/policy.h"

namespace gemmtune {

enum class Step {
  idle,               // nothing to do
  preparing,          // operands, references, pools: as long as the problem needs
  waiting,            // for another worker of the same tuner that is timing on this machine
  waiting_for_other,  // for another program that does
  resting,            // to stay within InProcessOptions::share
  candidate,          // a candidate is built, or its code runs
};

struct InProcessOptions {
  Policy policy;
  double max_err_ratio = 0.05;  // --errRatio
  int reference_threads = 1;    // of the float64 reference, which never runs while something is timed
  /// Screening gives up on a candidate whose first calls are this many times slower than the fastest
  /// candidate of the problem so far (`too_slow`). 0: never.
  double too_slow_factor = 8;
  /// Full verification also runs with rows of x and y an odd number of elements apart. A kernel that refuses
  /// such rows is none the worse.
  bool odd_strides = false;
  /// Verification without rounds (finals() with 0, check_neighbour_m()) also finds the bit class (Outcome::bits).
  bool bit_classes = false;
  /// What this process may hold of the host's memory; 0: all that is free. Larger problems are refused.
  std::size_t memory_limit_bytes = 0;
  /// Held while something is timed, so that partitions of one machine do not disturb each other. Empty: none.
  std::string timing_lock;
  /// The process that the lock's file names as its holder: the tuner, for all of its workers. 0: this process.
  std::int64_t lock_owner = 0;
  /// Of the processor time of the device's cores, what a worker may use: it rests between tasks. 1: all.
  double share = 1;
  /// Called before each step, with the kernel's name where one candidate is concerned. Must be cheap: it is
  /// called between calls that are timed. What it throws leaves the evaluator's call; the evaluator must then
  /// be destroyed.
  std::function<void(Step step, std::string_view kernel_name)> on_step;
  /// Called after a wait for another program's timing lock, with its seconds.
  std::function<void(double seconds)> on_waited = {};
  /// Called between tasks, where nothing is timed and no lock is held: it may sleep.
  std::function<void()> on_pause = {};
};

}  // namespace gemmtune
