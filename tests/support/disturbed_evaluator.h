// An evaluator with true times on a machine that does other work: calls, single samples and whole stretches of calls are
// disturbed by factors, seeded. Its clock is simulated, and it ends what it does where a budget is cut off, as a worker does.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "base/random.h"
#include "evaluate/evaluator.h"

namespace gemmtune::testing {

/// How the machine disturbs. Factors are drawn evenly by logarithm.
struct Disturbance {
  double min_factor = 0.1;
  double max_factor = 100;
  double call_share = 0.05;    // of calls, in which all times of one kernel have one factor
  double sample_share = 0.02;  // of samples, each with a factor of its own
  double burst_share =
      0.01;              // of calls, with which a burst begins: all kernels of one family have one factor …
  int max_burst = 12;    // … for so many calls
  double jitter = 0.01;  // of every sample, to either side
};

/// Simulated seconds.
struct EvaluationCost {
  double set_up = 0.1;      // of a problem, whenever another one was asked for before
  double candidate = 0.02;  // the first look at one
  double check = 0.02;      // full verification of a finalist
  double sample = 0.003;    // at least
};

class DisturbedEvaluator final : public Evaluator {
 public:
  using Times = std::function<double(const Problem&, const Candidate&)>;
  DisturbedEvaluator(Times true_times, const Disturbance& disturbance, std::uint64_t seed)
      : true_times_(std::move(true_times)), disturbance_(disturbance), random_(seed) {}

  EvaluationCost cost;
  double now = 0;
  /// When a call that is still running is ended, by the same clock.
  double cut_off = std::numeric_limits<double>::infinity();

  bool compiles_ahead() const override { return false; }
  void announce(const Problem&, std::span<const Candidate>) override {}
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  /// False where the time is over: the clock then is at the cut-off.
  bool pass(double seconds);
  bool set_up(const Problem& problem);
  double factor();
  /// Of a call of so many kernels: which one is disturbed (none: their number), and by what.
  void begin_call(std::size_t kernels);
  double sample(const Problem& problem, const Candidate& candidate, std::size_t kernel);

  Times true_times_;
  Disturbance disturbance_;
  Random random_;
  std::string problem_;
  std::map<std::string, bool> checked_;  // by problem and kernel: looked at, and (true) verified fully
  std::size_t disturbed_ = 0;
  double call_factor_ = 1;
  int burst_left_ = 0;
  bool burst_of_default_ = false;
  double burst_factor_ = 1;
};

}  // namespace gemmtune::testing
