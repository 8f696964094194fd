// An evaluator that ends early after Ctrl-C or a spent budget: the tuner sees screening that stops and finals that
// answer an error, so that it finishes its run in its own way, with everything decided so far published.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "evaluate/forwarding_evaluator.h"

namespace gemmtune {

class InterruptibleEvaluator final : public ForwardingEvaluator {
 public:
  /// A spent budget also ends checks at another M (`too_slow`: nobody remembers that of the kernel); after Ctrl-C they
  /// go on, so that what was measured becomes a row.
  InterruptibleEvaluator(Evaluator& inner, std::function<bool()> interrupted, std::function<bool()> is_spent)
      : ForwardingEvaluator(inner), interrupted_(std::move(interrupted)), is_spent_(std::move(is_spent)) {}

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    if (ends()) return Status::unsupported("interrupted");
    // What was measured by then is reported: the journal has it, and the profile must not lack it.
    return inner().screen(problem, candidates, samples, [&] { return ends() || (stop && stop()); });
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    if (ends()) return Status::unsupported("interrupted");
    return inner().take_rounds(kind, problem, candidates, rounds);
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    const auto spent = [] {
      return failed_outcome(OutcomeKind::too_slow, "the budget ended before this check did");
    };
    if (is_spent_()) return spent();
    Outcome outcome = inner().check_neighbour_m(problem, candidate, m);
    // What was cut off says nothing of the kernel.
    return is_spent_() && outcome.kind != OutcomeKind::ok ? spent() : outcome;
  }

 private:
  bool ends() const { return interrupted_() || is_spent_(); }

  std::function<bool()> interrupted_;
  std::function<bool()> is_spent_;
};

}  // namespace gemmtune
