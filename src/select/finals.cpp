#include "select/finals.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "measure/statistics.h"
#include "tuned/table.h"
#include "select/choose.h"
#include "select/round_log.h"

namespace gemmtune {
namespace {

constexpr int least_rounds = 3;               // of one call, however little time is left
constexpr double pool_change_seconds = 0.02;  // of a round that leaves one thread pool for another
constexpr double warm_up_and_gaps = 2;        // a sample's share of a round's time, inverted

/// What an entrant adds to a round, as far as screening knows.
double round_share_seconds(const Entrant& entrant, const Policy& policy) {
  return 1e-6 * warm_up_and_gaps * std::max(entrant.screened_microseconds, policy.sample_microseconds);
}

double round_seconds(const FinalsTask& task) {
  double seconds = 0;
  for (const Entrant& entrant : task.entrants) seconds += round_share_seconds(entrant, task.policy);
  return seconds;
}

/// One try with one set of entrants.
class Contest {
 public:
  Contest(const FinalsTask& task, Evaluator& evaluator)
      : task_(task),
        evaluator_(evaluator),
        chooser_(finalists(task), task.baseline, task.policy),
        log_(task.entrants.size()),
        outcomes_(task.entrants.size()) {}

  /// Rounds until the decision stands or the time is over. An error only where nothing was measured.
  Status run(const Deadline& deadline) {
    seconds_a_round_ = round_seconds(task_);
    for (FinalsPlan plan = chooser_.next(); plan.rounds > 0; plan = chooser_.next()) {
      if (measured_ && deadline.over()) break;
      if (const Status status = measure(plan, deadline); !status.ok()) return measured_ ? Status() : status;
    }
    return {};
  }

  Decision decision() const { return chooser_.decision(); }
  /// What stands where the chooser's own winner reads another layout than the row must have.
  Decision decision_of_layout() const {
    std::vector<bool> allowed;
    for (std::size_t i = 0; i < task_.entrants.size(); ++i) {
      allowed.push_back(task_.entrants[i].listed.layout == task_.layout &&
                        outcomes_[i].kind == OutcomeKind::ok);
    }
    return chooser_.decision_among(allowed);
  }
  const Outcome& outcome(std::size_t entrant) const { return outcomes_[entrant]; }
  const RoundLog& log() const { return log_; }
  const Quietness& quietness() const { return quietness_; }

 private:
  static std::vector<Finalist> finalists(const FinalsTask& task) {
    std::vector<Finalist> list;
    for (const Entrant& entrant : task.entrants) list.push_back(finalist_of(task.problem, entrant.listed));
    return list;
  }

  std::vector<Candidate> candidates(const FinalsPlan& plan) const {
    std::vector<Candidate> list;
    for (const std::size_t i : plan.candidates) list.push_back(task_.entrants[i].listed.candidate);
    return list;
  }

  /// As many as fit into the time, at least a few, at most all.
  int fitting_rounds(int wanted, const Deadline& deadline) const {
    const double fitting = std::max(0.0, deadline.seconds_left() / std::max(seconds_a_round_, 1e-9));
    return fitting >= wanted ? wanted : std::min(wanted, std::max(least_rounds, static_cast<int>(fitting)));
  }

  /// One plan, in pieces where the time is short. The chooser sees the pieces as one, because each look that
  /// it takes has its share of the error probability.
  Status measure(const FinalsPlan& plan, const Deadline& deadline) {
    FinalsResult all;
    int done = 0;
    Status status;
    while (done < plan.rounds && (done == 0 || !deadline.over())) {
      const int rounds = fitting_rounds(plan.rounds - done, deadline);
      const double before = deadline.seconds_left();
      auto piece = evaluator_.finals(task_.problem, candidates(plan), rounds);
      if (!piece.ok()) {
        status = piece.status();
        break;
      }
      if (std::isfinite(before)) seconds_a_round_ = (before - deadline.seconds_left()) / rounds;
      done += rounds;
      all.outcomes = std::move(piece->outcomes);
      all.times.insert(all.times.end(), piece->times.begin(), piece->times.end());
      all.same_ratios.insert(all.same_ratios.end(), piece->same_ratios.begin(), piece->same_ratios.end());
      all.noise_floor = std::max(all.noise_floor, piece->noise_floor);
      quietness_ += piece->quietness;
    }
    if (done == 0) return status;
    for (std::size_t i = 0; i < plan.candidates.size() && i < all.outcomes.size(); ++i) {
      outcomes_[plan.candidates[i]] = all.outcomes[i];
    }
    log_.add(plan.candidates, all.times);
    chooser_.add(plan, all);
    measured_ = true;
    return status;
  }

  const FinalsTask& task_;
  Evaluator& evaluator_;
  Chooser chooser_;
  RoundLog log_;
  std::vector<Outcome> outcomes_;
  Quietness quietness_;
  bool measured_ = false;
  double seconds_a_round_ = 0;
};

/// Entrants that fit into the time: the baseline and the best, which meet in the test too, and as many others
/// as can be measured up to the first look.
void trim(FinalsTask& task, const Deadline& deadline) {
  if (!std::isfinite(deadline.seconds_left())) return;
  const int rounds = round_looks(task.policy.round_limit).front();
  const auto cost = [&](const Entrant& entrant) {
    return rounds * round_share_seconds(entrant, task.policy);
  };
  double left = deadline.seconds_left();
  if (task.baseline) left -= 2 * cost(task.entrants[*task.baseline]);
  std::vector<Entrant> kept;
  std::optional<std::size_t> baseline;
  std::size_t others = 0;
  for (std::size_t i = 0; i < task.entrants.size(); ++i) {
    const Entrant& entrant = task.entrants[i];
    if (task.baseline == i) {
      baseline = kept.size();
    } else {
      left -= others == 0 ? 2 * cost(entrant) : cost(entrant);
      if (others++ > 0 && left < 0) continue;
    }
    kept.push_back(entrant);
  }
  task.entrants = std::move(kept);
  task.baseline = baseline;
}

void remove_entrant(FinalsTask& task, std::size_t index) {
  task.entrants.erase(task.entrants.begin() + static_cast<std::ptrdiff_t>(index));
  if (!task.baseline) return;
  if (*task.baseline == index) {
    task.baseline.reset();
  } else if (*task.baseline > index) {
    --*task.baseline;
  }
}

/// Where the time is too short for all looks of both stages, each has one: a test that is reached is worth
/// more than a finer choice of whom to test. The slowest entrants give way to that.
void fit_looks(FinalsTask& task, const Deadline& deadline) {
  if (!std::isfinite(deadline.seconds_left())) return;
  const auto seconds_of = [&](int rounds) { return rounds * (round_seconds(task) + pool_change_seconds); };
  const auto looks = round_looks(task.policy.round_limit);
  if (seconds_of(looks.back()) < deadline.seconds_left() / 2) return;
  task.policy.round_limit = looks.front();
  while (task.entrants.size() > 3 && seconds_of(looks.front()) > deadline.seconds_left() / 2) {
    const std::size_t last = task.entrants.size() - 1;
    remove_entrant(task, task.baseline == last ? last - 1 : last);
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

Settled settled_from(const FinalsTask& task, const Contest& contest, const Decision& decision) {
  Settled settled;
  settled.winner = task.entrants[*decision.winner].listed;
  settled.verdict = decision.verdict;
  settled.microseconds = decision.microseconds;
  settled.spread = decision.spread;
  settled.default_microseconds = decision.default_microseconds;
  settled.speedup = decision.speedup;
  settled.err_ratio = contest.outcome(*decision.winner).err_ratio;
  settled.noise_floor = decision.noise_floor;
  settled.drift = decision.drift;
  settled.quietness = contest.quietness();
  for (const std::size_t tie : decision.ties) {
    settled.ties.push_back(task.entrants[tie].listed.candidate.kernel_name());
  }
  if (task.baseline && decision.default_microseconds) {
    settled.default_kernel = task.entrants[*task.baseline].listed.candidate.kernel_name();
  }
  for (std::size_t i = 0; i < task.entrants.size(); ++i) {
    const auto ratios = contest.log().ratios(i, *decision.winner);
    if (contest.outcome(i).kind != OutcomeKind::ok || ratios.empty()) continue;
    settled.standings.push_back({task.entrants[i].listed, median(ratios), 1});
  }
  return settled;
}

}  // namespace

Finalist finalist_of(const Problem& problem, const ListedCandidate& listed) {
  return {listed.candidate.kernel_name(), listed.family->tie_rank(), listed.departures,
          listed.family->resources(problem, listed.candidate.config)};
}

Settled run_finals(const FinalsTask& given, Evaluator& evaluator, const Deadline& deadline) {
  FinalsTask task = given;
  trim(task, deadline);
  fit_looks(task, deadline);
  std::vector<Trial> lost;
  while (!task.entrants.empty()) {
    Contest contest(task, evaluator);
    if (const Status status = contest.run(deadline); !status.ok()) {
      Settled failed;
      failed.reason = status.message();
      failed.trials = std::move(lost);
      return failed;
    }
    Decision decision = contest.decision();
    if (decision.winner && task.entrants[*decision.winner].listed.layout != task.layout) {
      decision = contest.decision_of_layout();
    }
    std::string failure;
    if (decision.winner) {
      const Candidate& winner = task.entrants[*decision.winner].listed.candidate;
      failure = neighbour_failure(task.problem, winner, evaluator);
    }
    if (decision.winner && !failure.empty()) {
      Outcome outcome = contest.outcome(*decision.winner);
      outcome.kind = OutcomeKind::wrong;
      outcome.reason = std::move(failure);
      lost.push_back({task.entrants[*decision.winner].listed.candidate, std::move(outcome)});
      remove_entrant(task, *decision.winner);
      continue;
    }
    Settled settled;
    if (decision.winner) settled = settled_from(task, contest, decision);
    for (std::size_t i = 0; i < task.entrants.size(); ++i) {
      lost.push_back({task.entrants[i].listed.candidate, contest.outcome(i)});
      lost.back().outcome.microseconds = contest.log().times(i);
    }
    settled.trials = std::move(lost);
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
