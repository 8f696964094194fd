#include "tuning/m_range_contest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "measure/statistics.h"
#include "select/choose.h"

namespace gemmtune {
namespace {

constexpr double confidence = 0.95;
constexpr int rounds_a_piece = 5;  // of one call where the time is limited

class Rounds {
 public:
  Rounds(const Device& device, Evaluator& evaluator, const MContest& contest)
      : evaluator_(evaluator), contest_(contest) {
    for (const std::string& name : contest.kernels) {
      const auto candidate = device.resolve(name, contest.problem);
      if (candidate.ok()) add(device, *candidate);
    }
    const auto baseline = device.baseline(contest.problem);
    if (baseline.ok()) baseline_ = add(device, *baseline);
    columns_.resize(entrants_.size());
    outcomes_.resize(entrants_.size());
  }

  Status run(const Deadline& deadline);
  MComparison result() const;

 private:
  std::optional<std::size_t> add(const Device& device, const Candidate& candidate) {
    for (std::size_t i = 0; i < entrants_.size(); ++i) {
      if (entrants_[i].candidate == candidate) return i;
    }
    const auto listed = describe(device, contest_.problem, candidate);
    if (!listed.ok()) return std::nullopt;
    entrants_.push_back(*listed);
    return entrants_.size() - 1;
  }

  Status measure(const std::vector<std::size_t>& who, int rounds, const Deadline& deadline);
  bool ran(std::size_t entrant) const;
  bool fits_layout(std::size_t entrant) const { return entrants_[entrant].layout == contest_.layout; }
  std::vector<double> times(std::size_t entrant) const;
  std::vector<double> ratios(std::size_t a, std::size_t b) const;
  double noise_floor() const;
  std::optional<std::size_t> fastest() const;
  /// Those of which it is not clear whether they are within the bound, with whom they are compared.
  std::vector<std::size_t> unclear() const;
  bool slower_than_default(std::size_t entrant) const;
  Verdict verdict(std::size_t entrant, std::size_t fastest) const;
  Settled row(std::size_t entrant, std::size_t fastest) const;

  Evaluator& evaluator_;
  const MContest& contest_;
  std::vector<ListedCandidate> entrants_;
  std::optional<std::size_t> baseline_;
  std::vector<std::vector<double>> columns_;  // aligned by round, NaN where it was not measured
  std::vector<Outcome> outcomes_;
  std::vector<double> same_ratios_;
  double reported_floor_ = 0;
  int calls_ = 0;
};

Status Rounds::measure(const std::vector<std::size_t>& who, int rounds, const Deadline& deadline) {
  std::vector<Candidate> candidates;
  for (const std::size_t i : who) candidates.push_back(entrants_[i].candidate);
  for (int done = 0; done < rounds && (done == 0 || !deadline.over());) {
    const int piece =
        std::isfinite(deadline.seconds_left()) ? std::min(rounds_a_piece, rounds - done) : rounds - done;
    const auto result = evaluator_.finals(contest_.problem, candidates, piece);
    if (!result.ok()) return result.status();
    ++calls_;
    done += piece;
    for (const auto& round : result->times) {
      for (auto& column : columns_) column.push_back(std::numeric_limits<double>::quiet_NaN());
      for (std::size_t i = 0; i < who.size() && i < round.size(); ++i) columns_[who[i]].back() = round[i];
    }
    for (std::size_t i = 0; i < who.size() && i < result->outcomes.size(); ++i)
      outcomes_[who[i]] = result->outcomes[i];
    same_ratios_.insert(same_ratios_.end(), result->same_ratios.begin(), result->same_ratios.end());
    reported_floor_ = result->noise_floor;
  }
  return {};
}

bool Rounds::ran(std::size_t entrant) const {
  return outcomes_[entrant].kind == OutcomeKind::ok && !times(entrant).empty();
}

std::vector<double> Rounds::times(std::size_t entrant) const {
  std::vector<double> list = columns_[entrant];
  std::erase_if(list, [](double time) { return !std::isfinite(time) || time <= 0; });
  return list;
}

std::vector<double> Rounds::ratios(std::size_t a, std::size_t b) const {
  std::vector<double> list;
  for (std::size_t round = 0; round < columns_[a].size(); ++round) {
    const double ratio = columns_[a][round] / columns_[b][round];
    if (std::isfinite(ratio) && ratio > 0) list.push_back(ratio);
  }
  return list;
}

/// As the chooser has it: the half of the interval of A against A that is farther from 1.
double Rounds::noise_floor() const {
  if (same_ratios_.empty()) return reported_floor_;
  const Interval interval = median_interval(same_ratios_, confidence);
  return std::max(std::fabs(1 - interval.low), std::fabs(interval.high - 1));
}

std::optional<std::size_t> Rounds::fastest() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    if (!ran(i) || !fits_layout(i)) continue;
    if (!best || median(times(i)) < median(times(*best))) best = i;
  }
  return best;
}

std::vector<std::size_t> Rounds::unclear() const {
  const auto best = fastest();
  if (!best) return {};
  const double limit = 1 + std::max(contest_.regret, noise_floor());
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    if (i == *best || !ran(i) || !fits_layout(i)) continue;
    const Interval interval = median_interval(ratios(i, *best), confidence);
    if (interval.low <= limit && interval.high > limit) list.push_back(i);
  }
  if (list.empty()) return list;
  list.push_back(*best);
  if (baseline_ && ran(*baseline_) && std::find(list.begin(), list.end(), *baseline_) == list.end())
    list.push_back(*baseline_);
  std::sort(list.begin(), list.end());
  return list;
}

Status Rounds::run(const Deadline& deadline) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < entrants_.size(); ++i) all.push_back(i);
  if (all.empty()) return Status::unsupported("no kernel takes {}", print(contest_.problem));
  const std::vector<int> looks = round_looks(contest_.policy.round_limit);
  GEMMTUNE_RETURN_IF_ERROR(measure(all, looks.front(), deadline));
  if (looks.size() < 2 || deadline.over()) return {};
  const auto again = unclear();
  return again.empty() ? Status() : measure(again, looks[1] - looks[0], deadline);
}

bool Rounds::slower_than_default(std::size_t entrant) const {
  if (!baseline_ || entrant == *baseline_ || !ran(*baseline_) || !fits_layout(*baseline_)) return false;
  return median(ratios(entrant, *baseline_)) > 1 + std::max(contest_.policy.tie_band, noise_floor());
}

Verdict Rounds::verdict(std::size_t entrant, std::size_t fastest) const {
  if (!baseline_ || !ran(*baseline_)) return Verdict::only;
  if (entrant == *baseline_) return Verdict::keep_default;
  const double limit = std::min(contest_.policy.prefer_ratio, 1 - noise_floor());
  if (sign_test_below(ratios(entrant, *baseline_), limit) > test_alpha) return Verdict::undecided;
  return entrant == fastest ? Verdict::win : Verdict::tie;
}

Settled Rounds::row(std::size_t entrant, std::size_t fastest) const {
  Settled settled;
  settled.winner = entrants_[entrant];
  settled.verdict = verdict(entrant, fastest);
  settled.microseconds = median(times(entrant));
  settled.spread = spread(times(entrant));
  settled.err_ratio = outcomes_[entrant].err_ratio;
  settled.noise_floor = noise_floor();
  if (baseline_ && ran(*baseline_)) {
    settled.default_kernel = entrants_[*baseline_].candidate.kernel_name();
    settled.default_microseconds = median(times(*baseline_));
    settled.speedup = entrant == *baseline_ ? 1 : median(ratios(*baseline_, entrant));
  }
  return settled;
}

MComparison Rounds::result() const {
  MComparison comparison;
  comparison.finals_calls = calls_;
  comparison.noise_floor = noise_floor();
  const auto best = fastest();
  if (!best) return comparison;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    if (!ran(i)) continue;
    const std::string name = entrants_[i].candidate.kernel_name();
    const double regret = i == *best ? 0 : std::max(0.0, median(ratios(i, *best)) - 1);
    const bool may_answer = fits_layout(i) && !slower_than_default(i);
    comparison.standings.push_back({name, regret, may_answer});
    if (may_answer) comparison.rows.emplace(name, row(i, *best));
  }
  return comparison;
}

}  // namespace

Result<MComparison> compare_kernels(const Device& device, Evaluator& evaluator, const MContest& contest,
                                    const Deadline& deadline) {
  Rounds rounds(device, evaluator, contest);
  GEMMTUNE_RETURN_IF_ERROR(rounds.run(deadline));
  return rounds.result();
}

}  // namespace gemmtune
