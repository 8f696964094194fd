#include "evaluate/outcome.h"

#include <cmath>
#include <utility>

namespace gemmtune {

std::string_view to_string(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::ok:
      return "ok";
    case OutcomeKind::refused:
      return "refused";
    case OutcomeKind::build_failed:
      return "build_failed";
    case OutcomeKind::launch_failed:
      return "launch_failed";
    case OutcomeKind::wrong:
      return "wrong";
    case OutcomeKind::too_slow:
      return "too_slow";
    case OutcomeKind::timed_out:
      return "timed_out";
    case OutcomeKind::crashed:
      return "crashed";
  }
  return "unknown";
}

Outcome failed_outcome(OutcomeKind kind, std::string reason) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.reason = std::move(reason);
  return outcome;
}

Outcome failed_launch(const Status& status) {
  const bool memory = status.code() == StatusCode::out_of_memory;
  return failed_outcome(memory ? OutcomeKind::refused : OutcomeKind::launch_failed, status.message());
}

Outcome without_samples(const Outcome& outcome) {
  Outcome copy = outcome;
  copy.microseconds.clear();
  return copy;
}

MeasuredError worst_of(const MeasuredError& a, const MeasuredError& b) {
  // The number where one is NaN.
  return {std::fmax(a.rms, b.rms), std::fmax(a.max, b.max), std::fmax(a.one_sign, b.one_sign)};
}

}  // namespace gemmtune
