#include "tuning/interruptible_evaluator.h"

#include <utility>

namespace gemmtune {
namespace {

Status interrupted_status() { return Status::unsupported("interrupted"); }

}  // namespace

InterruptibleEvaluator::InterruptibleEvaluator(Evaluator& inner, std::function<bool()> interrupted,
                                               std::function<bool()> is_spent)
    : ForwardingEvaluator(inner), interrupted_(std::move(interrupted)), is_spent_(std::move(is_spent)) {}

Result<std::vector<Outcome>> InterruptibleEvaluator::screen(const Problem& problem,
                                                            std::span<const Candidate> candidates,
                                                            int samples, const std::function<bool()>& stop) {
  if (ends()) return interrupted_status();
  // What was measured by then is reported: the journal has it, and the profile must not lack it.
  return inner().screen(problem, candidates, samples, [&] { return ends() || (stop && stop()); });
}

Result<FinalsResult> InterruptibleEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                         std::span<const Candidate> candidates, int rounds) {
  if (ends()) return interrupted_status();
  return inner().take_rounds(kind, problem, candidates, rounds);
}

Outcome InterruptibleEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                                  std::int64_t m) {
  const auto spent = [] {
    return failed_outcome(OutcomeKind::too_slow, "the budget ended before this check did");
  };
  if (is_spent_()) return spent();
  Outcome outcome = inner().check_neighbour_m(problem, candidate, m);
  // What was cut off says nothing of the kernel.
  return is_spent_() && outcome.kind != OutcomeKind::ok ? spent() : outcome;
}

}  // namespace gemmtune
