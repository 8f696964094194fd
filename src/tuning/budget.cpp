#include "tuning/budget.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {

double expected_microseconds(const Problem& problem) {
  constexpr double bytes_per_microsecond = 2e4;  // 20 GB/s
  constexpr double flops_per_microsecond = 4e5;  // 400 GFLOP/s
  return std::max(bytes(problem) / bytes_per_microsecond, flops(problem) / flops_per_microsecond);
}

BudgetShares::BudgetShares(const std::vector<BudgetItem>& items) {
  constexpr double default_gain = 0.2;
  constexpr double default_weight = 0.5;  // of the usual gain, against 1 for the gain of the same problem
  const auto log_of = [](std::int64_t size) { return std::log(static_cast<double>(size)); };
  items_.reserve(items.size());
  for (const BudgetItem& item : items) {
    const Problem& problem = item.problem;
    items_.push_back({log_of(problem.m), log_of(problem.n), log_of(problem.k), item.weight, default_weight,
                      default_weight * default_gain});
  }
}

double BudgetShares::take(std::size_t problem, double seconds_left) {
  constexpr double equal_part = 0.3;
  double total = 0;
  double own = 0;
  double waiting = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].weight <= 0) continue;
    const double weight = items_[i].weight * expected_gain(i);
    total += weight;
    waiting += 1;
    if (i == problem) own = weight;
  }
  items_[problem].weight = 0;
  if (own <= 0 || seconds_left <= 0) return 0;
  return seconds_left * (equal_part / waiting + (1 - equal_part) * own / total);
}

void BudgetShares::learn(std::size_t problem, double speedup) {
  const double share = std::clamp(1 - 1 / std::max(speedup, 1.0), 0.0, 1.0);
  const Item& learnt = items_[problem];
  for (Item& item : items_) {
    const double near = std::exp(-std::abs(item.log_m - learnt.log_m) - std::abs(item.log_n - learnt.log_n) -
                                 std::abs(item.log_k - learnt.log_k));
    item.near += near;
    item.gain += near * share;
  }
}

double BudgetShares::expected_gain(std::size_t problem) const {
  constexpr double min_gain = 0.02;  // nothing is known so well that it gets no time
  return std::max(min_gain, items_[problem].gain / items_[problem].near);
}

RunBudget::RunBudget(double seconds, double spent, SecondsClock clock, std::size_t evaluators)
    : clock_(std::move(clock)),
      seconds_(seconds),
      deadline_(seconds > 0 ? Deadline::in(seconds - spent, clock_) : Deadline::never(clock_)),
      evaluators_(evaluators) {}

bool RunBudget::is_limited() const { return std::isfinite(deadline_.seconds_left()); }

std::optional<Deadline> RunBudget::take(std::size_t problem) {
  if (!is_limited()) return Deadline::never(clock_);
  if (deadline_.over() && taken_) return std::nullopt;
  taken_ = true;
  const double left = std::max(0.0, deadline_.seconds_left());
  return Deadline::in(std::min(left, shares_.take(problem, left * static_cast<double>(evaluators_))), clock_);
}

}  // namespace gemmtune
