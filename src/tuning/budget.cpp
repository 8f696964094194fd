#include "tuning/budget.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {

double expected_microseconds(const Problem& problem) {
  constexpr double bytes_per_microsecond = 2e4;  // 20 GB/s
  constexpr double flops_per_microsecond = 4e5;  // 400 GFLOP/s
  return std::max(bytes(problem) / bytes_per_microsecond, flops(problem) / flops_per_microsecond);
}

double BudgetShares::take(std::size_t problem, double seconds_left) {
  constexpr double equal_part = 0.3;
  double total = 0;
  double own = 0;
  double waiting = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].weight <= 0) continue;
    const double weight = items_[i].weight * expected_gain(items_[i].problem);
    total += weight;
    waiting += 1;
    if (i == problem) own = weight;
  }
  items_[problem].weight = 0;
  if (own <= 0 || seconds_left <= 0) return 0;
  return seconds_left * (equal_part / waiting + (1 - equal_part) * own / total);
}

void BudgetShares::learn(std::size_t problem, double speedup) {
  gains_.push_back({items_[problem].problem, std::clamp(1 - 1 / std::max(speedup, 1.0), 0.0, 1.0)});
}

double BudgetShares::expected_gain(const Problem& problem) const {
  constexpr double default_gain = 0.2;
  constexpr double default_weight = 0.5;  // of the usual gain, against 1 for the gain of the same problem
  constexpr double min_gain = 0.02;       // nothing is known so well that it gets no time
  const auto apart = [](std::int64_t a, std::int64_t b) {
    return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
  };
  double sum = default_weight * default_gain;
  double weights = default_weight;
  for (const Gain& gain : gains_) {
    const Problem& other = gain.problem;
    const double near =
        std::exp(-apart(problem.m, other.m) - apart(problem.n, other.n) - apart(problem.k, other.k));
    sum += near * gain.share;
    weights += near;
  }
  return std::max(min_gain, sum / weights);
}

RunBudget::RunBudget(double seconds, SecondsClock clock, std::size_t evaluators)
    : clock_(std::move(clock)),
      deadline_(seconds > 0 ? Deadline::in(seconds, clock_) : Deadline::never(clock_)),
      evaluators_(evaluators) {}

std::optional<Deadline> RunBudget::take(std::size_t problem) {
  if (!std::isfinite(deadline_.seconds_left())) return Deadline::never(clock_);
  if (deadline_.over()) return std::nullopt;
  const double left = deadline_.seconds_left();
  return Deadline::in(std::min(left, shares_.take(problem, left * static_cast<double>(evaluators_))), clock_);
}

}  // namespace gemmtune
