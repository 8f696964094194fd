// Choosing: which finalist wins, from interleaved times alone. It sees numbers and texts, no machine, so that
// every rule can be tested on simulated noise. The rules and their reasoning: docs/measuring.md,
// "Statistics".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/policy.h"
#include "tuned/entry.h"
#include "evaluate/evaluator.h"

namespace gemmtune {

/// What decides a tie, in this order; then the candidate's text.
struct Finalist {
  std::string kernel_name;
  int tie_rank = 0;            // KernelFamily::tie_rank: vendor libraries first
  int departures = 0;          // ListedCandidate::departures: the plainer first
  std::int64_t resources = 0;  // KernelFamily::resources: fewer first
};

/// The fixed order of a tie.
bool before_in_order(const Finalist& a, const Finalist& b);

/// What the next call of Evaluator::finals should measure. No rounds: the decision stands.
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
  /// Every finalist that these rounds cannot tell from the winner by more than the tie band, the winner
  /// included: what a second run may name instead. Ascending.
  std::vector<std::size_t> ties;
  double noise_floor = 0;  // A against A
  /// Standard deviation, in logarithms, of a ratio of two finalists from one batch of 15 rounds to another:
  /// how far a ratio hangs on what the machine does in those seconds. 0 where there was one batch.
  double drift = 0;
  int rounds = 0;  // all that were measured
};

/// The state of one problem's finals:
///   Chooser chooser(finalists, baseline, policy);
///   for (FinalsPlan plan = chooser.next(); plan.rounds > 0; plan = chooser.next())
///     chooser.add(plan, *evaluator.finals(problem, those candidates, plan.rounds));
///   Decision decision = chooser.decision();
/// First rounds of all finalists pick a challenger; then fresh rounds of the challenger and the baseline
/// alone test it, looked at only after 15, 30 and 60 of them. Deterministic: the same times give the same
/// decision.
class Chooser {
 public:
  /// `baseline`: its index among the finalists; empty where there is no vendor kernel (then the verdict is
  /// `only`).
  Chooser(std::vector<Finalist> finalists, std::optional<std::size_t> baseline, const Policy& policy);

  FinalsPlan next() const;
  /// `result.times` has one column for each of plan.candidates. A column that holds a NaN is a finalist that
  /// failed: it is out. No result (a call of finals that failed as a whole) must be added as all NaN.
  void add(const FinalsPlan& plan, const FinalsResult& result);
  /// May be asked at any time; before the plan is empty (a budget ran out) what is not proven counts as
  /// undecided.
  Decision decision() const;
  /// The best of those finalists alone, ties decided by the same order, as `undecided`: for callers that
  /// cannot use the others. Its ties are of `allowed` too. Empty where none of them was measured.
  Decision decision_among(const std::vector<bool>& allowed) const;

 private:
  enum class Stage { selecting, testing, decided };

  std::optional<std::size_t> fastest() const;
  std::optional<std::size_t> fastest_of(const std::vector<bool>& candidates) const;
  std::vector<bool> racing() const;
  void narrow();
  bool selection_is_over() const;
  void pick_challenger();
  void look();
  void drop(std::size_t finalist);
  double noise_floor() const;
  double tie_band() const;
  std::vector<double> first_ratios(std::size_t numerator, std::size_t denominator) const;
  double drift() const;
  bool may_tie(const std::vector<double>& ratios, double drift) const;
  std::vector<std::size_t> tie_set(std::size_t winner, double drift) const;
  Decision settle(std::size_t winner, Verdict verdict) const;

  std::vector<Finalist> finalists_;
  std::optional<std::size_t> baseline_;  // empty where it failed, too
  Policy policy_;
  Stage stage_ = Stage::selecting;
  std::vector<bool> alive_;                 // did not fail
  std::vector<bool> in_race_;               // still measured in the first stage
  std::vector<std::vector<double>> first_;  // a finalist's times in the first rounds
  int first_rounds_ = 0;
  std::size_t challenger_ = 0;
  bool tied_ = false;                    // the challenger was taken from several by the fixed order
  std::vector<double> test_challenger_;  // fresh rounds
  std::vector<double> test_baseline_;
  std::vector<double> same_ratios_;  // A against A, all rounds
  double reported_floor_ = 0;        // of an evaluator that gives no same_ratios
  Verdict verdict_ = Verdict::none;  // once decided
  int rounds_ = 0;
};

/// How many rounds each stage may have, and the only numbers of rounds after which it is looked at: 15, 30
/// and 60 as far as `round_limit` allows; a smaller limit is the only look.
std::vector<int> round_looks(int round_limit);
/// Chance that a challenger which is not below the limit passes the test, over all looks together.
inline constexpr double test_alpha = 0.01;

}  // namespace gemmtune
