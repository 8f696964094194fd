#include "tuning/budget.h"

#include <algorithm>

namespace gemmtune {

double expected_microseconds(const Problem& problem) {
  constexpr double bytes_a_microsecond = 2e4;  // 20 GB/s
  constexpr double flops_a_microsecond = 2e5;  // 200 GFLOP/s
  return std::max(bytes(problem) / bytes_a_microsecond, flops(problem) / flops_a_microsecond);
}

double BudgetShares::take(std::size_t problem, double seconds_left) {
  constexpr double equal_part = 0.3;
  double total = 0;
  double waiting = 0;
  for (const double weight : weights_) {
    total += weight;
    waiting += weight > 0 ? 1 : 0;
  }
  const double weight = weights_[problem];
  weights_[problem] = 0;
  if (weight <= 0 || seconds_left <= 0) return 0;
  return seconds_left * (equal_part / waiting + (1 - equal_part) * weight / total);
}

}  // namespace gemmtune
