// Finals of one problem in one weight layout: interleaved rounds until the chooser has decided, then a check
// of the winner at the other M that its row answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "evaluate/evaluator.h"
#include "measure/policy.h"
#include "measure/statistics.h"
#include "resolve/candidate_list.h"
#include "select/choose.h"
#include "tuned/entry.h"

namespace gemmtune {

/// A candidate that takes part in the finals.
struct Finalist {
  ListedCandidate listed;
  double screened_microseconds = 0;  // 0: not screened
  double early_microseconds = 0;     // of the first half of its samples: long before the finals
};
/// With the times of `screened`, the candidate's samples of screening; without samples not screened.
Finalist as_finalist(const ListedCandidate& listed, std::span<const double> screened);

/// A default kernel with which nothing can be compared.
struct DefaultFault {
  std::string kernel_name;
  std::string reason;
  Verdict verdict = Verdict::default_wrong;  // or default_untimed
};

/// Set if this outcome of the default kernel says that it is wrong or crashes, or that it could not be timed.
std::optional<DefaultFault> default_fault_of(const Candidate& baseline, const Outcome& outcome);

/// The default's time over that of the finalist that is ahead, while rounds go on.
struct PairedRatio {
  std::string kernel_name;
  double ratio = 1;   // median of the paired rounds so far
  Interval interval;  // 95 %
  int rounds = 0;     // at least min_shown_rounds
};
inline constexpr int min_shown_rounds = 3;

struct FinalsTask {
  Problem problem;
  std::vector<Finalist> finalists;  // best first; the baseline at any place
  /// Index into the finalists; empty without a vendor kernel that may run.
  std::optional<std::size_t> baseline;
  WeightLayout layout = WeightLayout::plain;  // that the winner must read; the baseline may read another
  Policy policy;
  std::optional<DefaultFault> default_fault = {};  // of a default that is none of the finalists
  /// Chosen already: only its time and its ratio to the baseline are open.
  std::optional<Candidate> only_winner = {};
  /// screening_deviation() of the trials; 0: not known, or screening is not asked.
  double screening_deviation = 0;
  // Of a time limit: what full verification of one finalist takes, about, and what setting the problem up takes.
  double check_seconds = 0;
  double set_up_seconds = 0;
  std::function<void(const PairedRatio&)> on_ratio = {};
};

/// A finalist that was measured beside the winner.
struct MeasuredFinalist {
  ListedCandidate listed;
  /// Its time over the winner's: the median of paired rounds; after a confirmation pass the geometric mean of
  /// both passes.
  double ratio = 1;
  int passes = 1;  // that the ratio is of: 1 the finals, 2 the confirmation pass too
};

/// Joules of a finalist in energy batches.
struct KernelEnergy {
  std::string kernel_name;
  double joules = 0;        // of a call: the median of the batches
  double spread = 0;        // half-width of that median's 95 % interval
  double microseconds = 0;  // of a call in these batches, where the power limit may hold the clock down
  int batches = 0;
};

/// What a mixture's kernel loses on a routing that it was not tuned on.
struct RoutingLoss {
  std::string kernel_name;
  std::string routing;      // Routing::text()
  double loss = 0;          // its time over the best finalist's there, minus 1
  std::string best_kernel;  // that finalist
};

/// What finals found out beside the winner: for the row's report too.
struct FinalsFigures {
  double noise_floor = 0;
  Quietness quietness;
  std::string doubt;              // why times were not believed; empty: they were
  std::vector<std::string> ties;  // kernels that may be as fast as the winner, it included; empty: not known
  std::vector<KernelEnergy> energies;       // of finalists, where joules were measured (select/energy.h)
  std::string energy_reason;                // why joules are missing that were asked for
  Objective chosen_by = Objective::time;    // what the winner was chosen by
  std::vector<RoutingLoss> routing_losses;  // of a mixture's finalists (select/routings.h)
  std::string routing_reason;               // why some are missing
  std::string instead_of;                   // the winner on the policy's routing alone; empty: it is this one
};

struct Settled : FinalsFigures {
  std::optional<ListedCandidate> winner;  // empty: `reason` says why there is none
  std::string reason;
  Verdict verdict = Verdict::none;
  double microseconds = 0;
  double spread = 0;
  std::optional<double> default_microseconds;
  std::string default_kernel;
  std::optional<double> speedup;
  std::optional<Interval> speedup_interval;
  std::optional<DefaultFault> default_fault;  // the verdict is default_wrong or default_untimed
  double err_ratio = 1;
  MeasuredError error;
  double drift = 0;              // of ratios between batches of rounds, Decision::drift
  double roof_microseconds = 0;  // FinalsResult::roof_microseconds of its rounds
  bool is_cut = false;           // the deadline left fewer finalists, or not the rounds that decide
  std::vector<MeasuredFinalist> finalists;  // all that were measured, the winner included
  std::vector<Trial> trials;  // of the finalists: the outcome of full verification or of another M of the row
};

/// How much of finals a deadline leaves: all, or the fewest finalists and rounds that still reach a test.
enum class FinalsExtent { shortest, whole };
/// Seconds of the rounds of finals whose kernels take about so long, as far as screening knows.
double expected_finals_seconds(double microseconds, FinalsExtent extent, const Policy& policy);

TieOrder tie_order_of(const Problem& problem, const ListedCandidate& listed);

/// Exceeds the deadline by at most one short call of Evaluator::finals. If the default kernel is not beaten
/// but reads another layout than the row must have, the result is the best kernel of that layout with the
/// verdict `undecided` and its true speed-up, which may be below 1.
Settled run_finals(const FinalsTask& task, Evaluator& evaluator, const Deadline& deadline);

/// The other M at which a row's kernel must be right: M − 1, and the smallest M whose look-up lands on the
/// row (fine or coarse). Ascending, without M itself.
std::vector<std::int64_t> neighbour_ms(const Problem& problem);

/// Empty if the candidate is right at every other M of its row, or its family refuses that M (dispatch then
/// goes on to the next level); else the M and what went wrong.
std::string neighbour_failure(const Problem& problem, const Candidate& candidate, Evaluator& evaluator);

}  // namespace gemmtune
