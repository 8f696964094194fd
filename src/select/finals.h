// Finals of one problem in one weight layout: interleaved rounds until the chooser has decided, then the
// winner's trial at the other M that its row will answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/policy.h"
#include "tuned/entry.h"
#include "base/deadline.h"
#include "resolve/candidate_list.h"
#include "select/choose.h"
#include "evaluate/evaluator.h"

namespace gemmtune {

struct Entrant {
  ListedCandidate listed;
  double screened_microseconds = 0;  // 0: not screened
};

struct FinalsTask {
  Problem problem;
  std::vector<Entrant> entrants;        // best first; the baseline may stand anywhere
  std::optional<std::size_t> baseline;  // index into the entrants; empty where there is no vendor kernel
  WeightLayout layout = WeightLayout::plain;  // that the winner must read; the baseline may read another
  Policy policy;
};

/// Where a finalist stood beside the winner.
struct Standing {
  ListedCandidate listed;
  double ratio =
      1;          // its time over the winner's: the median of paired rounds, the geometric mean of the looks
  int looks = 1;  // how many looks at the problem it stems from
};

struct Settled {
  std::optional<ListedCandidate> winner;  // empty: `reason` says why there is none
  std::string reason;
  Verdict verdict = Verdict::none;
  double microseconds = 0;
  double spread = 0;
  std::optional<double> default_microseconds;
  std::string default_kernel;
  std::optional<double> speedup;
  double err_ratio = 1;
  double noise_floor = 0;
  double drift = 0;  // of ratios between batches of rounds, Decision::drift
  Quietness quietness;
  std::vector<std::string> ties;    // kernels that the rounds cannot tell from the winner, it included
  std::vector<Standing> standings;  // of all that were measured beside the winner, it included
  std::vector<Trial> trials;  // of the entrants, with the outcome of the full gate or of the neighbouring M
};

/// How much slower than the winner, as a share, a tie may be before statistics: the tie band and, because the
/// noise of another run moves the band and the times, the floor.
inline double tie_limit(const Policy& policy, double noise_floor) {
  return std::max(policy.tie_band, noise_floor) + noise_floor;
}

Finalist finalist_of(const Problem& problem, const ListedCandidate& listed);

/// Never slower than the deadline asks by more than one short call of finals. Where the default kernel is not
/// beaten but reads another layout than the row must have, the best kernel of that layout stands with the
/// verdict `undecided` and its true speed-up, which may be below 1.
Settled run_finals(const FinalsTask& task, Evaluator& evaluator, const Deadline& deadline);

/// The other M at which a row's kernel must be right: M − 1, and the smallest M whose look-up lands on the
/// row (fine or coarse). Ascending, without M itself.
std::vector<std::int64_t> neighbour_ms(const Problem& problem);

/// Empty where the candidate is right at every other M of its row, or is not taken there (dispatch then goes
/// on to the next level); else the M and what went wrong.
std::string neighbour_failure(const Problem& problem, const Candidate& candidate, Evaluator& evaluator);

}  // namespace gemmtune
