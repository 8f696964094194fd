#include "select/energy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "measure/sampler.h"
#include "measure/statistics.h"
#include "select/paired_rounds.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_contenders = 8;  // winner and default included
constexpr double expected_contenders = 5;  // for estimates
constexpr int selection_rounds = 3;
/// Of the selected one and the winner by time: 7 of 7 are below a limit that is the median once in 128 times, less than
/// test_alpha.
constexpr int test_rounds = 7;
constexpr double energy_tie_confidence = 0.995;

double value_of(double joules, double microseconds, Objective objective) {
  switch (objective) {
    case Objective::time:
      return microseconds;
    case Objective::energy:
      return joules;
    case Objective::edp:
      return joules * microseconds;
  }
  return microseconds;
}

struct Contender {
  MeasuredFinalist finalist;
  std::vector<double> joules;
  std::vector<double> microseconds;
  bool may_win = false;
};

class EnergyContest {
 public:
  EnergyContest(const Problem& problem, WeightLayout layout, const Policy& policy, Settled by_time,
                Evaluator& evaluator)
      : problem_(problem),
        layout_(layout),
        policy_(policy),
        by_time_(std::move(by_time)),
        evaluator_(evaluator) {}

  Settled run(const Deadline& deadline);

 private:
  void select_contenders();
  /// Batches of the contenders; false, with the reason in by_time_, where there is no time for them or they fail.
  bool measure(const std::vector<std::size_t>& contenders, int rounds, PairedRounds& values,
               const Deadline& deadline);
  /// The best by the objective; of those that are as good the fastest.
  std::size_t selected(const PairedRounds& values) const;
  bool is_default(const Contender& contender) const {
    return contender.finalist.listed.candidate.kernel_name() == by_time_.default_kernel;
  }
  Finalist as_finalist(const Contender& contender) const {
    return {contender.finalist.listed, by_time_.microseconds * contender.finalist.ratio};
  }
  Settled settle(std::size_t chosen, const PairedRounds& values, const Deadline& deadline);
  Settled with_energies(Settled settled) const;

  const Problem& problem_;
  WeightLayout layout_;
  const Policy& policy_;
  Settled by_time_;
  Evaluator& evaluator_;
  std::vector<Contender> contenders_;
  std::size_t winner_ = 0;  // by time
};

void EnergyContest::select_contenders() {
  double fastest = 1;
  for (const MeasuredFinalist& finalist : by_time_.finalists) fastest = std::min(fastest, finalist.ratio);
  const auto is_winner = [&](const Contender& contender) {
    return contender.finalist.listed.candidate == by_time_.winner->candidate;
  };
  for (const MeasuredFinalist& finalist : by_time_.finalists) {
    Contender contender;
    contender.finalist = finalist;
    const bool is_near = finalist.ratio <= energy_time_limit * fastest;
    contender.may_win = is_winner(contender) ||
                        (is_near && !finalist.listed.is_opponent && finalist.listed.layout == layout_);
    if (contender.may_win || is_default(contender)) contenders_.push_back(std::move(contender));
  }
  std::ranges::stable_sort(contenders_, [&](const Contender& a, const Contender& b) {
    const auto rank = [&](const Contender& one) { return is_winner(one) || is_default(one) ? 0 : 1; };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.finalist.ratio < b.finalist.ratio;
  });
  if (contenders_.size() > max_contenders) contenders_.resize(max_contenders);
  winner_ = static_cast<std::size_t>(std::ranges::find_if(contenders_, is_winner) - contenders_.begin());
}

bool EnergyContest::measure(const std::vector<std::size_t>& contenders, int rounds, PairedRounds& values,
                            const Deadline& deadline) {
  double seconds = 0;
  std::vector<Candidate> candidates;
  for (const std::size_t i : contenders) {
    seconds += rounds * energy_batch_length(as_finalist(contenders_[i]).screened_microseconds);
    candidates.push_back(contenders_[i].finalist.listed.candidate);
  }
  if (deadline.seconds_left() < seconds) {
    by_time_.energy_reason = "the budget left no time for energy batches";
    by_time_.is_cut = true;
    return false;
  }
  const auto result = evaluator_.energy(problem_, candidates, rounds);
  if (!result.ok()) {
    by_time_.energy_reason = result.message();
    return false;
  }
  std::vector<std::vector<double>> products = result->joules;
  for (std::size_t round = 0; round < products.size(); ++round) {
    for (std::size_t k = 0; k < contenders.size() && k < products[round].size(); ++k) {
      const double microseconds = result->times[round][k];
      const double joules = result->joules[round][k];
      products[round][k] = value_of(joules, microseconds, policy_.objective);
      if (!std::isfinite(joules) || !std::isfinite(microseconds)) continue;
      contenders_[contenders[k]].joules.push_back(joules);
      contenders_[contenders[k]].microseconds.push_back(microseconds);
    }
  }
  values.add(contenders, products);
  if (!values.times(contenders.front()).empty()) return true;
  by_time_.energy_reason = "the winner failed in its energy batches";
  return false;
}

std::size_t EnergyContest::selected(const PairedRounds& values) const {
  std::vector<double> medians(contenders_.size(), std::nan(""));
  double least = 1;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    const auto ratios = values.ratios(i, winner_);
    if (!contenders_[i].may_win || ratios.empty()) continue;
    medians[i] = median(ratios);
    least = std::min(least, medians[i]);
  }
  std::size_t chosen = winner_;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (std::isnan(medians[i]) || medians[i] > least * (1 + policy_.tie_band)) continue;
    const bool is_better = medians[chosen] > least * (1 + policy_.tie_band);
    if (is_better || contenders_[i].finalist.ratio < contenders_[chosen].finalist.ratio) chosen = i;
  }
  return chosen;
}

Settled EnergyContest::with_energies(Settled settled) const {
  for (const Contender& contender : contenders_) {
    if (contender.joules.empty()) continue;
    settled.energies.push_back({contender.finalist.listed.candidate.kernel_name(), median(contender.joules),
                                spread(contender.joules), median(contender.microseconds),
                                static_cast<int>(contender.joules.size())});
  }
  return settled;
}

// The finals compared it with all the others and selected another one: its time against the default is measured anew.
Settled EnergyContest::settle(std::size_t chosen, const PairedRounds& values, const Deadline& deadline) {
  const Contender& contender = contenders_[chosen];
  FinalsTask task{problem_, {as_finalist(contender)}, {}, layout_, policy_};
  task.only_winner = contender.finalist.listed.candidate;
  task.default_fault = by_time_.default_fault;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (!is_default(contenders_[i])) continue;
    if (i != chosen) task.finalists.push_back(as_finalist(contenders_[i]));
    task.baseline = task.finalists.size() - 1;
  }
  Settled settled = run_finals(task, evaluator_, deadline);
  if (!settled.winner) {
    by_time_.energy_reason = fmt::format("{} had fewer joules, and failed: {}",
                                         contender.finalist.listed.candidate.kernel_name(), settled.reason);
    by_time_.trials.insert(by_time_.trials.end(), settled.trials.begin(), settled.trials.end());
    return by_time_;
  }
  if (settled.verdict == Verdict::undecided || settled.verdict == Verdict::keep_default)
    settled.verdict = Verdict::energy;
  settled.ties.clear();
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    const auto ratios = values.ratios(i, chosen);
    if (!contenders_[i].may_win || ratios.empty()) continue;
    if (median_interval(ratios, energy_tie_confidence).low <= 1 + policy_.tie_band)
      settled.ties.push_back(contenders_[i].finalist.listed.candidate.kernel_name());
  }
  settled.finalists = by_time_.finalists;
  for (MeasuredFinalist& finalist : settled.finalists) finalist.ratio /= contender.finalist.ratio;
  settled.trials = by_time_.trials;
  settled.quietness += by_time_.quietness;
  settled.noise_floor = std::max(settled.noise_floor, by_time_.noise_floor);
  settled.drift = by_time_.drift;
  settled.is_cut = by_time_.is_cut;
  settled.chosen_by = policy_.objective;
  return settled;
}

Settled EnergyContest::run(const Deadline& deadline) {
  select_contenders();
  if (winner_ == contenders_.size()) return by_time_;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < contenders_.size(); ++i) all.push_back(i);
  std::swap(all.front(), all[winner_]);
  PairedRounds values(contenders_.size());
  if (!measure(all, selection_rounds, values, deadline)) return by_time_;
  if (policy_.objective == Objective::time) return with_energies(by_time_);
  const std::size_t chosen = selected(values);
  PairedRounds fresh(contenders_.size());
  if (chosen != winner_) {
    if (!measure({winner_, chosen}, test_rounds, fresh, deadline)) return with_energies(by_time_);
    if (is_below(fresh.ratios(chosen, winner_), 1 - policy_.tie_band, test_alpha))
      return with_energies(settle(chosen, values, deadline));
  }
  by_time_.chosen_by = policy_.objective;
  return with_energies(by_time_);
}

}  // namespace

double expected_energy_seconds(double microseconds, const Policy& policy) {
  const bool decides = policy.objective != Objective::time;
  const double batches = expected_contenders * selection_rounds + (decides ? 2 * test_rounds : 0);
  return batches * energy_batch_length(microseconds) +
         (decides ? expected_finals_seconds(microseconds, FinalsExtent::shortest, policy) : 0);
}

Settled weigh_energy(const Problem& problem, WeightLayout layout, const Policy& policy, Settled by_time,
                     Evaluator& evaluator, const Deadline& deadline) {
  if (!by_time.winner) return by_time;
  return EnergyContest(problem, layout, policy, std::move(by_time), evaluator).run(deadline);
}

const KernelEnergy* find_energy(const std::vector<KernelEnergy>& energies, std::string_view kernel_name) {
  const auto found = std::ranges::find(energies, kernel_name, &KernelEnergy::kernel_name);
  return found == energies.end() ? nullptr : &*found;
}

std::optional<double> objective_value(const Settled& settled, Objective objective) {
  if (objective == Objective::time) return settled.microseconds;
  const KernelEnergy* energy = find_energy(settled.energies, settled.winner->candidate.kernel_name());
  if (energy == nullptr) return std::nullopt;
  return value_of(energy->joules, energy->microseconds, objective);
}

}  // namespace gemmtune
