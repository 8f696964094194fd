#include "evaluate/outcome.h"

#include <cmath>
#include <utility>

#include "base/enumerators.h"

namespace gemmtune {

constexpr EnumeratorNames<OutcomeKind, 8> outcome_names({{OutcomeKind::ok, "ok"},
                                                         {OutcomeKind::refused, "refused"},
                                                         {OutcomeKind::build_failed, "build_failed"},
                                                         {OutcomeKind::launch_failed, "launch_failed"},
                                                         {OutcomeKind::wrong, "wrong"},
                                                         {OutcomeKind::too_slow, "too_slow"},
                                                         {OutcomeKind::timed_out, "timed_out"},
                                                         {OutcomeKind::crashed, "crashed"}});
std::string_view to_string(OutcomeKind kind) { return outcome_names.of(kind); }
std::optional<OutcomeKind> parse_outcome_kind(std::string_view text) { return outcome_names.find(text); }

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
