#include "select/finals.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "select/belief.h"
#include "select/paired_rounds.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

constexpr int min_rounds = 3;                 // of one call, however little time is left
constexpr double pool_change_seconds = 0.02;  // of a round that leaves one thread pool for another
constexpr double warm_up_and_gaps = 2;        // time of a round over that of its samples
constexpr double min_rounds_share = 0.3;      // of the time, however long the checks of the winner take
constexpr double call_seconds = 2;  // of one call: then the deadline is asked and the ratio is shown

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
  return !listed.is_opponent && listed.layout == task.layout &&
         (!task.only_winner || listed.candidate == *task.only_winner);
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

  /// Measures a pair again whose times other times of the run contradict. What stays contradicted is undecided.
  Decision decision(const Deadline& deadline) {
    const Decision decision = chooser_.decision();
    if (!decision.winner || !decision.default_microseconds) return decision;
    const PairEvidence evidence = evidence_of(decision);
    doubt_ = doubt_of(evidence);
    if (!doubt_.empty() && is_same_again(evidence, *decision.winner, deadline)) doubt_.clear();
    if (doubt_.empty() && decision.verdict == Verdict::win) doubt_ = doubt_of_win(evidence);
    if (doubt_.empty()) return decision;
    quietness_.rounds = quietness_.disturbed = std::max(quietness_.rounds, decision.rounds);
    return chooser_.default_as_undecided();
  }
  const std::string& doubt() const { return doubt_; }
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
  double roof_microseconds() const { return roof_microseconds_; }

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

  /// As many as fit into the time and into one call, at least a few, at most all.
  int fitting_rounds(int wanted, double round_seconds, const Deadline& deadline) const {
    // Screening said what a round takes, maybe on a quieter machine: under a time limit a few are tried first.
    if (!measured_round_ && std::isfinite(deadline.seconds_left())) return std::min(wanted, min_rounds);
    const double in_call = call_seconds / std::max(round_seconds, 1e-9);
    const double in_time = std::max(0.0, deadline.seconds_left() / std::max(seconds_per_round_, 1e-9));
    const double fitting = std::min(in_call, in_time);
    return fitting >= wanted ? wanted : std::min(wanted, std::max(min_rounds, static_cast<int>(fitting)));
  }

  PairEvidence evidence_of(const Decision& decision) const {
    PairEvidence evidence;
    const Finalist& baseline = task_.finalists[*task_.baseline];
    evidence.rounds.default_us = *decision.default_microseconds;
    evidence.screened.default_us = baseline.screened_microseconds;
    evidence.early.default_us = baseline.early_microseconds;
    evidence.roof_microseconds = roof_microseconds_;
    if (decision.winner == task_.baseline) return evidence;
    evidence.rounds.kernel_us = evidence.rounds.default_us / *decision.speedup;
    evidence.screened.kernel_us = task_.finalists[*decision.winner].screened_microseconds;
    evidence.early.kernel_us = task_.finalists[*decision.winner].early_microseconds;
    evidence.screening_deviation = task_.screening_deviation;
    evidence.other_ratio = chooser_.selection_ratio(*decision.winner);
    return evidence;
  }

  /// Fresh rounds of the pair agree with those that are doubted.
  bool is_same_again(const PairEvidence& evidence, std::size_t winner, const Deadline& deadline) {
    if (deadline.over()) return false;
    FinalsPlan plan{{*task_.baseline}, interim_rounds(task_.policy.round_limit).front()};
    if (winner != *task_.baseline) plan.candidates.push_back(winner);
    const auto again = rounds_of(plan, deadline);
    if (!again.ok()) return false;
    PairedRounds fresh(plan.candidates.size());
    std::vector<std::size_t> columns;
    for (std::size_t i = 0; i < plan.candidates.size(); ++i) columns.push_back(i);
    fresh.add(columns, again->times);
    const auto time_of = [&](std::size_t column) {
      const auto times = fresh.times(column);
      return times.empty() ? 0.0 : median(times);
    };
    if (!agree(time_of(0), evidence.rounds.default_us)) return false;
    return columns.size() < 2 || agree(time_of(1), evidence.rounds.kernel_us);
  }

  /// One plan, in several calls if they are long or the time is short. An error only if no call succeeded.
  Result<FinalsResult> rounds_of(const FinalsPlan& plan, const Deadline& deadline) {
    FinalsResult all;
    double round_seconds = 0;
    for (const std::size_t i : plan.candidates)
      round_seconds += round_share_seconds(task_.finalists[i], task_.policy);
    int done = 0;
    while (done < plan.rounds && (done == 0 || !deadline.over())) {
      const int rounds = fitting_rounds(plan.rounds - done, round_seconds, deadline);
      const double before = deadline.seconds_left();
      auto part = evaluator_.finals(task_.problem, candidates(plan), rounds);
      if (!part.ok()) {
        failure_ = part.status();
        if (done == 0) return part.status();
        break;
      }
      if (std::isfinite(before)) seconds_per_round_ = (before - deadline.seconds_left()) / rounds;
      measured_round_ = true;
      done += rounds;
      rounds_.add(plan.candidates, part->times);
      if (part->roof_microseconds > 0) roof_microseconds_ = part->roof_microseconds;
      show_ratio(plan);
      all.outcomes = std::move(part->outcomes);
      all.times.insert(all.times.end(), part->times.begin(), part->times.end());
      all.same_ratios.insert(all.same_ratios.end(), part->same_ratios.begin(), part->same_ratios.end());
      quietness_ += part->quietness;
    }
    return all;
  }

  /// A plan's rounds, given to the chooser at once, because each evaluation of its test has its share of the error
  /// probability.
  Status measure(const FinalsPlan& plan, const Deadline& deadline) {
    failure_ = {};
    GEMMTUNE_TRY(const auto all, rounds_of(plan, deadline));
    for (std::size_t i = 0; i < plan.candidates.size() && i < all.outcomes.size(); ++i) {
      outcomes_[plan.candidates[i]] = all.outcomes[i];
    }
    chooser_.add(plan, all);
    measured_ = true;
    return failure_;
  }

  void show_ratio(const FinalsPlan& plan) const {
    if (!task_.on_ratio || !task_.baseline) return;
    PairedRatio shown;
    for (const std::size_t i : plan.candidates) {
      const auto ratios = rounds_.ratios(*task_.baseline, i);
      if (i == *task_.baseline || static_cast<int>(ratios.size()) < min_shown_rounds) continue;
      const double ratio = median(ratios);
      if (shown.rounds > 0 && ratio <= shown.ratio) continue;
      shown = {task_.finalists[i].listed.candidate.kernel_name(), ratio, median_interval(ratios, 0.95),
               static_cast<int>(ratios.size())};
    }
    if (shown.rounds > 0) task_.on_ratio(shown);
  }

  const FinalsTask& task_;
  Evaluator& evaluator_;
  Chooser chooser_;
  PairedRounds rounds_;
  std::vector<Outcome> outcomes_;
  Quietness quietness_;
  bool measured_ = false;
  bool is_cut_ = false;
  bool measured_round_ = false;
  double seconds_per_round_ = 0;
  double roof_microseconds_ = 0;
  Status failure_;  // of the latest call
  std::string doubt_;
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
  if (task.baseline) left -= 2 * cost(task.finalists[*task.baseline]) + task.check_seconds;
  std::vector<Finalist> kept;
  std::optional<std::size_t> baseline;
  std::size_t others = 0;
  for (std::size_t i = 0; i < task.finalists.size(); ++i) {
    const Finalist& finalist = task.finalists[i];
    if (task.baseline == i) {
      baseline = kept.size();
    } else {
      left -= (others == 0 ? 2 * cost(finalist) : cost(finalist)) + task.check_seconds;
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
  const auto seconds_of = [&](int rounds) {
    return rounds * (round_seconds(task) + pool_change_seconds) +
           static_cast<double>(task.finalists.size()) * task.check_seconds;
  };
  const auto interim = interim_rounds(task.policy.round_limit);
  if (seconds_of(interim.back()) < deadline.seconds_left() / 2) return;
  task.policy.round_limit = interim.front();
  const double checks = static_cast<double>(task.finalists.size()) * task.check_seconds;
  const std::size_t fewest = checks > deadline.seconds_left() / 2 ? 2 : 3;
  while (task.finalists.size() > fewest && seconds_of(interim.front()) > deadline.seconds_left() / 2) {
    const std::size_t last = task.finalists.size() - 1;
    remove_finalist(task, task.baseline == last ? last - 1 : last);
  }
}

struct FailedNeighbour {
  std::int64_t m = 0;
  Outcome outcome;
};

std::optional<FailedNeighbour> failed_neighbour(const Problem& problem, const Candidate& candidate,
                                                Evaluator& evaluator) {
  for (const std::int64_t m : neighbour_ms(problem)) {
    Outcome outcome = evaluator.check_neighbour_m(problem, candidate, m);
    if (outcome.kind == OutcomeKind::ok || outcome.kind == OutcomeKind::refused) continue;
    return FailedNeighbour{m, std::move(outcome)};
  }
  return std::nullopt;
}

std::string describe(const FailedNeighbour& failed) {
  return fmt::format("at M = {}, which its row answers too: {}: {}", failed.m, to_string(failed.outcome.kind),
                     failed.outcome.reason);
}

/// What is left for rounds: the winner is then checked at the other M of its row.
Deadline without_neighbour_checks(const FinalsTask& task, const Deadline& until) {
  const double left = until.seconds_left();
  const double checks =
      static_cast<double>(neighbour_ms(task.problem).size()) * (task.set_up_seconds + task.check_seconds);
  if (!std::isfinite(left) || left <= 0 || checks <= 0) return until;
  return until.part(std::max(min_rounds_share, 1 - checks / left));
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

void set_default_fault(const FinalsTask& task, const FinalsRun& run, Settled& settled) {
  settled.default_fault = task.default_fault;
  if (task.baseline) {
    const Candidate& baseline = task.finalists[*task.baseline].listed.candidate;
    settled.default_fault = default_fault_of(baseline, run.outcome(*task.baseline));
    if (!settled.default_fault && settled.verdict == Verdict::default_untimed) {
      settled.default_fault =
          DefaultFault{baseline.kernel_name(), "it has no time in its rounds", Verdict::default_untimed};
    }
  }
  if (!settled.default_fault) return;
  settled.verdict = settled.default_fault->verdict;
  settled.default_kernel = settled.default_fault->kernel_name;
  settled.default_microseconds.reset();
  settled.speedup.reset();
  settled.speedup_interval.reset();
}

Settled settled_from(const FinalsTask& task, const FinalsRun& run, const Decision& decision) {
  Settled settled;
  settled.winner = task.finalists[*decision.winner].listed;
  settled.verdict = decision.verdict;
  settled.microseconds = decision.microseconds;
  settled.spread = decision.spread;
  settled.default_microseconds = decision.default_microseconds;
  settled.speedup = decision.speedup;
  settled.speedup_interval = decision.speedup_interval;
  settled.err_ratio = run.outcome(*decision.winner).err_ratio;
  settled.error = run.outcome(*decision.winner).error;
  settled.noise_floor = decision.noise_floor;
  settled.drift = decision.drift;
  settled.quietness = run.quietness();
  settled.roof_microseconds = run.roof_microseconds();
  settled.doubt = run.doubt();
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
  set_default_fault(task, run, settled);
  return settled;
}

}  // namespace

std::optional<DefaultFault> default_fault_of(const Candidate& baseline, const Outcome& outcome) {
  const std::string name = baseline.kernel_name();
  switch (outcome.kind) {
    case OutcomeKind::ok:
      return std::nullopt;
    case OutcomeKind::wrong:
      return DefaultFault{name, outcome.reason};
    case OutcomeKind::crashed:
      return DefaultFault{name, "it crashes: " + outcome.reason};
    default:
      return DefaultFault{name, fmt::format("{}: {}", to_string(outcome.kind), outcome.reason),
                          Verdict::default_untimed};
  }
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

Finalist as_finalist(const ListedCandidate& listed, std::span<const double> screened) {
  Finalist finalist{listed};
  if (screened.empty()) return finalist;
  const auto early = screened.first((screened.size() + 1) / 2);
  finalist.screened_microseconds = median(screened);
  finalist.early_microseconds = early.size() > 2 ? median(early) : std::ranges::min(early);
  return finalist;
}

TieOrder tie_order_of(const Problem& problem, const ListedCandidate& listed) {
  return {listed.candidate.kernel_name(), listed.family->tie_rank(), listed.departures,
          listed.family->resources(problem, listed.candidate.config)};
}

Settled run_finals(const FinalsTask& given, Evaluator& evaluator, const Deadline& until) {
  FinalsTask task = given;
  const Deadline deadline = without_neighbour_checks(task, until);
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
    Decision decision = run.decision(deadline);
    if (decision.winner && !may_win(task, *decision.winner)) decision = run.decision_of_allowed();
    std::string failure;
    if (decision.winner) {
      const Candidate& winner = task.finalists[*decision.winner].listed.candidate;
      const auto failed = failed_neighbour(task.problem, winner, evaluator);
      if (failed && failed->outcome.kind == OutcomeKind::too_slow) {
        Settled cut;
        cut.reason = describe(*failed);
        cut.trials = std::move(lost);
        cut.is_cut = true;
        return cut;
      }
      if (failed) failure = describe(*failed);
    }
    if (decision.winner && !failure.empty()) {
      Outcome outcome = run.outcome(*decision.winner);
      outcome.kind = OutcomeKind::wrong;
      outcome.reason = std::move(failure);
      if (decision.winner == task.baseline)
        task.default_fault = default_fault_of(task.finalists[*decision.winner].listed.candidate, outcome);
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
  const auto failed = failed_neighbour(problem, candidate, evaluator);
  return failed ? describe(*failed) : std::string();
}

}  // namespace gemmtune
