// What decorators of evaluators derive from: every function is the inner evaluator's, so a decorator says only what it changes.
#pragma once

#include "evaluate/evaluator.h"

namespace gemmtune {

class ForwardingEvaluator : public Evaluator {
 public:
  /// `inner` must outlive this.
  explicit ForwardingEvaluator(Evaluator& inner) : inner_(inner) {}

  bool compiles_ahead() const override { return inner_.compiles_ahead(); }
  void announce(const Problem& problem, std::span<const Candidate> candidates) override {
    inner_.announce(problem, candidates);
  }
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    return inner_.screen(problem, candidates, samples, stop);
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    return inner_.take_rounds(kind, problem, candidates, rounds);
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    return inner_.check_neighbour_m(problem, candidate, m);
  }

 protected:
  Evaluator& inner() const { return inner_; }

 private:
  Evaluator& inner_;
};

}  // namespace gemmtune
