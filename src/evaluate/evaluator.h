// The seam for measuring: plain problems, candidates and numbers in, outcomes out. Implementations: in
// process, a worker process, a replayed recording.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/policy.h"
#include "measure/quietness.h"
#include "problem/problem.h"
#include "evaluate/outcome.h"

namespace gemmtune {

/// Interleaved rounds: times[r][c] is the time of candidate c in round r, microseconds.
struct FinalsResult {
  std::vector<Outcome> outcomes;  // one a candidate, the full correctness gate applied; times in the rounds
  std::vector<std::vector<double>> times;  // rounds × candidates; a candidate that failed has NaN
  double noise_floor = 0;           // of A against A in these rounds: half-width of the ratio's interval
  std::vector<double> same_ratios;  // A against A, one a round, so that a chooser can pool several calls
  Quietness quietness;              // of these rounds
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// Whether announcing candidates is of any use.
  virtual bool compiles_ahead() const { return false; }
  /// The candidates that the next calls of screen will ask for, in this order; replaces what was announced
  /// before. A hint: what they need may be compiled beside the measuring.
  virtual void announce(const Problem& problem, std::span<const Candidate> candidates) {
    (void)problem;
    (void)candidates;
  }
  /// Builds, checks (quick gate) and takes `samples` samples of each candidate, in order. `stop` is asked
  /// between candidates; the rest are then missing from the answer.
  virtual Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                              int samples, const std::function<bool()>& stop) = 0;
  /// Full gate (once a candidate and problem), then `rounds` interleaved rounds in random order in one
  /// process. Called again it goes on with fresh rounds.
  virtual Result<FinalsResult> finals(const Problem& problem, std::span<const Candidate> candidates,
                                      int rounds) = 0;
  /// Is the candidate right for the same problem with `m` rows? For winners, whose row answers other M too.
  /// Both seeds and all checks of the full gate, no times; `refused` where the family does not take that M.
  virtual Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) = 0;
};

}  // namespace gemmtune
