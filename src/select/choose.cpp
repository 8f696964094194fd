#include "select/choose.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "measure/statistics.h"

// Why two stages. The fastest of several noisy candidates looks faster than it is, and a test that is looked
// at after every round passes sooner or later. So the first rounds only pick who is tested, fresh rounds test
// it, and the sign test is looked at a fixed number of times with alpha divided among the looks (Bonferroni).
//
// Why the declared ties are wider than the band within which the fixed order decides. A second run has other
// noise, in its times and in its noise floor, and with that another band and threshold: a candidate inside of
// the band today may be outside tomorrow. `ties` therefore holds all that cannot be told from the winner by
// more than the band and the floor together with 99.5 % confidence, allowing for the drift of ratios between
// batches of rounds; the order itself looks at medians. (Simulated, 4000 double runs with 5 candidates within
// 20 %, jitter up to 3.5 % and stalls: 99.7 % agree, with 0.8 declared ties beside the winner.)

namespace gemmtune {
namespace {

constexpr double tie_confidence = 0.995;
constexpr std::size_t batch_rounds = 15;  // that the machine's drift is seen between
constexpr double floor_confidence = 0.95;
constexpr int quiet_selection_rounds = 30;  // enough on a machine whose noise is below the tie band

std::vector<double> quotients(const std::vector<double>& numerators,
                              const std::vector<double>& denominators) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i)
    ratios.push_back(numerators[i] / denominators[i]);
  return ratios;
}

bool is_time(double microseconds) { return std::isfinite(microseconds) && microseconds > 0; }

// The mirror of sign_test_below: are the ratios above the limit?
double sign_test_above(const std::vector<double>& ratios, double limit) {
  std::vector<double> inverse;
  for (const double ratio : ratios) inverse.push_back(1 / ratio);
  return sign_test_below(inverse, 1 / limit);
}

}  // namespace

bool before_in_order(const Finalist& a, const Finalist& b) {
  if (a.tie_rank != b.tie_rank) return a.tie_rank < b.tie_rank;
  if (a.departures != b.departures) return a.departures < b.departures;
  if (a.resources != b.resources) return a.resources < b.resources;
  return a.kernel_name < b.kernel_name;
}

std::vector<int> round_looks(int round_limit) {
  std::vector<int> looks;
  for (const int look : {15, 30, 60})
    if (look <= round_limit) looks.push_back(look);
  if (looks.empty()) looks.push_back(std::max(1, round_limit));
  return looks;
}

Chooser::Chooser(std::vector<Finalist> finalists, std::optional<std::size_t> baseline, const Policy& policy)
    : finalists_(std::move(finalists)),
      baseline_(baseline),
      policy_(policy),
      alive_(finalists_.size(), true),
      in_race_(finalists_.size(), true),
      first_(finalists_.size()) {
  if (finalists_.empty()) stage_ = Stage::decided;
}

FinalsPlan Chooser::next() const {
  FinalsPlan plan;
  if (stage_ == Stage::decided) return plan;
  if (stage_ == Stage::selecting) {
    for (std::size_t i = 0; i < finalists_.size(); ++i)
      if (in_race_[i]) plan.candidates.push_back(i);
  } else {
    plan.candidates = {*baseline_, challenger_};
  }
  const int done = stage_ == Stage::selecting ? first_rounds_ : static_cast<int>(test_challenger_.size());
  const std::vector<int> looks = round_looks(policy_.round_limit);
  const auto next_look = std::find_if(looks.begin(), looks.end(), [&](int look) { return look > done; });
  if (next_look != looks.end()) plan.rounds = *next_look - done;
  return plan;
}

void Chooser::drop(std::size_t finalist) {
  alive_[finalist] = in_race_[finalist] = false;
  if (baseline_ == finalist) baseline_.reset();
}

void Chooser::add(const FinalsPlan& plan, const FinalsResult& result) {
  rounds_ += static_cast<int>(result.times.size());
  reported_floor_ = result.noise_floor;
  same_ratios_.insert(same_ratios_.end(), result.same_ratios.begin(), result.same_ratios.end());
  bool all_there = true;
  for (std::size_t column = 0; column < plan.candidates.size(); ++column) {
    const std::size_t finalist = plan.candidates[column];
    std::vector<double> times;
    for (const auto& round : result.times)
      if (column < round.size() && is_time(round[column])) times.push_back(round[column]);
    if (times.empty() || times.size() != result.times.size()) {
      drop(finalist);
      all_there = false;
    } else if (stage_ == Stage::selecting) {
      first_[finalist].insert(first_[finalist].end(), times.begin(), times.end());
    } else {
      auto& tested = finalist == challenger_ ? test_challenger_ : test_baseline_;
      tested.insert(tested.end(), times.begin(), times.end());
    }
  }
  if (stage_ == Stage::testing) {
    if (all_there) {
      look();
    } else {
      pick_challenger();  // another one, where one of the two under test failed
    }
    return;
  }
  first_rounds_ += static_cast<int>(result.times.size());
  narrow();
  if (selection_is_over()) pick_challenger();
}

double Chooser::noise_floor() const {
  if (same_ratios_.empty()) return reported_floor_;
  // A shift of the ratio (a second call of the same kernel is always faster) is noise of the method as well.
  const Interval interval = median_interval(same_ratios_, floor_confidence);
  return std::max(std::fabs(1 - interval.low), std::fabs(interval.high - 1));
}

double Chooser::tie_band() const { return std::max(policy_.tie_band, noise_floor()); }

std::vector<double> Chooser::first_ratios(std::size_t numerator, std::size_t denominator) const {
  return quotients(first_[numerator], first_[denominator]);
}

// Those still in the race have all first rounds in common.
std::vector<bool> Chooser::racing() const {
  std::vector<bool> racing = in_race_;
  if (baseline_) racing[*baseline_] = false;
  return racing;
}

std::optional<std::size_t> Chooser::fastest_of(const std::vector<bool>& candidates) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < finalists_.size(); ++i)
    if (candidates[i] && (!best || median(first_[i]) < median(first_[*best]))) best = i;
  return best;
}

std::optional<std::size_t> Chooser::fastest() const { return fastest_of(racing()); }

// Takes out of the race whoever is surely slower than the fastest by more than the tie band. The default
// stays in: the others are compared with it.
void Chooser::narrow() {
  const auto best = fastest();
  if (!best) return;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!in_race_[i] || i == baseline_ || i == *best) continue;
    if (median_interval(first_ratios(i, *best), tie_confidence).low > 1 + tie_band()) in_race_[i] = false;
  }
}

// One challenger left, or so many rounds that the noise is below the tie band, or no more rounds.
bool Chooser::selection_is_over() const {
  const std::vector<int> looks = round_looks(policy_.round_limit);
  if (first_rounds_ >= looks.back()) return true;
  const auto racing = std::count(in_race_.begin(), in_race_.end(), true) - (baseline_ ? 1 : 0);
  if (racing <= 1) return true;
  return first_rounds_ >= quiet_selection_rounds && noise_floor() <= policy_.tie_band;
}

// Picks the challenger from the first rounds; decides at once where there is nothing to test.
void Chooser::pick_challenger() {
  test_challenger_.clear();
  test_baseline_.clear();
  verdict_ = Verdict::none;
  stage_ = Stage::decided;
  if (!fastest()) {
    // Those that were taken out of the race are slower, but right: better than nothing.
    for (std::size_t i = 0; i < finalists_.size(); ++i) in_race_[i] = alive_[i];
  }
  const auto best = fastest();
  if (!best) {
    if (baseline_) verdict_ = Verdict::keep_default;
    return;
  }
  // Among those that seem to beat the default (where the fastest does) and lie within the band: the fixed
  // order.
  const auto beats = [&](std::size_t i) {
    return !baseline_ || median(first_ratios(i, *baseline_)) < policy_.prefer_ratio;
  };
  const bool fastest_beats = beats(*best);
  challenger_ = *best;
  tied_ = false;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!in_race_[i] || i == baseline_ || i == *best) continue;
    if (median(first_ratios(i, *best)) > 1 + tie_band() || (fastest_beats && !beats(i))) continue;
    tied_ = true;
    if (before_in_order(finalists_[i], finalists_[challenger_])) challenger_ = i;
  }
  if (!baseline_) {
    verdict_ = Verdict::only;
  } else if (!fastest_beats &&
             sign_test_above(first_ratios(challenger_, *baseline_), policy_.prefer_ratio) <= test_alpha) {
    verdict_ = Verdict::keep_default;
  } else {
    stage_ = Stage::testing;
  }
}

// After a look's rounds: has the challenger passed, or failed for good, or is this the end?
void Chooser::look() {
  const std::vector<int> looks = round_looks(policy_.round_limit);
  const double alpha = test_alpha / static_cast<double>(looks.size());
  const std::vector<double> ratios = quotients(test_challenger_, test_baseline_);
  const double limit = std::min(policy_.prefer_ratio, 1 - noise_floor());
  stage_ = Stage::decided;
  if (sign_test_below(ratios, limit) <= alpha) {
    verdict_ = tied_ ? Verdict::tie : Verdict::win;
  } else if (sign_test_above(ratios, policy_.prefer_ratio) <= alpha) {
    verdict_ = Verdict::keep_default;
  } else if (static_cast<int>(ratios.size()) >= looks.back()) {
    verdict_ = Verdict::undecided;
  } else {
    stage_ = Stage::testing;
  }
}

namespace {

// What the median of a batch's log ratios would vary by, were the rounds independent: π/2 σ²/n, σ from the
// median absolute deviation within each batch.
double variance_of_batch(std::span<const double> ratios) {
  std::vector<double> deviations;
  for (std::size_t begin = 0; begin + batch_rounds <= ratios.size(); begin += batch_rounds) {
    const auto batch = ratios.subspan(begin, batch_rounds);
    const double middle = median(batch);
    for (const double ratio : batch) deviations.push_back(std::fabs(std::log(ratio / middle)));
  }
  if (deviations.empty()) return 0;
  const double deviation = deviation_of_median_absolute * median(deviations);
  return M_PI / 2 * deviation * deviation / static_cast<double>(batch_rounds);
}

}  // namespace

// Rounds that follow one another meet the same neighbours on a shared machine: their ratios agree better with
// each other than with those of half a minute later, and an interval that takes them for independent is too
// narrow. Batches of rounds show by how much.
double Chooser::drift() const {
  const auto reference = fastest();
  if (!reference) return 0;
  double squares = 0;
  double freedom = 0;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!alive_[i] || i == baseline_ || i == *reference) continue;
    const std::vector<double> ratios = first_ratios(i, *reference);
    std::vector<double> batches;
    for (std::size_t begin = 0; begin + batch_rounds <= ratios.size(); begin += batch_rounds) {
      batches.push_back(std::log(median(std::span(ratios).subspan(begin, batch_rounds))));
    }
    if (batches.size() < 2) continue;
    double mean = 0;
    for (const double batch : batches) mean += batch / static_cast<double>(batches.size());
    const auto free_batches = static_cast<double>(batches.size() - 1);
    for (const double batch : batches) squares += (batch - mean) * (batch - mean);
    squares -= free_batches * variance_of_batch(ratios);
    freedom += free_batches;
  }
  return freedom == 0 ? 0 : std::sqrt(std::max(0.0, squares / freedom));
}

bool Chooser::may_tie(const std::vector<double>& ratios, double drift) const {
  if (ratios.empty()) return false;
  const double limit = 1 + tie_band() + noise_floor();
  if (median_interval(ratios, tie_confidence).low <= limit) return true;
  const double batches = std::max(1.0, std::floor(static_cast<double>(ratios.size()) / batch_rounds));
  return median(ratios) <= limit * std::exp(normal_99_5 * drift / std::sqrt(batches));
}

std::vector<std::size_t> Chooser::tie_set(std::size_t winner, double drift) const {
  std::vector<std::size_t> ties;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (i == winner) {
      ties.push_back(i);
      continue;
    }
    if (!alive_[i] || first_[i].empty()) continue;
    std::vector<double> ratios = first_ratios(i, winner);
    // The two that were tested are known better from the test.
    const bool tested = !test_challenger_.empty() && (i == baseline_ || i == challenger_) &&
                        (winner == baseline_ || winner == challenger_);
    if (tested) {
      ratios = quotients(test_baseline_, test_challenger_);
      if (i == challenger_)
        for (double& ratio : ratios) ratio = 1 / ratio;
    }
    if (may_tie(ratios, drift)) ties.push_back(i);
  }
  return ties;
}

Decision Chooser::settle(std::size_t winner, Verdict verdict) const {
  Decision decision;
  decision.winner = winner;
  decision.verdict = verdict;
  const bool tested = !test_challenger_.empty() && (winner == challenger_ || winner == baseline_);
  const auto& times = !tested ? first_[winner] : winner == challenger_ ? test_challenger_ : test_baseline_;
  decision.microseconds = median(times);
  decision.spread = spread(times);
  if (baseline_) {
    const auto& default_times = tested ? test_baseline_ : first_[*baseline_];
    decision.default_microseconds = median(default_times);
    decision.speedup = winner == *baseline_ ? 1 : median(quotients(default_times, times));
  }
  decision.drift = drift();
  decision.ties = tie_set(winner, decision.drift);
  decision.noise_floor = noise_floor();
  decision.rounds = rounds_;
  return decision;
}

Decision Chooser::decision_among(const std::vector<bool>& allowed) const {
  std::vector<bool> measured = alive_;
  std::vector<bool> racing = in_race_;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    measured[i] = measured[i] && allowed[i] && !first_[i].empty();
    racing[i] = racing[i] && measured[i];
  }
  auto best = fastest_of(racing);
  if (!best) best = fastest_of(measured);  // these were slower, but are what there is
  if (!best) return {};
  std::size_t chosen = *best;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!measured[i] || i == *best || median(first_ratios(i, *best)) > 1 + tie_band()) continue;
    if (before_in_order(finalists_[i], finalists_[chosen])) chosen = i;
  }
  Decision decision = settle(chosen, Verdict::undecided);
  std::erase_if(decision.ties, [&](std::size_t tie) { return !measured[tie]; });
  return decision;
}

Decision Chooser::decision() const {
  const bool measured =
      std::any_of(first_.begin(), first_.end(), [](const auto& times) { return !times.empty(); });
  const bool any_alive = std::find(alive_.begin(), alive_.end(), true) != alive_.end();
  if (!measured || !any_alive) return {};
  if (stage_ != Stage::decided && !baseline_) {  // the time was over before the selection was
    const auto best = fastest();
    return best ? settle(*best, Verdict::only) : Decision{};
  }
  if (stage_ != Stage::decided || verdict_ == Verdict::undecided)
    return settle(*baseline_, Verdict::undecided);
  if (verdict_ == Verdict::keep_default) return settle(*baseline_, Verdict::keep_default);
  return settle(challenger_, verdict_);
}

}  // namespace gemmtune
