#include "tuning/time_estimate.h"

#include <algorithm>

#include "measure/statistics.h"
#include "resolve/candidate_list.h"
#include "search/strategy.h"
#include "select/paired_comparison.h"
#include "tuning/problem_tuner.h"

namespace gemmtune {
namespace {

// The imagined machine. Only the proportion of the two matters, and only until shapes of several sizes are
// done.
constexpr double seconds_per_candidate = 0.006;  // build, check and a few samples of the least length
constexpr double calls_per_candidate = 12;       // check, probe, warm-up, samples
constexpr double candidates_of_finals = 60;      // what finals cost, in candidates
constexpr double confirmation_share = 0.35;      // of the time of all finals

// Two observations of the imagined machine, each with this weight of a finished shape, keep the fit away from
// what few shapes suggest by chance.
constexpr double belief = 0.1;

/// The median of the cost models' times; where they have no opinion, what the problem's size suggests.
double median_call(const CandidateList& list, const Problem& problem) {
  std::vector<double> predicted;
  for (const ListedCandidate& listed : list.candidates)
    if (listed.predicted > 0) predicted.push_back(listed.predicted);
  return predicted.empty() ? expected_microseconds(problem) : median(predicted);
}

/// A run ends with its budget: that is known where nothing else is.
std::optional<double> within_budget(std::optional<double> seconds, std::optional<double> budget_left) {
  if (!budget_left) return seconds;
  return std::min(seconds.value_or(*budget_left), std::max(0.0, *budget_left));
}

}  // namespace

double expected_microseconds(const Problem& problem, const ImaginedMachine& machine) {
  return std::max(bytes(problem) / machine.bytes_per_microsecond,
                  flops(problem) / machine.flops_per_microsecond);
}

ShapeCost& ShapeCost::operator+=(const ShapeCost& other) {
  constant += other.constant;
  growing += other.growing;
  return *this;
}

ShapeCost& ShapeCost::operator-=(const ShapeCost& other) {
  constant = std::max(0.0, constant - other.constant);
  growing = std::max(0.0, growing - other.growing);
  return *this;
}

ShapeCost shape_cost(double call_microseconds, std::size_t candidates) {
  const double tried = static_cast<double>(candidates) + candidates_of_finals;
  return {tried * seconds_per_candidate, tried * calls_per_candidate * call_microseconds * 1e-6};
}

void DoneShapes::add_weighted(const ShapeCost& cost, double seconds, double weight) {
  cc_ += weight * cost.constant * cost.constant;
  cg_ += weight * cost.constant * cost.growing;
  gg_ += weight * cost.growing * cost.growing;
  cs_ += weight * cost.constant * seconds;
  gs_ += weight * cost.growing * seconds;
}

// A shape's weight is 1/seconds: between equal relative errors (small shapes decide) and equal absolute ones
// (large shapes decide).
void DoneShapes::add(const ShapeCost& cost, double seconds) {
  all_ += cost;
  seconds_ += seconds;
  ++count_;
  if (seconds > 0) add_weighted(cost, seconds, 1 / seconds);
}

/// Weighted least squares in two unknowns that may not be negative.
ShapeCost DoneShapes::speeds() const {
  DoneShapes sums = *this;
  const double speed = seconds_ / std::max(all_.constant + all_.growing, 1e-12);
  for (const ShapeCost& cost : {ShapeCost{all_.constant / count_, 0}, ShapeCost{0, all_.growing / count_}}) {
    const double assumed = speed * (cost.constant + cost.growing);
    if (assumed > 0) sums.add_weighted(cost, assumed, belief / assumed);
  }
  const double determinant = sums.cc_ * sums.gg_ - sums.cg_ * sums.cg_;
  if (determinant <= 1e-12 * sums.cc_ * sums.gg_) return {speed, speed};
  const ShapeCost solved{(sums.cs_ * sums.gg_ - sums.gs_ * sums.cg_) / determinant,
                         (sums.gs_ * sums.cc_ - sums.cs_ * sums.cg_) / determinant};
  if (solved.constant < 0) return {0, sums.gs_ / sums.gg_};
  if (solved.growing < 0) return {sums.cs_ / sums.cc_, 0};
  return solved;
}

double DoneShapes::seconds_of(const ShapeCost& cost) const {
  const ShapeCost each = speeds();
  return each.constant * cost.constant + each.growing * cost.growing;
}

std::optional<double> estimate_remaining(const DoneShapes& done, const ShapeCost& remaining,
                                         std::optional<double> budget_left) {
  std::optional<double> seconds;
  if (remaining.constant + remaining.growing <= 0) {
    seconds = 0;
  } else if (!done.empty()) {
    seconds = done.seconds_of(remaining);
  }
  return within_budget(seconds, budget_left);
}

std::optional<double> estimate_remaining(const RangeStep& step) {
  if (step.searched < step.first_ms) {
    if (step.searched == 0) return std::nullopt;
    const double each = step.item_seconds / static_cast<double>(step.searched);
    return each * static_cast<double>(step.first_ms - step.searched);
  }
  const double spent = step.item_seconds - step.settling_begin;
  if (step.settled_share < 0.1 || step.settled_share >= 1 || spent <= 0) return std::nullopt;
  return spent * (1 - step.settled_share) / step.settled_share;
}

void RunEstimate::begin(std::span<const std::size_t> waiting, std::size_t evaluators) {
  // What the candidates of further shapes would cost and show is not worth their listing.
  constexpr std::size_t max_listed = 64;
  evaluators_ = std::max<std::size_t>(1, evaluators);
  shapes_.assign(request_.shapes.size(), {});
  const std::size_t stride = waiting.size() / max_listed + 1;
  std::vector<double> call_ratios;  // of the listed shapes: to what the size suggests
  std::vector<double> trials;
  for (std::size_t i = 0; i < waiting.size(); i += stride) {
    const Problem& problem = request_.shapes[waiting[i]].problem;
    // Without exhaustive_space(): to ask a library for all it has takes seconds a shape, and speeds are
    // learnt anyway.
    CandidateFilter filter = candidate_filter(request_);
    filter.exhaustive = false;
    const CandidateList list = list_candidates(device_, problem, filter);
    if (list.candidates.empty()) continue;
    const double call = median_call(list, problem);
    const std::size_t tried = expected_trials(request_.strategy, list.candidates.size());
    shapes_[waiting[i]] = {shape_cost(call, tried), static_cast<double>(tried), true};
    call_ratios.push_back(call / expected_microseconds(problem));
    trials.push_back(static_cast<double>(tried));
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    Shape& shape = shapes_[waiting[i]];
    if (i % stride != 0 && !trials.empty()) {
      const Problem& problem = request_.shapes[waiting[i]].problem;
      shape.trials = median(trials);
      shape.cost = shape_cost(median(call_ratios) * expected_microseconds(problem),
                              static_cast<std::size_t>(shape.trials));
      shape.waiting = true;
    }
    if (shape.waiting) waiting_ += shape.cost;
  }
}

void RunEstimate::started(std::size_t index) {
  if (index >= shapes_.size() || !shapes_[index].waiting) return;
  const double now = request_.clock();
  if (in_work_.try_emplace(index, InWork{now, 0, 0, now}).second) waiting_ -= shapes_[index].rest();
}

void RunEstimate::paused(std::size_t index) {
  const auto found = in_work_.find(index);
  if (found == in_work_.end()) return;
  Shape& shape = shapes_[index];
  if (found->second.tried > 0) {
    const double share = shape.share_of(found->second.tried, found->second.finals);
    left_.add({share * shape.cost.constant, share * shape.cost.growing},
              request_.clock() - found->second.begin);
  }
  shape.tried += found->second.tried;
  waiting_ += shape.rest();
  in_work_.erase(found);
}

void RunEstimate::tried(std::size_t index) {
  const auto found = in_work_.find(index);
  if (found == in_work_.end()) return;
  ++found->second.tried;
  found->second.known_at = request_.clock();
}

void RunEstimate::rounds(std::size_t index, int rounds) {
  const auto found = in_work_.find(index);
  if (found == in_work_.end()) return;
  // The test takes about as many rounds as the selection before it, and most tests end at the first of their limits.
  const std::vector<int> limits = interim_rounds(request_.policy.round_limit);
  const auto limit = std::ranges::lower_bound(limits, rounds);
  const int expected = 2 * (limit == limits.end() ? std::max(rounds, 1) : *limit);
  found->second.finals = std::max(found->second.finals, static_cast<double>(rounds) / expected);
  found->second.known_at = request_.clock();
}

void RunEstimate::done(std::size_t index, double seconds) {
  if (index >= shapes_.size() || !shapes_[index].waiting) return;
  Shape& shape = shapes_[index];
  if (in_work_.erase(index) == 0) waiting_ -= shape.rest();
  shape.waiting = false;
  if (seconds > 0) done_.add(shape.cost, seconds);
}

void RunEstimate::confirmation_started(std::size_t done, std::size_t count) {
  const double now = request_.clock();
  if (confirmations_ == 0) {
    confirmations_begin_ = now;
    finals_seconds_ = now - begin_;
  }
  confirmations_ = count;
  confirmations_done_ = done;
}

std::optional<double> RunEstimate::remaining() const {
  std::optional<double> budget_left;
  if (request_.budget_seconds > 0)
    budget_left = request_.budget_seconds - request_.seconds_spent - (request_.clock() - begin_);
  std::optional<double> seconds;
  if (confirmations_ > 0) {
    // One assumed pass beside those that were measured.
    const auto done = static_cast<double>(confirmations_done_);
    const auto all = static_cast<double>(confirmations_);
    const double assumed = confirmation_share * finals_seconds_ / all;
    const double gone = request_.clock() - confirmations_begin_;
    seconds = std::max(0.0, (gone + assumed) / (done + 1) * all - gone);
  } else {
    seconds = finals_remaining();
    if (seconds && request_.confirmations > 1 && !budget_left)
      *seconds += confirmation_share * (request_.clock() - begin_ + *seconds);
  }
  return within_budget(seconds, budget_left);
}

double RunEstimate::Shape::share_of(double candidates, double finals) const {
  const double searched = tried + candidates;
  const double all = finals > 0 ? searched : std::max(trials, searched);
  return (candidates + finals * candidates_of_finals) / (all + candidates_of_finals);
}

ShapeCost RunEstimate::Shape::rest() const {
  const double share = tried > 0 ? 1 - tried / (std::max(trials, tried) + candidates_of_finals) : 1;
  return {share * cost.constant, share * cost.growing};
}

/// Finished shapes; while there are none, the finished part of those that were begun.
DoneShapes RunEstimate::known() const {
  if (!done_.empty()) return done_;
  DoneShapes parts = left_;
  for (const auto& [index, work] : in_work_) {
    if (work.tried == 0) continue;
    const double share = shapes_[index].share_of(work.tried, work.finals);
    const ShapeCost& cost = shapes_[index].cost;
    // Up to the latest that was done: seconds in which nothing ended are no sign that all takes longer.
    parts.add({share * cost.constant, share * cost.growing}, work.known_at - work.begin);
  }
  return parts;
}

std::optional<double> RunEstimate::finals_remaining() const {
  const DoneShapes known = this->known();
  const auto behind = estimate_remaining(known, waiting_, std::nullopt);
  if (!behind || (known.empty() && !in_work_.empty())) return std::nullopt;
  double all_in_work = 0;
  double longest = 0;
  for (const auto& [index, work] : in_work_) {
    // What a shape in work has used is no longer to come, up to all that it was thought to need.
    const double own = known.seconds_of(shapes_[index].rest());
    const double left = std::max(0.0, own - (request_.clock() - work.begin));
    all_in_work += left;
    longest = std::max(longest, left);
  }
  return std::max((*behind + all_in_work) / static_cast<double>(evaluators_), longest);
}

}  // namespace gemmtune
