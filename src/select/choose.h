// Chooses the winner of the finals from interleaved times. It sees numbers and texts, no machine, so that
// every rule can be tested on simulated noise. The rules and their reasons: docs/statistics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/evaluator.h"
#include "measure/policy.h"
#include "measure/statistics.h"
#include "select/paired_comparison.h"
#include "select/paired_rounds.h"
#include "tuned/entry.h"

namespace gemmtune {

/// What decides between kernels that are equally fast, compared field by field from tie_rank on, the kernel
/// name last.
struct TieOrder {
  std::string kernel_name;
  int tie_rank = 0;            // KernelFamily::tie_rank: vendor libraries first
  int departures = 0;          // ListedCandidate::departures: the plainer first
  std::int64_t resources = 0;  // KernelFamily::resources: fewer first
};

/// a is preferred to b where both are equally fast.
bool precedes_in_tie(const TieOrder& a, const TieOrder& b);

/// What the next call of Evaluator::finals measures. No rounds: the decision is final.
struct FinalsPlan {
  std::vector<std::size_t> candidates;  // indices into the finalists
  int rounds = 0;
};

struct Decision {
  std::optional<std::size_t> winner;  // index into the finalists; empty: every finalist failed
  Verdict verdict = Verdict::none;
  double microseconds = 0;                     // median of the winner in the rounds that decided
  double spread = 0;                           // half-width of that median's 95 % interval, microseconds
  std::optional<double> default_microseconds;  // median of the baseline in the same rounds
  std::optional<double> speedup;  // median of baseline/winner, round by round; 1 where the default stays
  std::optional<Interval> speedup_interval;
  /// Every finalist whose time these rounds cannot distinguish from the winner's by more than the tie band,
  /// the winner included: what a second run may name instead. Ascending.
  std::vector<std::size_t> ties;
  double noise_floor = 0;  // A against A, as a share
  /// Standard deviation, in logarithms, of a ratio of two finalists from one batch of 15 rounds to another:
  /// how far a ratio depends on what the machine does in those seconds. 0 with one batch.
  double drift = 0;
  int rounds = 0;  // all that were measured
};

/// The state of one problem's finals:
///   Chooser chooser(finalists, baseline, policy);
///   for (FinalsPlan plan = chooser.next(); plan.rounds > 0; plan = chooser.next())
///     chooser.add(plan, *evaluator.finals(problem, those candidates, plan.rounds));
///   Decision decision = chooser.decision();
/// Rounds of all finalists select one of them; then fresh rounds of that finalist and the baseline alone test
/// whether it beats the baseline, evaluated only after interim_rounds of them. Deterministic: the same times
/// give the same decision.
class Chooser {
 public:
  /// `baseline`: index of the default kernel; empty without a vendor kernel (then the verdict is `only`; if there is
  /// one that failed, `default_untimed`).
  Chooser(std::vector<TieOrder> finalists, std::optional<std::size_t> baseline, const Policy& policy);

  FinalsPlan next() const;
  /// `result.times` has one column for each of plan.candidates. A column that holds a NaN is a finalist that
  /// failed, which is dropped. A call of finals that failed as a whole must be added as all NaN.
  void add(const FinalsPlan& plan, const FinalsResult& result);
  /// May be called at any time; before the plan is empty (a budget ran out) what is not proven counts as
  /// undecided.
  Decision decision() const;
  /// The best of the `allowed` finalists, ties decided by the same order, as `undecided`: for callers that
  /// cannot use the others. Its ties are allowed ones too. Empty if none of them was measured.
  Decision decision_among(const std::vector<bool>& allowed) const;
  /// The default, as `undecided`: for callers that do not believe the rounds. Requires a default with times.
  Decision default_as_undecided() const { return settle(*baseline_, Verdict::undecided); }
  /// Median ratio default/finalist of the rounds that selected it, if a test of it was made too: what another call
  /// says of the same pair.
  std::optional<double> selection_ratio(std::size_t finalist) const;

 private:
  enum class Stage { selecting, testing, decided };

  std::optional<std::size_t> fastest() const;
  /// The finalist to take where no test was made; none: the selection alone proves none faster than the default.
  std::optional<std::size_t> surely_faster() const;
  std::optional<std::size_t> fastest_of(const std::vector<bool>& candidates) const;
  std::vector<bool> racing() const;
  void narrow();
  bool selection_is_over() const;
  void start_test();
  void evaluate_test();
  void drop(std::size_t finalist);
  double noise_floor() const;
  RatioLimits limits() const;
  /// Median ratio of the selection's rounds.
  double ratio(std::size_t numerator, std::size_t denominator) const;
  double selection_time(std::size_t finalist) const;
  double drift() const;
  bool may_tie(const std::vector<double>& ratios, double drift) const;
  std::vector<std::size_t> tie_set(std::size_t winner, double drift) const;
  Decision settle(std::size_t winner, Verdict verdict) const;
  Verdict verdict_without_default() const { return lost_default_ ? Verdict::default_untimed : Verdict::only; }
  std::optional<Interval> speedup_interval(std::size_t winner, const PairedRounds& deciding) const;

  std::vector<TieOrder> finalists_;
  std::optional<std::size_t> baseline_;  // empty where it failed, too
  bool lost_default_ = false;            // … in these finals
  Policy policy_;
  Stage stage_ = Stage::selecting;
  std::vector<bool> alive_;    // did not fail
  std::vector<bool> in_race_;  // still measured in the selection
  PairedRounds selection_;
  int selection_rounds_ = 0;
  std::size_t tested_ = 0;  // the finalist that is tested against the baseline
  PairedRounds test_;       // fresh rounds of these two
  int test_rounds_ = 0;
  std::vector<double> same_ratios_;  // A against A, all rounds
  Verdict verdict_ = Verdict::none;  // once decided
  int rounds_ = 0;
};

}  // namespace gemmtune
