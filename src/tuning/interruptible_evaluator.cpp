#include "tuning/interruptible_evaluator.h"

#include <utility>

namespace gemmtune {
namespace {

Status interrupted_status() { return Status::unsupported("interrupted"); }

}  // namespace

InterruptibleEvaluator::InterruptibleEvaluator(Evaluator& inner, std::function<bool()> interrupted)
    : inner_(inner), interrupted_(std::move(interrupted)) {}

void InterruptibleEvaluator::announce(const Problem& problem, std::span<const Candidate> candidates) {
  inner_.announce(problem, candidates);
}

Result<std::vector<Outcome>> InterruptibleEvaluator::screen(const Problem& problem,
                                                            std::span<const Candidate> candidates,
                                                            int samples, const std::function<bool()>& stop) {
  if (interrupted_()) return interrupted_status();
  // What was measured by then is reported: the journal has it, and the profile must not lack it.
  return inner_.screen(problem, candidates, samples, [&] { return interrupted_() || (stop && stop()); });
}

Result<FinalsResult> InterruptibleEvaluator::finals(const Problem& problem,
                                                    std::span<const Candidate> candidates, int rounds) {
  if (interrupted_()) return interrupted_status();
  return inner_.finals(problem, candidates, rounds);
}

Result<FinalsResult> InterruptibleEvaluator::finals_on(RoutingKind routing, const Problem& problem,
                                                       std::span<const Candidate> candidates, int rounds) {
  if (interrupted_()) return interrupted_status();
  return inner_.finals_on(routing, problem, candidates, rounds);
}

Result<FinalsResult> InterruptibleEvaluator::energy(const Problem& problem,
                                                    std::span<const Candidate> candidates, int rounds) {
  if (interrupted_()) return interrupted_status();
  return inner_.energy(problem, candidates, rounds);
}

Outcome InterruptibleEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                                  std::int64_t m) {
  return inner_.check_neighbour_m(problem, candidate, m);
}

}  // namespace gemmtune
