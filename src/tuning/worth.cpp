#include "tuning/worth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "backends/default_kernels.h"
#include "base/deadline.h"
#include "resolve/candidate_list.h"
#include "tuning/problem_tuner.h"
#include "tuning/time_estimate.h"
#include "tuning/transfer.h"

namespace gemmtune {
namespace {

constexpr std::size_t first_kernels = 32;  // of each shape, where no time is given
constexpr int rounds = 9;                  // of the best of them beside the default …
constexpr int rounds_at_once = 3;          // … in calls of so many, until the shape's time is over
constexpr double screening_share = 0.8;    // of a shape's time

// What the rest of a search adds to the logarithm of the speed-up, where the first kernels beat the default already, and where they
// did not: median, and an interval of 95 %. Of whole runs on recorded spaces of a Xeon and an H200, every second problem (worth_test):
// medians of 0.2 % and 0.0 %, -7 % to 5 % and 0 % to 1 %. The ends are wider, for machines that were not recorded.
struct Rest {
  double low;
  double median;
  double high;
};
constexpr Rest rest_after_gain{-0.08, 0.005, 0.12};
constexpr Rest rest_without_gain{0.0, 0.005, 0.12};
constexpr double gain_seen = 0.01;  // logarithm, from which on the first kernels beat the default
constexpr double common = 0.5;      // of what shapes may be off: the machine is the same for all

/// A default that reads the weight at the roof leaves nothing; kernels reach this share of it.
constexpr double reachable_roof = 0.97;

const Trial* trial_of(const std::vector<Trial>& trials, const std::string& kernel) {
  const auto found = std::ranges::find_if(
      trials, [&](const Trial& trial) { return trial.candidate.kernel_name() == kernel; });
  return found == trials.end() || found->outcome.kind != OutcomeKind::ok ||
                 found->outcome.microseconds.empty()
             ? nullptr
             : &*found;
}

/// Paired rounds of the default, the first of `pair`, and the best: the default's median, and the ratio of both.
void run_rounds(Evaluator& evaluator, const std::vector<Candidate>& pair, const Deadline& deadline,
                ShapeWorth& shape) {
  std::vector<double> defaults;
  std::vector<double> ratios;
  for (int done = 0; done < rounds && (done == 0 || !deadline.over()); done += rounds_at_once) {
    const auto result = evaluator.finals(shape.shape.problem, pair, rounds_at_once);
    if (!result.ok()) break;
    shape.roof_microseconds = std::max(shape.roof_microseconds, result->roof_microseconds);
    for (const std::vector<double>& round : result->times) {
      if (round.empty() || !std::isfinite(round[0])) continue;
      defaults.push_back(round[0]);
      if (round.size() > 1 && std::isfinite(round[1]) && round[1] > 0) ratios.push_back(round[0] / round[1]);
    }
  }
  if (defaults.empty()) return;
  shape.default_microseconds = median(defaults);
  shape.best_microseconds = shape.default_microseconds;
  if (ratios.empty()) return;
  shape.best_microseconds = shape.default_microseconds / median(ratios);
  if (ratios.size() >= 6) shape.seen = median_interval(ratios, 0.95);  // fewer have no interval of 95 %
}

/// Empty, or why the shape counts for nothing.
std::string measure(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                    const Deadline& deadline, ShapeWorth& shape) {
  const Problem& problem = shape.shape.problem;
  const CandidateList list = list_candidates(device, problem, candidate_filter(request));
  shape.kernels = list.candidates.size();
  shape.expected = shape.kernels;
  const auto untuned = default_kernel(device, problem, request.policy.accuracy);
  if (!untuned.ok()) return untuned.message();
  shape.default_kernel = untuned->kernel_name();
  TuningVisit visit(deadline.part(screening_share));
  if (!std::isfinite(deadline.seconds_left())) visit.max_candidates = first_kernels;
  visit.settles = false;
  TuningProgress progress;
  std::vector<Candidate> hints = {*untuned};
  if (request.earlier_winners)
    std::ranges::move(candidates_named(request.earlier_winners(problem), device, problem),
                      std::back_inserter(hints));
  const ProblemResult searched = tune_problem(device, evaluator, request, problem, std::nullopt, visit,
                                              {[](const Trial&) {}}, hints, &progress);
  if (progress.screened.empty())
    return searched.reason.empty() ? "no kernel was timed in the time" : searched.reason;
  shape.tried = progress.screened.size();
  // A search that ended by itself would try no more.
  shape.expected =
      searched.figures.is_cut ? std::max(searched.figures.expected, shape.tried + 1) : shape.tried;
  const Trial* best = nullptr;
  for (const Trial& trial : progress.screened) {
    if (trial.outcome.kind != OutcomeKind::ok || trial.outcome.microseconds.empty()) continue;
    if (best == nullptr || median(trial.outcome.microseconds) < median(best->outcome.microseconds))
      best = &trial;
  }
  std::vector<Candidate> pair = {*untuned};
  if (best != nullptr && best->candidate.kernel_name() != shape.default_kernel)
    pair.push_back(best->candidate);
  shape.best_kernel = pair.back().kernel_name();
  run_rounds(evaluator, pair, deadline, shape);
  if (shape.best_microseconds > shape.default_microseconds) {
    shape.best_microseconds = shape.default_microseconds;
    shape.best_kernel = shape.default_kernel;
  }
  if (shape.default_microseconds <= 0) {
    const Trial* const screened = trial_of(progress.screened, shape.default_kernel);
    if (screened == nullptr) return fmt::format("the default, {}, could not be timed", shape.default_kernel);
    shape.default_microseconds = shape.best_microseconds = median(screened->outcome.microseconds);
  }
  return {};
}

}  // namespace

ExpectedSpeedup expected_speedup(double ratio, std::optional<Interval> seen, std::size_t tried,
                                 std::size_t expected_kernels, double roof_share) {
  const double gain = std::log(std::max(1.0, ratio));
  const Rest rest = gain > gain_seen ? rest_after_gain : rest_without_gain;
  // Nothing is left to find where all were looked at.
  const double unseen = expected_kernels == 0 ? 0
                                              : 1 - static_cast<double>(std::min(tried, expected_kernels)) /
                                                        static_cast<double>(expected_kernels);
  double below = rest.low;
  if (seen && seen->low > 0 && ratio > 0) below = std::min(below, std::log(std::min(1.0, seen->low / ratio)));
  double above = unseen * rest.high;
  if (seen && ratio > 0) above = std::max(above, std::log(std::max(1.0, seen->high / ratio)));
  double most = gain + above;
  if (roof_share > 0) most = std::min(most, std::max(gain, -std::log(roof_share * reachable_roof)));
  const double expected = std::min(most, gain + unseen * rest.median);
  return {std::exp(expected), {std::exp(std::max(0.0, gain + below)), std::exp(std::max(most, expected))}};
}

void add_up(Worth& worth) {
  worth.default_microseconds = 0;
  worth.measured = 0;
  for (const ShapeWorth& shape : worth.shapes) {
    if (!shape.why_not.empty()) continue;
    ++worth.measured;
    worth.default_microseconds +=
        static_cast<double>(std::max<std::int64_t>(1, shape.shape.calls)) * shape.default_microseconds;
  }
  worth.saved_share = 0;
  worth.saved_interval = {0, 0};
  if (worth.default_microseconds <= 0) return;
  double below = 0, above = 0;                  // sums …
  double below_squares = 0, above_squares = 0;  // … and of squares
  for (const ShapeWorth& shape : worth.shapes) {
    if (!shape.why_not.empty()) continue;
    const double weight = static_cast<double>(std::max<std::int64_t>(1, shape.shape.calls)) *
                          shape.default_microseconds / worth.default_microseconds;
    const auto saved = [](double speedup) { return 1 - 1 / speedup; };
    const double expected = saved(shape.speedup);
    worth.saved_share += weight * expected;
    const double down = weight * (expected - saved(shape.speedup_interval.low));
    const double up = weight * (saved(shape.speedup_interval.high) - expected);
    below += down;
    above += up;
    below_squares += down * down;
    above_squares += up * up;
  }
  const auto both = [](double sum, double squares) {
    return std::sqrt(common * sum * sum + (1 - common) * squares);
  };
  worth.saved_interval = {std::max(0.0, worth.saved_share - both(below, below_squares)),
                          std::min(1.0, worth.saved_share + both(above, above_squares))};
}

Result<Worth> estimate_worth(
    const Device& device, Evaluator& evaluator, const TuneRequest& request, double seconds,
    const std::function<void(const ShapeWorth&, std::size_t done, std::size_t count)>& on_shape) {
  Worth worth;
  const Deadline clock = Deadline::never(request.clock);
  const Deadline deadline =
      seconds > 0 ? Deadline::in(seconds, request.clock) : Deadline::never(request.clock);
  for (const ShapeRow& row : request.shapes) worth.shapes.emplace_back().shape = row;
  std::vector<std::size_t> order(worth.shapes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) {
    const ShapeRow& row = worth.shapes[i].shape;
    return static_cast<double>(std::max<std::int64_t>(1, row.calls)) * expected_microseconds(row.problem);
  });
  for (std::size_t at = 0; at < order.size(); ++at) {
    ShapeWorth& shape = worth.shapes[order[at]];
    const bool is_stopped = request.stop && request.stop();
    if (is_stopped || (at > 0 && deadline.over())) {
      shape.why_not = is_stopped ? "interrupted" : "not reached in the time";
      continue;
    }
    shape.why_not = measure(device, evaluator, request,
                            deadline.part(1.0 / static_cast<double>(order.size() - at)), shape);
    if (shape.why_not.empty()) {
      const double ratio =
          shape.best_microseconds > 0 ? shape.default_microseconds / shape.best_microseconds : 1;
      const ExpectedSpeedup expected = expected_speedup(ratio, shape.seen, shape.tried, shape.expected,
                                                        shape.roof_microseconds / shape.default_microseconds);
      shape.speedup = expected.speedup;
      shape.speedup_interval = expected.interval;
    }
    if (on_shape) on_shape(shape, at + 1, order.size());
  }
  add_up(worth);
  worth.seconds = clock.seconds_elapsed();
  return worth;
}

}  // namespace gemmtune
