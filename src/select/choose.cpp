#include "select/choose.h"

#include <algorithm>
#include <cmath>
#include <utility>

// Two stages. The fastest of several noisy candidates seems faster than it is, and a test that is evaluated
// after every round passes sooner or later. So the first rounds only select the finalist to test, fresh
// rounds test it, and the sign test is evaluated a fixed number of times with alpha divided among them
// (Bonferroni).
//
// The declared ties are wider than the band within which the fixed order decides. A second run has other
// noise, in its times and in its noise floor, and so another band and another limit: a candidate inside the
// band today may be outside tomorrow. `ties` therefore holds every finalist that is not slower than the
// winner by more than the band and the floor together with 99.5 % confidence, with an allowance for the drift
// of ratios between batches of rounds and between machines of a kind; the order itself compares medians. (Simulated, 4000 double runs with 5
// candidates within 20 %, jitter up to 3.5 % and stalls: 99.7 % agree, with 0.8 declared ties per winner.)

namespace gemmtune {
namespace {

constexpr double tie_confidence = 0.995;
constexpr std::size_t batch_rounds = 15;    // of the batches between which drift is measured
constexpr int quiet_selection_rounds = 30;  // enough if the noise is below the tie band

}  // namespace

bool precedes_in_tie(const TieOrder& a, const TieOrder& b) {
  if (a.tie_rank != b.tie_rank) return a.tie_rank < b.tie_rank;
  if (a.departures != b.departures) return a.departures < b.departures;
  if (a.resources != b.resources) return a.resources < b.resources;
  return a.kernel_name < b.kernel_name;
}

Chooser::Chooser(std::vector<TieOrder> finalists, std::optional<std::size_t> baseline, const Policy& policy)
    : finalists_(std::move(finalists)),
      baseline_(baseline),
      policy_(policy),
      alive_(finalists_.size(), true),
      in_race_(finalists_.size(), true),
      selection_(finalists_.size()) {
  if (finalists_.empty()) stage_ = Stage::decided;
}

FinalsPlan Chooser::next() const {
  FinalsPlan plan;
  if (stage_ == Stage::decided) return plan;
  if (stage_ == Stage::selecting) {
    for (std::size_t i = 0; i < finalists_.size(); ++i)
      if (in_race_[i]) plan.candidates.push_back(i);
  } else {
    plan.candidates = {*baseline_, tested_};
  }
  const int done = stage_ == Stage::selecting ? selection_rounds_ : test_rounds_;
  const std::vector<int> interim = interim_rounds(policy_.round_limit);
  const auto next = std::ranges::find_if(interim, [&](int rounds) { return rounds > done; });
  if (next != interim.end()) plan.rounds = *next - done;
  return plan;
}

void Chooser::drop(std::size_t finalist) {
  alive_[finalist] = in_race_[finalist] = false;
  if (baseline_ != finalist) return;
  baseline_.reset();
  lost_default_ = true;
}

void Chooser::add(const FinalsPlan& plan, const FinalsResult& result) {
  const auto added = static_cast<int>(result.times.size());
  rounds_ += added;
  same_ratios_.insert(same_ratios_.end(), result.same_ratios.begin(), result.same_ratios.end());
  PairedRounds fresh(finalists_.size());
  fresh.add(plan.candidates, result.times);
  bool complete = true;
  for (const std::size_t finalist : plan.candidates) {
    const std::size_t count = fresh.times(finalist).size();
    if (count > 0 && count == result.times.size()) continue;
    drop(finalist);
    complete = false;
  }
  if (stage_ == Stage::testing) {
    test_.add(plan.candidates, result.times);
    test_rounds_ += added;
    if (complete) {
      evaluate_test();
    } else {
      start_test();  // of another finalist, or of none
    }
    return;
  }
  selection_.add(plan.candidates, result.times);
  selection_rounds_ += added;
  narrow();
  if (selection_is_over()) start_test();
}

double Chooser::noise_floor() const { return gemmtune::noise_floor(same_ratios_); }

RatioLimits Chooser::limits() const { return ratio_limits(policy_, noise_floor()); }

double Chooser::ratio(std::size_t numerator, std::size_t denominator) const {
  return median(selection_.ratios(numerator, denominator));
}

double Chooser::selection_time(std::size_t finalist) const { return median(selection_.times(finalist)); }

// Finalists that are in the race have all rounds of the selection in common.
std::vector<bool> Chooser::racing() const {
  std::vector<bool> racing = in_race_;
  if (baseline_) racing[*baseline_] = false;
  return racing;
}

std::optional<std::size_t> Chooser::fastest_of(const std::vector<bool>& candidates) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < finalists_.size(); ++i)
    if (candidates[i] && (!best || selection_time(i) < selection_time(*best))) best = i;
  return best;
}

std::optional<std::size_t> Chooser::fastest() const { return fastest_of(racing()); }

// Takes a finalist out of the race if it is slower than the fastest by more than the tie band, with
// tie_confidence. The default stays in, because the others are compared with it.
void Chooser::narrow() {
  const auto best = fastest();
  if (!best) return;
  const double limit = limits().tie;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!in_race_[i] || i == baseline_ || i == *best) continue;
    if (median_interval(selection_.ratios(i, *best), tie_confidence).low > limit) in_race_[i] = false;
  }
}

// One finalist beside the default left, or noise below the tie band, or no more rounds.
bool Chooser::selection_is_over() const {
  if (selection_rounds_ >= interim_rounds(policy_.round_limit).back()) return true;
  const auto racing = std::count(in_race_.begin(), in_race_.end(), true) - (baseline_ ? 1 : 0);
  if (racing <= 1) return true;
  return selection_rounds_ >= quiet_selection_rounds && noise_floor() <= policy_.tie_band;
}

// Selects the finalist to test; decides at once if there is nothing to test.
void Chooser::start_test() {
  test_ = PairedRounds(finalists_.size());
  test_rounds_ = 0;
  verdict_ = Verdict::none;
  stage_ = Stage::decided;
  if (!fastest()) {
    // Finalists out of the race are slower, but their results are right.
    for (std::size_t i = 0; i < finalists_.size(); ++i) in_race_[i] = alive_[i];
  }
  const auto best = fastest();
  if (!best) {
    if (baseline_) verdict_ = Verdict::keep_default;
    return;
  }
  // The fixed order decides among finalists within the band of the fastest; if the fastest seems to beat the
  // default, among those that seem to beat it too.
  const auto beats = [&](std::size_t i) { return !baseline_ || ratio(i, *baseline_) < policy_.prefer_ratio; };
  const bool fastest_beats = beats(*best);
  const double limit = limits().tie;
  tested_ = *best;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!in_race_[i] || i == baseline_ || i == *best) continue;
    if (ratio(i, *best) > limit || (fastest_beats && !beats(i))) continue;
    if (precedes_in_tie(finalists_[i], finalists_[tested_])) tested_ = i;
  }
  if (!baseline_) {
    verdict_ = verdict_without_default();
  } else if (!fastest_beats &&
             is_above(selection_.ratios(tested_, *baseline_), policy_.prefer_ratio, test_alpha)) {
    verdict_ = Verdict::keep_default;
  } else {
    stage_ = Stage::testing;
  }
}

// Has the finalist passed, or failed for good, or are there no more rounds?
void Chooser::evaluate_test() {
  const std::vector<int> interim = interim_rounds(policy_.round_limit);
  const double alpha = test_alpha / static_cast<double>(interim.size());
  const std::vector<double> ratios = test_.ratios(tested_, *baseline_);
  const RatioLimits limit = limits();
  stage_ = Stage::decided;
  if (is_below(ratios, limit.win, alpha)) {
    verdict_ = Verdict::win;
  } else if (is_above(ratios, limit.no_win, alpha)) {
    verdict_ = Verdict::keep_default;
  } else if (test_rounds_ >= interim.back()) {
    verdict_ = Verdict::undecided;
  } else {
    stage_ = Stage::testing;
  }
}

namespace {

// Variance of the median of a batch's log ratios if rounds are independent: π/2 σ²/n, σ from the median
// absolute deviation within each batch.
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

// Rounds that follow one another have the same neighbours on a shared machine: their ratios agree better with
// each other than with those of half a minute later, and an interval that assumes independence is too narrow.
// The variance between batches of rounds, beyond that within them, measures by how much.
double Chooser::drift() const {
  const auto reference = fastest();
  if (!reference) return 0;
  double squares = 0;
  double freedom = 0;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!alive_[i] || i == baseline_ || i == *reference) continue;
    const std::vector<double> ratios = selection_.ratios(i, *reference);
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
  const double limit = limits().declared_tie;
  if (median_interval(ratios, tie_confidence).low <= limit) return true;
  const double batches = std::max(1.0, std::floor(static_cast<double>(ratios.size()) / batch_rounds));
  return median(ratios) <= limit * std::exp(normal_99_5 * deviation_of_runs(drift / std::sqrt(batches)));
}

std::vector<std::size_t> Chooser::tie_set(std::size_t winner, double drift) const {
  std::vector<std::size_t> ties;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (i == winner) {
      ties.push_back(i);
      continue;
    }
    if (!alive_[i]) continue;
    // The test's rounds, where both took part in it, are fresh: no selection favours one of them.
    const bool tested =
        test_rounds_ > 0 && (i == baseline_ || i == tested_) && (winner == baseline_ || winner == tested_);
    if (may_tie((tested ? test_ : selection_).ratios(i, winner), drift)) ties.push_back(i);
  }
  return ties;
}

std::optional<double> Chooser::selection_ratio(std::size_t finalist) const {
  if (!baseline_ || test_rounds_ == 0 || finalist != tested_) return std::nullopt;
  const std::vector<double> ratios = selection_.ratios(*baseline_, finalist);
  return ratios.empty() ? std::nullopt : std::optional(median(ratios));
}

namespace {

/// What a kernel takes where nothing disturbs it: the tenth part of its rounds that was fastest ends there.
double quietest(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 10];
}

}  // namespace

// The order statistics of the deciding rounds, widened by what else is known of the ratio: the rounds of the selection,
// the quietest rounds, how much A differs from A, and how far ratios move from pass to pass: rounds of one pass agree with
// each other, not with those of another state of the machine.
std::optional<Interval> Chooser::speedup_interval(std::size_t winner, const PairedRounds& deciding) const {
  if (winner == *baseline_) return std::nullopt;
  const std::vector<double> ratios = deciding.ratios(*baseline_, winner);
  if (ratios.empty()) return std::nullopt;
  Interval interval = median_interval(ratios, 0.95);
  const auto include = [&](double ratio) {
    interval.low = std::min(interval.low, ratio);
    interval.high = std::max(interval.high, ratio);
  };
  if (const auto other = selection_ratio(winner)) include(*other);
  include(quietest(deciding.times(*baseline_)) / quietest(deciding.times(winner)));
  const double widened = (1 + noise_floor()) * policy_.pass_factor;
  return Interval{interval.low / widened, interval.high * widened};
}

Decision Chooser::settle(std::size_t winner, Verdict verdict) const {
  Decision decision;
  decision.winner = winner;
  decision.verdict = verdict;
  const bool tested = test_rounds_ > 0 && (winner == tested_ || winner == baseline_);
  const PairedRounds& deciding = tested ? test_ : selection_;
  const std::vector<double> times = deciding.times(winner);
  decision.microseconds = median(times);
  decision.spread = spread(times);
  if (baseline_) {
    decision.default_microseconds = median(deciding.times(*baseline_));
    decision.speedup = winner == *baseline_ ? 1 : median(deciding.ratios(*baseline_, winner));
    decision.speedup_interval = speedup_interval(winner, deciding);
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
    measured[i] = measured[i] && allowed[i] && !selection_.times(i).empty();
    racing[i] = racing[i] && measured[i];
  }
  auto best = fastest_of(racing);
  if (!best) best = fastest_of(measured);
  if (!best) return {};
  std::size_t chosen = *best;
  const double limit = limits().tie;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!measured[i] || i == *best || ratio(i, *best) > limit) continue;
    if (precedes_in_tie(finalists_[i], finalists_[chosen])) chosen = i;
  }
  Decision decision = settle(chosen, Verdict::undecided);
  std::erase_if(decision.ties, [&](std::size_t tie) { return !measured[tie]; });
  return decision;
}

// The rounds that selected a finalist favour it; the error is shared out among all that might have been selected.
std::optional<std::size_t> Chooser::surely_faster() const {
  const auto best = fastest();
  if (!best || !baseline_) return std::nullopt;
  const auto chances = static_cast<double>(finalists_.size() * interim_rounds(policy_.round_limit).size());
  const RatioLimits limit = limits();
  std::optional<std::size_t> winner;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!in_race_[i] || i == baseline_ || ratio(i, *best) > limit.tie) continue;
    const std::vector<double> ratios = selection_.ratios(i, *baseline_);
    if (!is_below(ratios, limit.win, test_alpha / chances) && !is_far_below(ratios, noise_floor())) continue;
    if (!winner || precedes_in_tie(finalists_[i], finalists_[*winner])) winner = i;
  }
  return winner;
}

Decision Chooser::decision() const {
  const bool any_alive = std::find(alive_.begin(), alive_.end(), true) != alive_.end();
  if (selection_rounds_ == 0 || !any_alive) return {};
  if (stage_ != Stage::decided && !baseline_) {  // the time ended before the selection did
    const auto best = fastest();
    return best ? settle(*best, verdict_without_default()) : Decision{};
  }
  if (stage_ != Stage::decided) {  // the time ended: what the rounds of the selection prove
    const auto winner = surely_faster();
    return winner ? settle(*winner, Verdict::win) : settle(*baseline_, Verdict::undecided);
  }
  if (verdict_ == Verdict::undecided) return settle(*baseline_, Verdict::undecided);
  if (verdict_ == Verdict::keep_default) return settle(*baseline_, Verdict::keep_default);
  return settle(tested_, verdict_);
}

}  // namespace gemmtune
