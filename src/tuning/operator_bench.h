// Benchmark of the production operator: for each problem the kernel that dispatch runs with a set of tables,
// against the default kernel or against the kernel that dispatch runs with a second set, in interleaved paired
// rounds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/evaluator.h"
#include "formats/shapes/shape_list.h"
#include "measure/statistics.h"
#include "resolve/answer.h"

namespace gemmtune {

/// Of A against B. none: one of them has no time; same_kernel: both are one; undecided: neither is proven faster.
enum class BenchVerdict { none, win, slower, undecided, same_kernel };
std::string_view to_string(BenchVerdict verdict);
/// Sentences for people.
std::string_view describe(BenchVerdict verdict);
enum class BenchStatus { ok, mismatch, error };  // mismatch: A's result is wrong
std::string_view to_string(BenchStatus status);

struct BenchRequest {
  std::vector<ShapeRow> shapes;
  LookupTables tables;  // of A
  std::optional<LookupTables>
      against{};      // of B; none: B is default_kernel() (if there is none, A is timed alone)
  BindRules rules{};  // of both
  int rounds = 30;
};

struct BenchRow {
  ShapeRow shape;
  std::string kernel;            // A
  Match match = Match::untuned;  // how A's table knew the problem
  std::int64_t hit_m = 0;
  std::string rule;          // what decided, as in Answer::rule(): passed rows with their reasons included
  bool passed_rows = false;  // better rows of A do not run here
  std::string other_kernel;  // B; empty if there is none
  std::string other_rule;    // empty for the default
  std::optional<double> microseconds;
  std::optional<double> other_microseconds;
  std::optional<double> ratio;          // paired median of A/B
  std::optional<Interval> interval;     // of that median, 99 %
  std::optional<double> certain_ratio;  // its lower bound, 99.9 %; empty for fewer than 11 rounds
  BenchVerdict verdict = BenchVerdict::none;
  double err_ratio = 1;  // of A
  Accuracy accuracy = Accuracy::fp32;
  Accuracy other_accuracy = Accuracy::fp32;  // if there is another kernel
  BenchStatus status = BenchStatus::error;
  std::string reason;  // unless ok; also why B has no time
};

/// One row a shape, in order. `on_row` may be empty.
std::vector<BenchRow> bench_operator(const Device& device, Evaluator& evaluator, const BenchRequest& request,
                                     const std::function<void(std::size_t index, const BenchRow&)>& on_row);

/// A is slower than B by more than `percent` with 99.9 % confidence: what a gate must not let pass. False
/// where one has no time.
bool is_regression(const BenchRow& row, double percent);

/// AITER's --compare over rows of A = after, B = before: `update` where both ran right and A is faster by at
/// least `min_improvement_percent` of B's time, `fresh` where B has no time and A is right, else `keep`.
enum class Improvement { update, fresh, keep };
std::string_view to_string(Improvement improvement);
Improvement improvement_of(const BenchRow& row, double min_improvement_percent);
/// (1 − paired median ratio) · 100; nullopt where one has no time.
std::optional<double> improvement_percent(const BenchRow& row);

}  // namespace gemmtune
