#include "select/second_look.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "measure/statistics.h"
#include "select/round_log.h"
#include "select/screened_ties.h"

namespace gemmtune {
namespace {

constexpr std::size_t most_again = 8;  // finalists that meet again, default and winner among them
constexpr int rounds_again = 30;       // of all of them
constexpr int rounds_a_call = 15;      // between two looks at the clock
constexpr std::array<int, 2> further_rounds = {15, 30};  // of a test against the default
constexpr double normal_95 = 1.645;

/// One of those that meet again.
struct Entry {
  Standing standing;   // after the first look
  double before = 0;   // log ratio to the reference in the first look …
  double now = 0;      // … and in the second
  bool alive = false;  // measured again, and right
  double both() const { return (before + now) / 2; }
};

class Looker {
 public:
  Looker(const Problem& problem, WeightLayout layout, const Policy& policy, const Settled& first,
         Evaluator& evaluator)
      : problem_(problem), layout_(layout), policy_(policy), first_(first), evaluator_(evaluator) {}

  SecondLook run(const Deadline& deadline);

 private:
  void enter();
  bool measure(const Deadline& deadline);
  /// The fastest in both looks, ties by the fixed order; the default only where none beats it.
  std::size_t best() const;
  bool beats_default(std::size_t entry) const {
    return !default_ || entries_[entry].both() - entries_[*default_].both() < std::log(policy_.prefer_ratio);
  }
  double band() const { return std::max(policy_.tie_band, first_.noise_floor); }
  bool usable(std::size_t entry) const {
    return entries_[entry].alive && entries_[entry].standing.listed.layout == layout_;
  }
  bool passes_test(std::size_t entry, const Deadline& deadline);
  bool is_right_elsewhere(std::size_t entry) {
    return neighbour_failure(problem_, entries_[entry].standing.listed.candidate, evaluator_).empty();
  }
  Settled settle(std::size_t winner, Verdict verdict) const;

  const Problem& problem_;
  WeightLayout layout_;
  const Policy& policy_;
  const Settled& first_;
  Evaluator& evaluator_;
  std::vector<Entry> entries_;
  std::size_t winner_ = 0;     // of the first look
  std::size_t reference_ = 0;  // of ratios: the first winner; the default where that failed now
  std::optional<std::size_t> default_;
  RoundLog log_;
  std::vector<Outcome> outcomes_;
  Quietness quietness_;
};

void Looker::enter() {
  std::vector<Standing> standings = first_.standings;
  const std::set<std::string> ties(first_.ties.begin(), first_.ties.end());
  const auto rank = [&](const Standing& standing) {
    const std::string name = standing.listed.candidate.kernel_name();
    if (standing.listed.candidate == first_.winner->candidate || name == first_.default_kernel) return 0;
    return ties.contains(name) ? 1 : 2;
  };
  std::stable_sort(standings.begin(), standings.end(), [&](const Standing& a, const Standing& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.ratio < b.ratio;
  });
  if (standings.size() > most_again) standings.resize(most_again);
  for (Standing& standing : standings) {
    if (standing.listed.candidate == first_.winner->candidate) winner_ = entries_.size();
    if (standing.listed.candidate.kernel_name() == first_.default_kernel) default_ = entries_.size();
    entries_.push_back({std::move(standing)});
  }
}

bool Looker::measure(const Deadline& deadline) {
  std::vector<std::size_t> who;
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    who.push_back(i);
    candidates.push_back(entries_[i].standing.listed.candidate);
  }
  log_ = RoundLog(entries_.size());
  for (int rounds = 0; rounds < rounds_again; rounds += rounds_a_call) {
    if (deadline.over()) return false;
    const auto result = evaluator_.finals(problem_, candidates, rounds_a_call);
    if (!result.ok()) return false;
    log_.add(who, result->times);
    outcomes_ = result->outcomes;
    quietness_ += result->quietness;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i)
    entries_[i].alive = outcomes_[i].kind == OutcomeKind::ok && !log_.times(i).empty();
  reference_ = entries_[winner_].alive ? winner_ : default_.value_or(winner_);
  const Entry& reference = entries_[reference_];
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const auto ratios = log_.ratios(i, reference_);
    entry.alive = entry.alive && !ratios.empty();
    if (!entry.alive) continue;
    entry.before = std::log(entry.standing.ratio / reference.standing.ratio);
    entry.now = std::log(median(ratios));
  }
  return reference.alive && (!default_ || entries_[*default_].alive);
}

std::size_t Looker::best() const {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!usable(i) || i == default_ || !beats_default(i)) continue;
    if (!fastest || entries_[i].both() < entries_[*fastest].both()) fastest = i;
  }
  if (!fastest) return default_ ? *default_ : winner_;
  std::size_t chosen = *fastest;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!usable(i) || i == default_ || !beats_default(i)) continue;
    if (entries_[i].both() - entries_[*fastest].both() > std::log1p(band())) continue;
    if (before_in_order(finalist_of(problem_, entries_[i].standing.listed),
                        finalist_of(problem_, entries_[chosen].standing.listed)))
      chosen = i;
  }
  return chosen;
}

// The rounds in which all met are fresh too: the first look said who takes part. That the best of several was
// picked from them is allowed for.
bool Looker::passes_test(std::size_t entry, const Deadline& deadline) {
  if (!default_) return true;
  const Candidate both[] = {entries_[*default_].standing.listed.candidate,
                            entries_[entry].standing.listed.candidate};
  const double limit = std::min(policy_.prefer_ratio, 1 - first_.noise_floor);
  const auto looks = static_cast<double>(further_rounds.size() + 1);
  const double alpha = test_alpha / (looks * static_cast<double>(entries_.size()));
  std::vector<double> ratios = log_.ratios(entry, *default_);
  if (sign_test_below(ratios, limit) <= alpha) return true;
  for (const int rounds : further_rounds) {
    if (deadline.over()) return false;
    const auto result = evaluator_.finals(problem_, both, rounds);
    if (!result.ok()) return false;
    for (const auto& round : result->times) {
      if (!std::isfinite(round[0]) || !std::isfinite(round[1])) return false;
      ratios.push_back(round[1] / round[0]);
    }
    if (sign_test_below(ratios, limit) <= alpha) return true;
  }
  return false;
}

Settled Looker::settle(std::size_t winner, Verdict verdict) const {
  Settled settled = first_;
  const Entry& entry = entries_[winner];
  const double first_us = first_.microseconds * entry.standing.ratio;
  const auto times = log_.times(winner);
  settled.winner = entry.standing.listed;
  settled.verdict = verdict;
  settled.microseconds = std::sqrt(first_us * median(times));
  settled.spread = std::max(first_.spread, spread(times));
  settled.err_ratio = outcomes_[winner].err_ratio;
  settled.quietness += quietness_;
  if (default_) {
    const double before = winner == winner_ && first_.speedup
                              ? *first_.speedup
                              : entries_[*default_].standing.ratio / entry.standing.ratio;
    const double now = median(log_.ratios(*default_, winner));
    settled.speedup = winner == *default_ ? 1 : std::sqrt(before * now);
    settled.default_microseconds = settled.microseconds * *settled.speedup;
  }
  if (winner != winner_) settled.ties.push_back(entry.standing.listed.candidate.kernel_name());
  for (Standing& standing : settled.standings) {
    const auto again = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& other) {
      return other.standing.listed.candidate == standing.listed.candidate;
    });
    const bool both = again != entries_.end() && again->alive;
    standing.looks = both ? 2 : 1;
    standing.ratio = both ? std::exp(again->both() - entry.both()) : standing.ratio / entry.standing.ratio;
  }
  return settled;
}

SecondLook Looker::run(const Deadline& deadline) {
  enter();
  if (entries_.size() < 2 || !measure(deadline)) return {first_, {}, quietness_};
  SecondLook result;
  result.quietness = quietness_;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i == reference_ || !entries_[i].alive) continue;
    result.changes.push_back(entries_[i].now - entries_[i].before);
  }
  const std::size_t wanted = best();
  const bool stands = usable(winner_) && beats_default(winner_);
  if (wanted == winner_) {
    result.settled = settle(winner_, first_.verdict);
  } else if (wanted != default_ && passes_test(wanted, deadline) && is_right_elsewhere(wanted)) {
    result.settled = settle(wanted, default_ ? Verdict::tie : Verdict::only);
  } else if (winner_ == default_ || stands || !default_ || !usable(*default_)) {
    if (!entries_[winner_].alive) return {first_, {}, quietness_};
    result.settled = settle(winner_, first_.verdict);
  } else {
    result.settled = settle(*default_, Verdict::undecided);
  }
  return result;
}

}  // namespace

SecondLook look_again(const Problem& problem, WeightLayout layout, const Policy& policy, const Settled& first,
                      Evaluator& evaluator, const Deadline& deadline) {
  return Looker(problem, layout, policy, first, evaluator).run(deadline);
}

double look_deviation(std::span<const double> changes) {
  if (changes.empty()) return 0;
  std::vector<double> sizes;
  for (const double change : changes) sizes.push_back(std::fabs(change));
  std::sort(sizes.begin(), sizes.end());
  const auto at = static_cast<std::size_t>(0.9 * static_cast<double>(sizes.size() - 1));
  return sizes[at] / (normal_95 * M_SQRT2);
}

void widen_ties(const std::vector<Trial>& screened, const Policy& policy, double look_deviation,
                Settled& settled) {
  const double limit = tie_limit(policy, settled.noise_floor);
  // This run's ratio and the other's, of two looks.
  const auto deviation = [&](int looks) { return look_deviation * std::sqrt(1.0 / looks + 0.5); };
  for (const Standing& standing : settled.standings) {
    if (standing.ratio > (1 + limit) * std::exp(normal_99_5 * deviation(standing.looks))) continue;
    const std::string name = standing.listed.candidate.kernel_name();
    if (std::find(settled.ties.begin(), settled.ties.end(), name) == settled.ties.end())
      settled.ties.push_back(name);
  }
  add_screened_ties(screened, {limit, deviation(1)}, settled);
}

}  // namespace gemmtune
