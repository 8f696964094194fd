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

/// When a measurement that is still running is cut off: a budget ends between measurements, and one of them
/// may take long.
constexpr double cut_off_seconds(double budget_seconds) { return 1.1 * budget_seconds + 5; }

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
  explicit BudgetShares(const std::vector<BudgetItem>& items);
  /// Of `seconds_left`, the seconds for `problem`; called once a problem, which then no longer waits.
  double take(std::size_t problem, double seconds_left);
  /// The problem turned out `speedup` times faster than its default.
  void learn(std::size_t problem, double speedup);
  /// The share of its time that tuning this problem is expected to save, 0 to 1.
  double expected_gain(std::size_t problem) const;

 private:
  /// What is known of one problem. The mean of the gains that were learnt is kept up to date, so that neither
  /// take() nor learn() takes longer than a pass over the problems.
  struct Item {
    double log_m = 0, log_n = 0, log_k = 0;
    double weight = 0;  // 0: does not wait
    double near = 0;    // Σ of how near the learnt problems are
    double gain = 0;    // Σ of the same times their gain
  };

  std::vector<Item> items_;
};

/// The budget of one run over several problems, or none. One thread at a time.
class RunBudget {
 public:
  /// `seconds` 0: none, of which `spent` are gone. So many evaluators work at once.
  RunBudget(double seconds, double spent, SecondsClock clock, std::size_t evaluators);
  /// The problems that will ask, before the first one does.
  void share_among(const std::vector<BudgetItem>& items) { shares_ = BudgetShares(items); }
  /// The problem's time, or nothing where the budget is spent; called once a problem. The first one has its turn
  /// in any case: no run ends with nothing.
  std::optional<Deadline> take(std::size_t problem);
  /// All that is left of it.
  Deadline rest() const { return deadline_; }
  /// What was measured last may have been cut off.
  bool is_cut_off() const { return -deadline_.seconds_left() >= cut_off_seconds(seconds_) - seconds_; }
  /// As BudgetShares::learn.
  void learn(std::size_t problem, double speedup) {
    if (is_limited()) shares_.learn(problem, speedup);
  }

 private:
  bool is_limited() const;

  SecondsClock clock_;
  double seconds_;
  Deadline deadline_;
  std::size_t evaluators_;
  BudgetShares shares_{{}};
  bool taken_ = false;  // by a first problem
};

}  // namespace gemmtune
