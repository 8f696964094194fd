#include "tuning/time_estimate.h"

#include <algorithm>

#include "measure/statistics.h"
#include "resolve/candidate_list.h"
#include "search/strategy.h"

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

struct Fit {
  double constant = 0;
  double growing = 0;
};

/// Weighted least squares in two unknowns that may not be negative. A shape's weight is 1/seconds: between
/// equal relative errors (small shapes decide) and equal absolute ones (large shapes decide).
Fit fit(std::span<const DoneShape> done) {
  double cc = 0, cg = 0, gg = 0, cs = 0, gs = 0;
  const auto add = [&](const ShapeCost& cost, double seconds, double weight) {
    cc += weight * cost.constant * cost.constant;
    cg += weight * cost.constant * cost.growing;
    gg += weight * cost.growing * cost.growing;
    cs += weight * cost.constant * seconds;
    gs += weight * cost.growing * seconds;
  };
  ShapeCost all;
  double seconds = 0;
  for (const DoneShape& shape : done) {
    all.constant += shape.cost.constant;
    all.growing += shape.cost.growing;
    seconds += shape.seconds;
    if (shape.seconds > 0) add(shape.cost, shape.seconds, 1 / shape.seconds);
  }
  const double speed = seconds / std::max(all.constant + all.growing, 1e-12);
  const double mean = 1 / static_cast<double>(done.size());
  for (const ShapeCost& cost : {ShapeCost{all.constant * mean, 0}, ShapeCost{0, all.growing * mean}}) {
    const double assumed = speed * (cost.constant + cost.growing);
    if (assumed > 0) add(cost, assumed, belief / assumed);
  }
  const double determinant = cc * gg - cg * cg;
  if (determinant <= 1e-12 * cc * gg) return {speed, speed};
  Fit solved{(cs * gg - gs * cg) / determinant, (gs * cc - cs * cg) / determinant};
  if (solved.constant < 0) return {0, gs / gg};
  if (solved.growing < 0) return {cs / cc, 0};
  return solved;
}

/// A run ends with its budget: that is known where nothing else is.
std::optional<double> within_budget(std::optional<double> seconds, std::optional<double> budget_left) {
  if (!budget_left) return seconds;
  return std::min(seconds.value_or(*budget_left), std::max(0.0, *budget_left));
}

}  // namespace

ShapeCost shape_cost(double call_microseconds, std::size_t candidates) {
  const double tried = static_cast<double>(candidates) + candidates_of_finals;
  return {tried * seconds_per_candidate, tried * calls_per_candidate * call_microseconds * 1e-6};
}

std::optional<double> estimate_remaining(std::span<const DoneShape> done,
                                         std::span<const ShapeCost> remaining,
                                         std::optional<double> budget_left) {
  std::optional<double> seconds;
  if (remaining.empty()) {
    seconds = 0;
  } else if (!done.empty()) {
    const Fit speeds = fit(done);
    seconds = 0;
    for (const ShapeCost& cost : remaining) {
      *seconds += speeds.constant * cost.constant + speeds.growing * cost.growing;
    }
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
  begin_ = request_.clock();
  evaluators_ = std::max<std::size_t>(1, evaluators);
  shapes_.assign(request_.shapes.size(), {});
  for (const std::size_t index : waiting) {
    const Problem& problem = request_.shapes[index].problem;
    // Without exhaustive_space(): to ask a library for all it has takes seconds a shape, and speeds are
    // learnt anyway.
    const CandidateList list = list_candidates(device_, problem, {request_.libtypes, request_.split_k});
    const std::size_t trials = expected_trials(request_.strategy, list.candidates.size());
    shapes_[index] = {shape_cost(median_call(list, problem), trials), !list.candidates.empty(), {}};
  }
}

void RunEstimate::started(std::size_t index) {
  if (index < shapes_.size()) shapes_[index].begin = request_.clock();
}

void RunEstimate::done(std::size_t index, double seconds) {
  if (index >= shapes_.size() || !shapes_[index].waiting) return;
  shapes_[index].waiting = false;
  if (seconds > 0) done_.push_back({shapes_[index].cost, seconds});
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
  if (request_.budget_seconds > 0) budget_left = request_.budget_seconds - (request_.clock() - begin_);
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

std::optional<double> RunEstimate::finals_remaining() const {
  std::vector<ShapeCost> waiting;
  double in_work = 0;
  double longest = 0;
  for (const Shape& shape : shapes_) {
    if (!shape.waiting) continue;
    if (!shape.begin || done_.empty()) {
      waiting.push_back(shape.cost);
      continue;
    }
    // What a shape in work has used is no longer to come, up to all that it was thought to need.
    const double own = *estimate_remaining(done_, {&shape.cost, 1}, std::nullopt);
    const double left = std::max(0.0, own - (request_.clock() - *shape.begin));
    in_work += left;
    longest = std::max(longest, left);
  }
  const auto behind = estimate_remaining(done_, waiting, std::nullopt);
  if (!behind) return std::nullopt;
  return std::max((*behind + in_work) / static_cast<double>(evaluators_), longest);
}

}  // namespace gemmtune
