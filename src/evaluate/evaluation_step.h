// Options of an evaluator that measures in process, and the steps that it reports to its caller.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "measure/policy.h"

namespace gemmtune {

enum class Step {
  idle,       // nothing to do
  preparing,  // operands, references, pools: as long as the problem needs
  waiting,    // for another process that is timing on this machine
  candidate,  // a candidate is built, or its code runs
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
  /// What this process may hold of the host's memory; 0: all that is free. Larger problems are refused.
  std::size_t memory_limit_bytes = 0;
  /// Held while something is timed, so that partitions of one machine do not disturb each other. Empty: none.
  std::string timing_lock;
  /// Called before each step, with the kernel's name where one candidate is concerned. Must be cheap: it is
  /// called between calls that are timed. What it throws leaves the evaluator's call; the evaluator must then
  /// be destroyed.
  std::function<void(Step step, std::string_view kernel_name)> on_step;
};

}  // namespace gemmtune
