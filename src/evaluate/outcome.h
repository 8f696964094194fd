// The result of one candidate. A failure is data, not an exception.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "candidates/config.h"
#include "verify/bit_class.h"

namespace gemmtune {

enum class OutcomeKind { ok, refused, build_failed, launch_failed, wrong, too_slow, timed_out, crashed };
std::string_view to_string(OutcomeKind kind);
std::optional<OutcomeKind> parse_outcome_kind(std::string_view text);

/// Errors of y against float64, relative to the root mean square of the reference. NaN: not measured.
struct MeasuredError {
  double rms = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();  // of one element
  /// Root mean square on operands of one sign, where a biased accumulation adds up; of finalists.
  double one_sign = std::numeric_limits<double>::quiet_NaN();
};
/// The larger of each.
MeasuredError worst_of(const MeasuredError& a, const MeasuredError& b);

struct Outcome {
  OutcomeKind kind = OutcomeKind::ok;
  std::string reason;                // not empty unless ok
  std::vector<double> microseconds;  // samples; a sample is the mean of one batch
  double err_ratio = 1;
  MeasuredError error;
  bool deterministic = true;  // two runs on the same data agreed bit for bit
  BitClass bits;              // with InProcessOptions::bit_classes
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
