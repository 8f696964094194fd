#include "select/confirmation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "measure/statistics.h"
#include "select/paired_rounds.h"
#include "select/screened_ties.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_confirmed = 8;  // finalists that are measured again, default and winner included
constexpr int rounds_again = 30;          // of all of them
constexpr int rounds_per_call = 15;       // the deadline is checked between calls
constexpr std::array<int, 2> further_rounds = {15, 30};  // of a test against the default
constexpr double normal_95 = 1.645;

/// Adds a kernel to the ties unless it is one already: their number is published.
void add_tie(const Candidate& candidate, Settled& settled) {
  const std::string name = candidate.kernel_name();
  if (std::find(settled.ties.begin(), settled.ties.end(), name) == settled.ties.end())
    settled.ties.push_back(name);
}

/// A finalist that is measured again.
struct Entry {
  MeasuredFinalist finalist;  // after the finals
  double before = 0;          // log ratio to the reference in the finals
  double now = 0;             // the same in this pass
  bool alive = false;         // measured again, and right
  double both() const { return (before + now) / 2; }
};

class ConfirmationPass {
 public:
  ConfirmationPass(const Problem& problem, WeightLayout layout, const Policy& policy, const Settled& first,
                   Evaluator& evaluator)
      : problem_(problem), layout_(layout), policy_(policy), first_(first), evaluator_(evaluator) {}

  Confirmation run(const Deadline& deadline);

 private:
  void select_finalists();
  bool measure(const Deadline& deadline);
  /// The fastest in both passes, ties by the fixed order; the default only if none beats it.
  std::size_t best() const;
  /// In both passes together, and behind it in neither: noise that lasts through one pass makes any difference there.
  bool beats_default(std::size_t entry) const {
    if (!default_) return true;
    const Entry& one = entries_[entry];
    const Entry& other = entries_[*default_];
    return one.both() - other.both() < std::log(policy_.prefer_ratio) && one.before < other.before &&
           one.now < other.now;
  }
  RatioLimits limits() const { return ratio_limits(policy_, first_.noise_floor); }
  bool usable(std::size_t entry) const {
    const ListedCandidate& listed = entries_[entry].finalist.listed;
    return entries_[entry].alive && !listed.is_opponent && listed.layout == layout_;
  }
  bool passes_test(std::size_t entry, const Deadline& deadline);
  bool is_right_elsewhere(std::size_t entry) {
    return neighbour_failure(problem_, entries_[entry].finalist.listed.candidate, evaluator_).empty();
  }
  Settled settle(std::size_t winner, Verdict verdict) const;
  std::optional<Interval> interval_of(std::size_t winner, double before) const;

  const Problem& problem_;
  WeightLayout layout_;
  const Policy& policy_;
  const Settled& first_;
  Evaluator& evaluator_;
  std::vector<Entry> entries_;
  std::size_t winner_ = 0;     // of the finals
  std::size_t reference_ = 0;  // of ratios: the winner of the finals; the default if that failed now
  std::optional<std::size_t> default_;
  PairedRounds rounds_;
  std::vector<Outcome> outcomes_;
  Quietness quietness_;
};

void ConfirmationPass::select_finalists() {
  std::vector<MeasuredFinalist> finalists = first_.finalists;
  const std::set<std::string> ties(first_.ties.begin(), first_.ties.end());
  const auto rank = [&](const MeasuredFinalist& finalist) {
    const std::string name = finalist.listed.candidate.kernel_name();
    if (finalist.listed.candidate == first_.winner->candidate || name == first_.default_kernel) return 0;
    return ties.contains(name) ? 1 : 2;
  };
  std::ranges::stable_sort(finalists, [&](const MeasuredFinalist& a, const MeasuredFinalist& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.ratio < b.ratio;
  });
  if (finalists.size() > max_confirmed) finalists.resize(max_confirmed);
  for (MeasuredFinalist& finalist : finalists) {
    if (finalist.listed.candidate == first_.winner->candidate) winner_ = entries_.size();
    if (finalist.listed.candidate.kernel_name() == first_.default_kernel) default_ = entries_.size();
    entries_.push_back({std::move(finalist)});
  }
}

bool ConfirmationPass::measure(const Deadline& deadline) {
  std::vector<std::size_t> all;
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    all.push_back(i);
    candidates.push_back(entries_[i].finalist.listed.candidate);
  }
  rounds_ = PairedRounds(entries_.size());
  for (int rounds = 0; rounds < rounds_again; rounds += rounds_per_call) {
    if (deadline.over()) return false;
    const auto result = evaluator_.finals(problem_, candidates, rounds_per_call);
    if (!result.ok()) return false;
    rounds_.add(all, result->times);
    outcomes_ = result->outcomes;
    quietness_ += result->quietness;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i)
    entries_[i].alive = outcomes_[i].kind == OutcomeKind::ok && !rounds_.times(i).empty();
  reference_ = entries_[winner_].alive ? winner_ : default_.value_or(winner_);
  const Entry& reference = entries_[reference_];
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const auto ratios = rounds_.ratios(i, reference_);
    entry.alive = entry.alive && !ratios.empty();
    if (!entry.alive) continue;
    entry.before = std::log(entry.finalist.ratio / reference.finalist.ratio);
    entry.now = std::log(median(ratios));
  }
  return reference.alive && (!default_ || entries_[*default_].alive);
}

std::size_t ConfirmationPass::best() const {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!usable(i) || i == default_ || !beats_default(i)) continue;
    if (!fastest || entries_[i].both() < entries_[*fastest].both()) fastest = i;
  }
  if (!fastest) return default_ ? *default_ : winner_;
  std::size_t chosen = *fastest;
  const double limit = std::log(limits().tie);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!usable(i) || i == default_ || !beats_default(i)) continue;
    if (entries_[i].both() - entries_[*fastest].both() > limit) continue;
    if (precedes_in_tie(tie_order_of(problem_, entries_[i].finalist.listed),
                        tie_order_of(problem_, entries_[chosen].finalist.listed)))
      chosen = i;
  }
  return chosen;
}

// The pass's own rounds count, because the finals selected who takes part; alpha is divided by the number of
// finalists, because the best of them was selected from these rounds.
bool ConfirmationPass::passes_test(std::size_t entry, const Deadline& deadline) {
  if (!default_) return true;
  const Candidate both[] = {entries_[*default_].finalist.listed.candidate,
                            entries_[entry].finalist.listed.candidate};
  const double limit = limits().win;
  const auto evaluations = static_cast<double>(further_rounds.size() + 1);
  const double alpha = test_alpha / (evaluations * static_cast<double>(entries_.size()));
  std::vector<double> ratios = rounds_.ratios(entry, *default_);
  if (is_below(ratios, limit, alpha)) return true;
  for (const int rounds : further_rounds) {
    if (deadline.over()) return false;
    const auto result = evaluator_.finals(problem_, both, rounds);
    if (!result.ok()) return false;
    for (const auto& round : result->times) {
      if (!std::isfinite(round[0]) || !std::isfinite(round[1])) return false;
      ratios.push_back(round[1] / round[0]);
    }
    if (is_below(ratios, limit, alpha)) return true;
  }
  return false;
}

/// Holds the intervals of both passes: the machine was in another state in each.
std::optional<Interval> ConfirmationPass::interval_of(std::size_t winner, double before) const {
  if (winner == *default_) return std::nullopt;
  Interval interval = median_interval(rounds_.ratios(*default_, winner), 0.95);
  const Interval first =
      winner == winner_ && first_.speedup_interval ? *first_.speedup_interval : Interval{before, before};
  return Interval{std::min(first.low, interval.low), std::max(first.high, interval.high)};
}

Settled ConfirmationPass::settle(std::size_t winner, Verdict verdict) const {
  Settled settled = first_;
  const Entry& entry = entries_[winner];
  const double first_us = first_.microseconds * entry.finalist.ratio;
  const auto times = rounds_.times(winner);
  settled.winner = entry.finalist.listed;
  settled.verdict = verdict;
  settled.microseconds = std::sqrt(first_us * median(times));
  settled.spread = std::max(first_.spread, spread(times));
  settled.err_ratio = outcomes_[winner].err_ratio;
  settled.error = outcomes_[winner].error;
  settled.quietness += quietness_;
  if (verdict == Verdict::win) settled.doubt.clear();  // this pass proved it
  if (default_) {
    const double before = winner == winner_ && first_.speedup
                              ? *first_.speedup
                              : entries_[*default_].finalist.ratio / entry.finalist.ratio;
    const double now = median(rounds_.ratios(*default_, winner));
    settled.speedup = winner == *default_ ? 1 : std::sqrt(before * now);
    settled.default_microseconds = settled.microseconds * *settled.speedup;
    settled.speedup_interval = interval_of(winner, before);
  }
  add_tie(entry.finalist.listed.candidate, settled);
  for (MeasuredFinalist& finalist : settled.finalists) {
    const auto again = std::ranges::find_if(entries_, [&](const Entry& other) {
      return other.finalist.listed.candidate == finalist.listed.candidate;
    });
    const bool both = again != entries_.end() && again->alive;
    finalist.passes = both ? 2 : 1;
    finalist.ratio = both ? std::exp(again->both() - entry.both()) : finalist.ratio / entry.finalist.ratio;
  }
  return settled;
}

Confirmation ConfirmationPass::run(const Deadline& deadline) {
  select_finalists();
  if (entries_.size() < 2 || !measure(deadline)) return {first_, {}, quietness_};
  Confirmation result;
  result.quietness = quietness_;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i == reference_ || !entries_[i].alive) continue;
    result.changes.push_back(entries_[i].now - entries_[i].before);
  }
  const std::size_t wanted = best();
  const bool still_wins = usable(winner_) && beats_default(winner_);
  if (wanted == winner_) {
    result.settled = settle(winner_, first_.verdict);
  } else if (wanted != default_ && passes_test(wanted, deadline) && is_right_elsewhere(wanted)) {
    const Verdict without_default = first_.default_fault ? first_.default_fault->verdict : Verdict::only;
    result.settled = settle(wanted, default_ ? Verdict::win : without_default);
  } else if (winner_ == default_ || still_wins || !default_ || !usable(*default_)) {
    if (!entries_[winner_].alive) return {first_, {}, quietness_};
    result.settled = settle(winner_, first_.verdict);
  } else {
    result.settled = settle(*default_, Verdict::undecided);
  }
  return result;
}

}  // namespace

Confirmation confirm(const Problem& problem, WeightLayout layout, const Policy& policy, const Settled& first,
                     Evaluator& evaluator, const Deadline& deadline) {
  return ConfirmationPass(problem, layout, policy, first, evaluator).run(deadline);
}

double pass_deviation(std::span<const double> changes) {
  if (changes.empty()) return 0;
  std::vector<double> sizes;
  for (const double change : changes) sizes.push_back(std::fabs(change));
  std::ranges::sort(sizes);
  const auto at = static_cast<std::size_t>(0.9 * static_cast<double>(sizes.size() - 1));
  return sizes[at] / (normal_95 * M_SQRT2);
}

void widen_ties(const std::vector<Trial>& screened, const Policy& policy, double pass_deviation,
                Settled& settled) {
  const double limit = ratio_limits(policy, settled.noise_floor).declared_tie;
  // Of this run's ratio and of another run's, which is of two passes.
  const auto deviation = [&](int passes) {
    return deviation_of_runs(pass_deviation * std::sqrt(1.0 / passes + 0.5));
  };
  for (const MeasuredFinalist& finalist : settled.finalists) {
    if (finalist.ratio <= limit * std::exp(normal_99_5 * deviation(finalist.passes)))
      add_tie(finalist.listed.candidate, settled);
  }
  add_screened_ties(screened, {limit, deviation(1)}, settled);
}

}  // namespace gemmtune
