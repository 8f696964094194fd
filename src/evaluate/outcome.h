// The result of one candidate. A failure is data, not an exception.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "candidates/config.h"

namespace gemmtune {

enum class OutcomeKind { ok, refused, build_failed, launch_failed, wrong, too_slow, timed_out, crashed };
std::string_view to_string(OutcomeKind kind);

struct Outcome {
  OutcomeKind kind = OutcomeKind::ok;
  std::string reason;                // not empty unless ok
  std::vector<double> microseconds;  // samples; a sample is the mean of one batch
  double err_ratio = 1;
  bool deterministic = true;  // two runs on the same data agreed bit for bit
};

/// Without times. `kind` is not ok, and `reason` not empty.
Outcome failed_outcome(OutcomeKind kind, std::string reason);
/// What a step's status says of the candidate: launch_failed, but refused if memory was short. That is a state of
/// the machine, which no later run may remember of the kernel.
Outcome failed_launch(const Status& status);
/// The outcome without its samples.
Outcome without_samples(const Outcome& outcome);

/// A candidate with its outcome.
struct Trial {
  Candidate candidate;
  Outcome outcome;
};

}  // namespace gemmtune
