// Interface to measuring: problems and candidates in, outcomes and times out. Implementations: in process, in
// a worker process, replay of a recording. Purely virtual, so that nobody answers a function by forgetting it;
// decorators derive from ForwardingEvaluator (evaluate/forwarding_evaluator.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "evaluate/outcome.h"
#include "measure/policy.h"
#include "measure/quietness.h"
#include "problem/problem.h"

namespace gemmtune {

/// What rounds are of: times, of a mixture on another routing of the policy where one is given, or joules.
struct RoundsKind {
  bool energy = false;
  std::optional<RoutingKind> routing = {};
};

/// Interleaved rounds: times[r][c] is the time of candidate c in round r, microseconds.
struct FinalsResult {
  std::vector<Outcome> outcomes;  // one per candidate, of full verification; with its times in the rounds
  std::vector<std::vector<double>> times;  // rounds × candidates; a candidate that failed has NaN
  std::vector<double> same_ratios;  // A against A, one per round; noise_floor() pools those of several calls
  std::vector<std::vector<double>> joules;  // of energy(), as `times`; empty: not measured
  Quietness quietness;                      // of these rounds
  std::optional<RoutingKind> routing = {};  // of finals_on(); empty: the policy's
  double roof_microseconds =
      0;  // what reading the weight alone takes here; 0: not measured, or no bound of the kernels
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// True if announced candidates are compiled beside the measuring.
  virtual bool compiles_ahead() const = 0;
  /// The candidates of the next calls of screen, in this order; replaces what was announced before. A hint:
  /// what they need may be compiled beside the measuring.
  virtual void announce(const Problem& problem, std::span<const Candidate> candidates) = 0;
  /// Builds each candidate, verifies it quickly and takes `samples` samples (0: verifies only), in order. `stop` is called
  /// between candidates; if it returns true, the remaining ones are missing from the result.
  virtual Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                              int samples, const std::function<bool()>& stop) = 0;
  /// finals(), finals_on() or energy(), by the kind.
  virtual Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                           std::span<const Candidate> candidates, int rounds) = 0;
  /// Verifies the candidate fully for the same problem with `m` rows, because a winner's row answers other M
  /// too. No times; `refused` if the family does not take that M.
  virtual Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) = 0;

  /// Verifies each candidate fully (once per candidate and problem), then takes `rounds` interleaved rounds
  /// in random order in one process (0: verifies only). A further call measures fresh rounds.
  Result<FinalsResult> finals(const Problem& problem, std::span<const Candidate> candidates, int rounds) {
    return take_rounds({}, problem, candidates, rounds);
  }
  /// The same rounds of a mixture on another routing of the policy; verification is that of finals(). `unsupported` where
  /// there are none.
  Result<FinalsResult> finals_on(RoutingKind routing, const Problem& problem,
                                 std::span<const Candidate> candidates, int rounds) {
    return take_rounds({.routing = routing}, problem, candidates, rounds);
  }
  /// Verifies each candidate fully, then takes `rounds` rounds of one energy batch of each candidate, in random order: the
  /// joules and the microseconds of a call. `unsupported` where no joules are counted.
  Result<FinalsResult> energy(const Problem& problem, std::span<const Candidate> candidates, int rounds) {
    return take_rounds({.energy = true}, problem, candidates, rounds);
  }
};

}  // namespace gemmtune
