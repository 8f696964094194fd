#include "select/routings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "measure/statistics.h"
#include "select/paired_comparison.h"
#include "select/paired_rounds.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_compared = 6;  // winner and default included
constexpr double contender_ratio =
    1.2;  // slower than the fastest by more on one routing: not compared on others
constexpr int routed_rounds = 9;
constexpr int routed_test_rounds = 15;
constexpr double routed_overhead = 2;  // as of finals: warm-up and gaps

double rounds_seconds(std::size_t kernels, int rounds, double microseconds, const Policy& policy) {
  const double sample = std::max(microseconds, policy.sample_microseconds);
  return 1e-6 * routed_overhead * sample * static_cast<double>(kernels) * rounds;
}

struct RoutedFinalist {
  MeasuredFinalist finalist;
  bool may_win = false;
  double max_loss = 0;  // over all routings
};

class RoutingContest {
 public:
  RoutingContest(const Problem& problem, WeightLayout layout, const Policy& policy, Settled tuned,
                 Evaluator& evaluator)
      : problem_(problem),
        layout_(layout),
        policy_(policy),
        tuned_(std::move(tuned)),
        evaluator_(evaluator) {}

  Settled run(const Deadline& deadline);

 private:
  static constexpr std::size_t winner = 0;  // of the contenders

  void select_contenders();
  static std::string name_of(const RoutedFinalist& contender) {
    return contender.finalist.listed.candidate.kernel_name();
  }
  bool is_default(const RoutedFinalist& contender) const {
    return name_of(contender) == tuned_.default_kernel;
  }
  /// False, with the reason in tuned_, where there is no time for them or they fail.
  bool measure(const Routing& routing, const std::vector<std::size_t>& contenders, int rounds,
               PairedRounds& times, const Deadline& deadline);
  /// Each contender's time over the fastest one's, minus 1; NaN where it failed.
  std::vector<double> losses(const PairedRounds& times) const;
  void note_losses(const std::vector<double>& losses);
  Settled settle(std::size_t chosen, const Deadline& deadline);
  /// Finalists that lose more than the chosen one would only be taken by a later pass that does not know it.
  void keep_safe_finalists(double max_loss);

  const Problem& problem_;
  WeightLayout layout_;
  const Policy& policy_;
  Settled tuned_;
  Evaluator& evaluator_;
  std::vector<RoutedFinalist> contenders_;
};

void RoutingContest::select_contenders() {
  double fastest = 1;
  for (const MeasuredFinalist& finalist : tuned_.finalists) fastest = std::min(fastest, finalist.ratio);
  for (const MeasuredFinalist& finalist : tuned_.finalists) {
    RoutedFinalist contender;
    contender.finalist = finalist;
    contender.may_win = finalist.listed.layout == layout_;
    contender.max_loss = finalist.ratio / fastest - 1;
    contenders_.push_back(std::move(contender));
  }
  const auto rank = [&](const RoutedFinalist& one) {
    if (one.finalist.listed.candidate == tuned_.winner->candidate) return 0;
    return is_default(one) ? 1 : 2;
  };
  std::ranges::stable_sort(contenders_, [&](const RoutedFinalist& a, const RoutedFinalist& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.finalist.ratio < b.finalist.ratio;
  });
  std::erase_if(contenders_, [&](const RoutedFinalist& one) {
    return rank(one) == 2 && (!one.may_win || one.finalist.ratio > contender_ratio * fastest);
  });
  if (contenders_.size() > max_compared) contenders_.resize(max_compared);
}

bool RoutingContest::measure(const Routing& routing, const std::vector<std::size_t>& contenders, int rounds,
                             PairedRounds& times, const Deadline& deadline) {
  if (deadline.seconds_left() < rounds_seconds(contenders.size(), rounds, tuned_.microseconds, policy_)) {
    tuned_.routing_reason = fmt::format("the budget left no time for rounds on {}", routing.text());
    tuned_.is_cut = true;
    return false;
  }
  std::vector<Candidate> candidates;
  for (const std::size_t i : contenders) candidates.push_back(contenders_[i].finalist.listed.candidate);
  const auto result = evaluator_.finals_on(routing.kind, problem_, candidates, rounds);
  if (!result.ok()) {
    tuned_.routing_reason = result.message();
    return false;
  }
  times.add(contenders, result->times);
  tuned_.quietness += result->quietness;
  if (!times.times(winner).empty()) return true;
  tuned_.routing_reason = fmt::format("the winner failed on {}", routing.text());
  return false;
}

std::vector<double> RoutingContest::losses(const PairedRounds& times) const {
  std::vector<double> losses(contenders_.size(), std::nan(""));
  double fastest = 1;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    const auto ratios = times.ratios(i, winner);
    if (ratios.empty()) continue;
    losses[i] = median(ratios);
    fastest = std::min(fastest, losses[i]);
  }
  for (double& loss : losses) loss = loss / fastest - 1;
  return losses;
}

void RoutingContest::note_losses(const std::vector<double>& losses) {
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (std::isnan(losses[i])) contenders_[i].may_win = false;
    contenders_[i].max_loss = std::fmax(contenders_[i].max_loss, losses[i]);
  }
}

void RoutingContest::keep_safe_finalists(double max_loss) {
  const double limit = std::max(max_routing_loss, max_loss);
  std::erase_if(tuned_.finalists, [&](const MeasuredFinalist& finalist) {
    const auto of = [&](const RoutedFinalist& one) {
      return one.finalist.listed.candidate == finalist.listed.candidate;
    };
    const auto known = std::ranges::find_if(contenders_, of);
    if (known == contenders_.end()) return true;
    return known->max_loss > limit && known != contenders_.begin() && !is_default(*known);
  });
}

Settled RoutingContest::settle(std::size_t chosen, const Deadline& deadline) {
  const auto as_finalist = [&](const RoutedFinalist& contender) {
    return Finalist{contender.finalist.listed, tuned_.microseconds * contender.finalist.ratio};
  };
  const RoutedFinalist& contender = contenders_[chosen];
  FinalsTask task{problem_, {as_finalist(contender)}, {}, layout_, policy_};
  task.only_winner = contender.finalist.listed.candidate;
  task.default_fault = tuned_.default_fault;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (!is_default(contenders_[i])) continue;
    if (i != chosen) task.finalists.push_back(as_finalist(contenders_[i]));
    task.baseline = task.finalists.size() - 1;
  }
  Settled settled = run_finals(task, evaluator_, deadline);
  if (!settled.winner) {
    tuned_.routing_reason = fmt::format("{} was safer, and failed: {}", name_of(contender), settled.reason);
    tuned_.trials.insert(tuned_.trials.end(), settled.trials.begin(), settled.trials.end());
    return tuned_;
  }
  keep_safe_finalists(contender.max_loss);
  std::erase_if(tuned_.finalists, [&](const MeasuredFinalist& finalist) {
    return finalist.listed.candidate == tuned_.winner->candidate &&
           finalist.listed.candidate.kernel_name() != tuned_.default_kernel;
  });
  settled.finalists = tuned_.finalists;
  for (MeasuredFinalist& finalist : settled.finalists) finalist.ratio /= contender.finalist.ratio;
  settled.ties = {name_of(contender)};
  settled.trials = tuned_.trials;
  settled.quietness += tuned_.quietness;
  settled.noise_floor = std::max(settled.noise_floor, tuned_.noise_floor);
  settled.drift = tuned_.drift;
  settled.is_cut = settled.is_cut || tuned_.is_cut;
  settled.routing_losses = tuned_.routing_losses;
  settled.instead_of = tuned_.winner->candidate.kernel_name();
  return settled;
}

Settled RoutingContest::run(const Deadline& deadline) {
  select_contenders();
  if (contenders_.empty() || contenders_.front().finalist.listed.candidate != tuned_.winner->candidate)
    return tuned_;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < contenders_.size(); ++i) all.push_back(i);
  struct OnRouting {
    Routing routing;
    std::vector<double> losses;
    std::size_t best = 0;
  };
  std::vector<OnRouting> others;
  for (const Routing& routing : policy_.other_routings(problem_)) {
    PairedRounds times(contenders_.size());
    if (!measure(routing, all, routed_rounds, times, deadline)) return tuned_;
    OnRouting on{routing, losses(times)};
    for (std::size_t i = 0; i < on.losses.size(); ++i) {
      if (on.losses[i] < on.losses[on.best]) on.best = i;
    }
    note_losses(on.losses);
    others.push_back(std::move(on));
  }
  for (const OnRouting& on : others) {
    const std::string best = name_of(contenders_[on.best]);
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (!std::isnan(on.losses[i]))
        tuned_.routing_losses.push_back({name_of(contenders_[i]), on.routing.text(), on.losses[i], best});
    }
  }
  const auto worst = std::ranges::max_element(
      others, [](const OnRouting& a, const OnRouting& b) { return a.losses[winner] < b.losses[winner]; });
  if (worst == others.end() || worst->losses[winner] <= max_routing_loss) {
    keep_safe_finalists(0);
    return tuned_;
  }
  std::size_t safest = winner;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (contenders_[i].may_win && contenders_[i].max_loss < contenders_[safest].max_loss) safest = i;
  }
  if (safest == winner) return tuned_;
  // The best of several was selected from those rounds: only fresh ones prove a loss.
  std::vector<std::size_t> again{winner, safest};
  if (worst->best != safest) again.push_back(worst->best);
  PairedRounds fresh(contenders_.size());
  if (!measure(worst->routing, again, routed_test_rounds, fresh, deadline)) return tuned_;
  const bool loses = is_above(fresh.ratios(winner, worst->best), 1 + max_routing_loss, test_alpha);
  if (!loses || !is_above(fresh.ratios(winner, safest), 1, test_alpha)) return tuned_;
  return settle(safest, deadline);
}

}  // namespace

double expected_routing_seconds(const Problem& problem, double microseconds, const Policy& policy) {
  const auto routings = static_cast<double>(policy.other_routings(problem).size());
  return routings * rounds_seconds(max_compared, routed_rounds, microseconds, policy);
}

Settled hold_on_routings(const Problem& problem, WeightLayout layout, const Policy& policy, Settled tuned,
                         Evaluator& evaluator, const Deadline& deadline) {
  if (!tuned.winner || policy.other_routings(problem).empty()) return tuned;
  return RoutingContest(problem, layout, policy, std::move(tuned), evaluator).run(deadline);
}

Settled keep_safer(Settled settled, std::optional<Settled>& safer) {
  if (settled.routing_reason.empty()) {
    safer.reset();
    if (!settled.instead_of.empty()) safer = settled;
    return settled;
  }
  const bool gave_way =
      safer && settled.winner && settled.winner->candidate.kernel_name() == safer->instead_of;
  if (!gave_way) return settled;
  Settled kept = *safer;
  kept.trials = std::move(settled.trials);
  kept.is_cut = true;
  return kept;
}

}  // namespace gemmtune
