// An evaluator that ends early after Ctrl-C: the tuner sees screening that stops and finals that answer an
// error, so that it finishes its run in its own way, with everything decided so far published.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "evaluate/evaluator.h"

namespace gemmtune {

class InterruptibleEvaluator final : public Evaluator {
 public:
  InterruptibleEvaluator(Evaluator& inner, std::function<bool()> interrupted);

  bool compiles_ahead() const override { return inner_.compiles_ahead(); }
  void announce(const Problem& problem, std::span<const Candidate> candidates) override;
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> finals(const Problem& problem, std::span<const Candidate> candidates,
                              int rounds) override;
  Result<FinalsResult> finals_on(RoutingKind routing, const Problem& problem,
                                 std::span<const Candidate> candidates, int rounds) override;
  Result<FinalsResult> energy(const Problem& problem, std::span<const Candidate> candidates,
                              int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  Evaluator& inner_;
  std::function<bool()> interrupted_;
};

}  // namespace gemmtune
