// Budget: how much of a run's time each problem gets.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "problem/problem.h"

namespace gemmtune {

/// A rough time of one call, microseconds: the larger of traffic and arithmetic on a small machine. Only
/// ratios of it are used.
double expected_microseconds(const Problem& problem);

/// A problem as budgets see it.
struct BudgetItem {
  Problem problem;
  double weight = 0;  // calls × expected time; 0: it needs no time
};

/// Shares out what is left: a part equally, so that every problem can pay for its fixed costs, the rest by
/// calls × expected time × expected gain. The gain of a problem is that of the problems done so far, the
/// nearer in log M, N, K the more. Time that a problem did not use goes to those after it.
class BudgetShares {
 public:
  explicit BudgetShares(std::vector<BudgetItem> items) : items_(std::move(items)) {}
  /// Of `seconds_left`, the seconds for `problem`; called once a problem, which then no longer waits.
  double take(std::size_t problem, double seconds_left);
  /// The problem turned out `speedup` times faster than its default.
  void learn(std::size_t problem, double speedup);
  /// The share of its time that tuning is expected to save, 0 to 1.
  double expected_gain(const Problem& problem) const;

 private:
  struct Gain {
    Problem problem;
    double share;
  };

  std::vector<BudgetItem> items_;
  std::vector<Gain> gains_;
};

/// The budget of one run over several problems, or none. One thread at a time.
class RunBudget {
 public:
  /// `seconds` 0: none. So many evaluators work at once.
  RunBudget(double seconds, SecondsClock clock, std::size_t evaluators);
  /// The problems that will ask, before the first one does.
  void share_among(std::vector<BudgetItem> items) { shares_ = BudgetShares(std::move(items)); }
  /// The problem's time, or nothing where the budget is spent; called once a problem.
  std::optional<Deadline> take(std::size_t problem);
  /// All that is left of it.
  Deadline rest() const { return deadline_; }
  /// As BudgetShares::learn.
  void learn(std::size_t problem, double speedup) { shares_.learn(problem, speedup); }

 private:
  SecondsClock clock_;
  Deadline deadline_;
  std::size_t evaluators_;
  BudgetShares shares_{{}};
};

}  // namespace gemmtune
