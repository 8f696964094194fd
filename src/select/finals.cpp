#include "select/finals.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "measure/statistics.h"
#include "select/choose.h"
#include "select/paired_rounds.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

constexpr int min_rounds = 3;                 // of one call, however little time is left
constexpr double pool_change_seconds = 0.02;  // of a round that leaves one thread pool for another
constexpr double warm_up_and_gaps = 2;        // time of a round over that of its samples

/// What a finalist adds to a round, as far as screening knows.
double round_share_seconds(double microseconds, const Policy& policy) {
  return 1e-6 * warm_up_and_gaps * std::max(microseconds, policy.sample_microseconds);
}

double round_share_seconds(const Finalist& finalist, const Policy& policy) {
  return round_share_seconds(finalist.screened_microseconds, policy);
}

double round_seconds(const FinalsTask& task) {
  double seconds = 0;
  for (const Finalist& finalist : task.finalists) seconds += round_share_seconds(finalist, task.policy);
  return seconds;
}

bool may_win(const FinalsTask& task, std::size_t finalist) {
  const ListedCandidate& listed = task.finalists[finalist].listed;
  return listed.layout == task.layout && (!task.only_winner || listed.candidate == *task.only_winner);
}

/// Finals with one set of finalists.
class FinalsRun {
 public:
  FinalsRun(const FinalsTask& task, Evaluator& evaluator)
      : task_(task),
        evaluator_(evaluator),
        chooser_(tie_orders(task), task.baseline, task.policy),
        rounds_(task.finalists.size()),
        outcomes_(task.finalists.size()) {}

  /// Measures until the chooser has decided or the time is over. An error only if nothing was measured.
  Status run(const Deadline& deadline) {
    seconds_per_round_ = round_seconds(task_);
    for (FinalsPlan plan = chooser_.next(); plan.rounds > 0; plan = chooser_.next()) {
      is_cut_ = measured_ && deadline.over();
      if (is_cut_) break;
      if (const Status status = measure(plan, deadline); !status.ok()) return measured_ ? Status() : status;
    }
    return {};
  }

  Decision decision() const { return chooser_.decision(); }
  /// The decision if the chooser's own winner is none that the row may have.
  Decision decision_of_allowed() const {
    std::vector<bool> allowed;
    for (std::size_t i = 0; i < task_.finalists.size(); ++i)
      allowed.push_back(may_win(task_, i) && outcomes_[i].kind == OutcomeKind::ok);
    return chooser_.decision_among(allowed);
  }
  const Outcome& outcome(std::size_t finalist) const { return outcomes_[finalist]; }
  const PairedRounds& rounds() const { return rounds_; }
  /// The time was over before the chooser had decided.
  bool is_cut() const { return is_cut_; }
  const Quietness& quietness() const { return quietness_; }

 private:
  static std::vector<TieOrder> tie_orders(const FinalsTask& task) {
    std::vector<TieOrder> list;
    for (const Finalist& finalist : task.finalists)
      list.push_back(tie_order_of(task.problem, finalist.listed));
    return list;
  }

  std::vector<Candidate> candidates(const FinalsPlan& plan) const {
    std::vector<Candidate> list;
    for (const std::size_t i : plan.candidates) list.push_back(task_.finalists[i].listed.candidate);
    return list;
  }

  /// As many as fit into the time, at least a few, at most all.
  int fitting_rounds(int wanted, const Deadline& deadline) const {
    const double fitting = std::max(0.0, deadline.seconds_left() / std::max(seconds_per_round_, 1e-9));
    return fitting >= wanted ? wanted : std::min(wanted, std::max(min_rounds, static_cast<int>(fitting)));
  }

  /// One plan, in several calls if the time is short. The chooser gets their rounds at once, because each
  /// evaluation of its test has its share of the error probability.
  Status measure(const FinalsPlan& plan, const Deadline& deadline) {
    FinalsResult all;
    int done = 0;
    Status status;
    while (done < plan.rounds && (done == 0 || !deadline.over())) {
      const int rounds = fitting_rounds(plan.rounds - done, deadline);
      const double before = deadline.seconds_left();
      auto part = evaluator_.finals(task_.problem, candidates(plan), rounds);
      if (!part.ok()) {
        status = part.status();
        break;
      }
      if (std::isfinite(before)) seconds_per_round_ = (before - deadline.seconds_left()) / rounds;
      done += rounds;
      all.outcomes = std::move(part->outcomes);
      all.times.insert(all.times.end(), part->times.begin(), part->times.end());
      all.same_ratios.insert(all.same_ratios.end(), part->same_ratios.begin(), part->same_ratios.end());
      quietness_ += part->quietness;
    }
    if (done == 0) return status;
    for (std::size_t i = 0; i < plan.candidates.size() && i < all.outcomes.size(); ++i) {
      outcomes_[plan.candidates[i]] = all.outcomes[i];
    }
    rounds_.add(plan.candidates, all.times);
    chooser_.add(plan, all);
    measured_ = true;
    return status;
  }

  const FinalsTask& task_;
  Evaluator& evaluator_;
  Chooser chooser_;
  PairedRounds rounds_;
  std::vector<Outcome> outcomes_;
  Quietness quietness_;
  bool measured_ = false;
  bool is_cut_ = false;
  double seconds_per_round_ = 0;
};

/// Keeps the finalists that fit into the time: the baseline and the best, which are measured in the test too,
/// and as many others as can be measured up to the first interim evaluation.
void trim(FinalsTask& task, const Deadline& deadline) {
  if (!std::isfinite(deadline.seconds_left())) return;
  const int rounds = interim_rounds(task.policy.round_limit).front();
  const auto cost = [&](const Finalist& finalist) {
    return rounds * round_share_seconds(finalist, task.policy);
  };
  double left = deadline.seconds_left();
  if (task.baseline) left -= 2 * cost(task.finalists[*task.baseline]);
  std::vector<Finalist> kept;
  std::optional<std::size_t> baseline;
  std::size_t others = 0;
  for (std::size_t i = 0; i < task.finalists.size(); ++i) {
    const Finalist& finalist = task.finalists[i];
    if (task.baseline == i) {
      baseline = kept.size();
    } else {
      left -= others == 0 ? 2 * cost(finalist) : cost(finalist);
      if (others++ > 0 && left < 0) continue;
    }
    kept.push_back(finalist);
  }
  task.finalists = std::move(kept);
  task.baseline = baseline;
}

void remove_finalist(FinalsTask& task, std::size_t index) {
  task.finalists.erase(task.finalists.begin() + static_cast<std::ptrdiff_t>(index));
  if (!task.baseline) return;
  if (*task.baseline == index) {
    task.baseline.reset();
  } else if (*task.baseline > index) {
    --*task.baseline;
  }
}

/// If the time is too short for all rounds of both stages, each stage is evaluated once: a test that is
/// reached is worth more than a finer selection. If it is too short even for that, drops the slowest
/// finalists.
void fit_rounds(FinalsTask& task, const Deadline& deadline) {
  if (!std::isfinite(deadline.seconds_left())) return;
  const auto seconds_of = [&](int rounds) { return rounds * (round_seconds(task) + pool_change_seconds); };
  const auto interim = interim_rounds(task.policy.round_limit);
  if (seconds_of(interim.back()) < deadline.seconds_left() / 2) return;
  task.policy.round_limit = interim.front();
  while (task.finalists.size() > 3 && seconds_of(interim.front()) > deadline.seconds_left() / 2) {
    const std::size_t last = task.finalists.size() - 1;
    remove_finalist(task, task.baseline == last ? last - 1 : last);
  }
}

std::string reasons(const std::vector<Trial>& trials) {
  std::string text;
  for (const Trial& trial : trials) {
    if (trial.outcome.kind == OutcomeKind::ok) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: {}: {}", trial.candidate.kernel_name(), to_string(trial.outcome.kind),
                        trial.outcome.reason);
  }
  return text.empty() ? "no finalist could be measured" : text;
}

void set_wrong_default(const FinalsTask& task, const FinalsRun& run, Settled& settled) {
  settled.wrong_default = task.wrong_default;
  if (task.baseline) {
    const Candidate& baseline = task.finalists[*task.baseline].listed.candidate;
    settled.wrong_default = wrong_default_of(baseline, run.outcome(*task.baseline));
  }
  if (!settled.wrong_default) return;
  settled.verdict = Verdict::default_wrong;
  settled.default_kernel = settled.wrong_default->kernel_name;
  settled.default_microseconds.reset();
  settled.speedup.reset();
}

Settled settled_from(const FinalsTask& task, const FinalsRun& run, const Decision& decision) {
  Settled settled;
  settled.winner = task.finalists[*decision.winner].listed;
  settled.verdict = decision.verdict;
  settled.microseconds = decision.microseconds;
  settled.spread = decision.spread;
  settled.default_microseconds = decision.default_microseconds;
  settled.speedup = decision.speedup;
  settled.err_ratio = run.outcome(*decision.winner).err_ratio;
  settled.error = run.outcome(*decision.winner).error;
  settled.noise_floor = decision.noise_floor;
  settled.drift = decision.drift;
  settled.quietness = run.quietness();
  for (const std::size_t tie : decision.ties) {
    settled.ties.push_back(task.finalists[tie].listed.candidate.kernel_name());
  }
  if (task.baseline && decision.default_microseconds) {
    settled.default_kernel = task.finalists[*task.baseline].listed.candidate.kernel_name();
  }
  for (std::size_t i = 0; i < task.finalists.size(); ++i) {
    const auto ratios = run.rounds().ratios(i, *decision.winner);
    if (run.outcome(i).kind != OutcomeKind::ok || ratios.empty()) continue;
    settled.finalists.push_back({task.finalists[i].listed, median(ratios), 1});
  }
  set_wrong_default(task, run, settled);
  return settled;
}

}  // namespace

std::optional<WrongDefault> wrong_default_of(const Candidate& baseline, const Outcome& outcome) {
  if (outcome.kind != OutcomeKind::wrong && outcome.kind != OutcomeKind::crashed) return std::nullopt;
  const std::string crashed = outcome.kind == OutcomeKind::crashed ? "it crashes: " : "";
  return WrongDefault{baseline.kernel_name(), crashed + outcome.reason};
}

double expected_finals_seconds(double microseconds, FinalsExtent extent, const Policy& policy) {
  // The shortest: the default and three more in the first rounds, two of these in a test. Whole: half of the
  // finalists leave after the first rounds, and most tests end with their first.
  const auto interim = interim_rounds(policy.round_limit);
  const double finalists = std::max(1, policy.finalists) + 1.0;
  const bool whole = extent == FinalsExtent::whole;
  const double kernels_at_first = whole ? finalists : std::min(4.0, finalists);
  const double kernels_later = whole && interim.size() > 1 ? finalists / 2 : 0;
  const double shares = interim.front() * (kernels_at_first + kernels_later + 2);
  return shares * round_share_seconds(microseconds, policy);
}

TieOrder tie_order_of(const Problem& problem, const ListedCandidate& listed) {
  return {listed.candidate.kernel_name(), listed.family->tie_rank(), listed.departures,
          listed.family->resources(problem, listed.candidate.config)};
}

Settled run_finals(const FinalsTask& given, Evaluator& evaluator, const Deadline& deadline) {
  FinalsTask task = given;
  trim(task, deadline);
  fit_rounds(task, deadline);
  const bool has_fewer_finalists = task.finalists.size() < given.finalists.size();
  const bool has_fewer_rounds = task.policy.round_limit < given.policy.round_limit;
  std::vector<Trial> lost;
  while (!task.finalists.empty()) {
    FinalsRun run(task, evaluator);
    if (const Status status = run.run(deadline); !status.ok()) {
      Settled failed;
      failed.reason = status.message();
      failed.trials = std::move(lost);
      return failed;
    }
    Decision decision = run.decision();
    if (decision.winner && !may_win(task, *decision.winner)) decision = run.decision_of_allowed();
    std::string failure;
    if (decision.winner) {
      const Candidate& winner = task.finalists[*decision.winner].listed.candidate;
      failure = neighbour_failure(task.problem, winner, evaluator);
    }
    if (decision.winner && !failure.empty()) {
      Outcome outcome = run.outcome(*decision.winner);
      outcome.kind = OutcomeKind::wrong;
      outcome.reason = std::move(failure);
      lost.push_back({task.finalists[*decision.winner].listed.candidate, std::move(outcome)});
      remove_finalist(task, *decision.winner);
      continue;
    }
    Settled settled;
    if (decision.winner) settled = settled_from(task, run, decision);
    for (std::size_t i = 0; i < task.finalists.size(); ++i) {
      lost.push_back({task.finalists[i].listed.candidate, run.outcome(i)});
      lost.back().outcome.microseconds = run.rounds().times(i);
    }
    settled.trials = std::move(lost);
    settled.is_cut =
        has_fewer_finalists || run.is_cut() || (has_fewer_rounds && decision.verdict == Verdict::undecided);
    if (!settled.winner) settled.reason = reasons(settled.trials);
    return settled;
  }
  Settled none;
  none.reason = reasons(lost);
  none.trials = std::move(lost);
  return none;
}

std::vector<std::int64_t> neighbour_ms(const Problem& problem) {
  const auto lands = [&](std::int64_t m) {
    return m >= 1 && (padded_m(m, problem.n, 0) == problem.m || padded_m(m, problem.n, 1) == problem.m);
  };
  std::set<std::int64_t> others;
  if (problem.m > 1) others.insert(problem.m - 1);
  std::int64_t smallest = problem.m;
  const std::int64_t after_half = problem.m / 2 + 1;  // the first M whose next power of two is M
  if (lands(after_half)) smallest = std::min(smallest, after_half);
  while (lands(smallest - 1)) --smallest;
  if (smallest < problem.m) others.insert(smallest);
  return {others.begin(), others.end()};
}

std::string neighbour_failure(const Problem& problem, const Candidate& candidate, Evaluator& evaluator) {
  for (const std::int64_t m : neighbour_ms(problem)) {
    const Outcome outcome = evaluator.check_neighbour_m(problem, candidate, m);
    if (outcome.kind == OutcomeKind::ok || outcome.kind == OutcomeKind::refused) continue;
    return fmt::format("at M = {}, which its row answers too: {}: {}", m, to_string(outcome.kind),
                       outcome.reason);
  }
  return {};
}

}  // namespace gemmtune
