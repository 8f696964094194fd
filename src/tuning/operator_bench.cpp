#include "tuning/operator_bench.h"

#include <cmath>

namespace gemmtune {
namespace {

constexpr double interval_confidence = 0.99;
constexpr double gate_confidence = 0.999;
constexpr std::size_t gate_rounds = 11;  // fewer prove nothing at that confidence: 1 − 2·2⁻¹⁰ < 0.999

BenchStatus status_of(const Outcome& outcome) {
  if (outcome.kind == OutcomeKind::ok) return BenchStatus::ok;
  return outcome.kind == OutcomeKind::wrong ? BenchStatus::mismatch : BenchStatus::error;
}

std::vector<double> column(const FinalsResult& result, std::size_t index) {
  std::vector<double> times;
  for (const auto& round : result.times) {
    if (index < round.size() && std::isfinite(round[index])) times.push_back(round[index]);
  }
  return times;
}

std::vector<double> paired_ratios(const FinalsResult& result) {
  std::vector<double> ratios;
  for (const auto& round : result.times) {
    if (round.size() == 2 && std::isfinite(round[0] / round[1])) ratios.push_back(round[0] / round[1]);
  }
  return ratios;
}

/// Faster and slower need the whole interval beyond what A against A shows.
BenchVerdict verdict_of(const Interval& interval, double noise_floor) {
  if (interval.high < 1 - noise_floor) return BenchVerdict::faster;
  if (interval.low > 1 + noise_floor) return BenchVerdict::slower;
  return BenchVerdict::same;
}

/// What dispatch runs for a program that packs its weights in the layout that the tables were tuned for. Only
/// the candidate of the answer is used: evaluators build their kernels where they run them.
Answer production_answer(const Device& device, const LookupTables& tables, const Problem& problem,
                         BindRules rules) {
  Answer answer;
  answer.status = check(problem);
  if (!answer.status.ok()) return answer;
  answer = answer_problem(device, tables, with_tuned_layout(device, *tables.tuned, problem), rules);
  answer.bound.kernel.reset();
  return answer;
}

Result<Candidate> other_candidate(const Device& device, const BenchRequest& request, const Problem& problem,
                                  std::string& rule) {
  if (!request.against) return device.baseline(problem);
  Answer answer = production_answer(device, *request.against, problem, request.rules);
  if (!answer.status.ok()) return answer.status;
  rule = answer.rule();
  return std::move(answer.bound.candidate);
}

void fill_pair(const FinalsResult& result, BenchRow& row) {
  const auto other = column(result, 1);
  if (!other.empty()) row.other_microseconds = median(other);
  if (result.outcomes.size() > 1 && result.outcomes[1].kind != OutcomeKind::ok) {
    row.reason = fmt::format("{}: {}: {}", row.other_kernel, to_string(result.outcomes[1].kind),
                             result.outcomes[1].reason);
  }
  const auto ratios = paired_ratios(result);
  if (ratios.empty()) return;
  row.ratio = median(ratios);
  row.interval = median_interval(ratios, interval_confidence);
  if (ratios.size() >= gate_rounds) row.certain_ratio = median_interval(ratios, gate_confidence).low;
  row.verdict = verdict_of(*row.interval, result.noise_floor);
}

/// Both are one kernel: nothing to compare, one time for both.
void fill_same(BenchRow& row) {
  if (!row.microseconds) return;
  row.other_microseconds = row.microseconds;
  row.ratio = 1;
  row.interval = Interval{1, 1};
  row.certain_ratio = 1;
  row.verdict = BenchVerdict::same;
}

BenchRow bench_one(const Device& device, Evaluator& evaluator, const BenchRequest& request,
                   const ShapeRow& shape) {
  BenchRow row;
  row.shape = shape;
  const Answer answer = production_answer(device, request.tables, shape.problem, request.rules);
  if (!answer.status.ok()) {
    row.reason = answer.status.message();
    return row;
  }
  const Candidate& production = answer.bound.candidate;
  row.kernel = production.kernel_name();
  row.match = answer.hit.match;
  row.hit_m = answer.hit.hit_m;
  row.rule = answer.rule();
  row.passed_rows = !answer.passed.empty();
  const auto other = other_candidate(device, request, shape.problem, row.other_rule);
  if (other.ok()) {
    row.other_kernel = other->kernel_name();
  } else {
    row.reason = other.message();
  }
  std::vector<Candidate> candidates{production};
  const bool same = other.ok() && *other == production;
  if (other.ok() && !same) candidates.push_back(*other);
  const auto result = evaluator.finals(shape.problem, candidates, request.rounds);
  if (!result.ok() || result->outcomes.empty()) {
    row.reason = result.ok() ? "no outcome" : result.message();
    return row;
  }
  const Outcome& outcome = result->outcomes.front();
  row.status = status_of(outcome);
  row.err_ratio = outcome.err_ratio;
  if (const auto times = column(*result, 0); !times.empty()) row.microseconds = median(times);
  if (same) {
    fill_same(row);
  } else if (other.ok()) {
    fill_pair(*result, row);
  }
  if (row.status != BenchStatus::ok) row.reason = outcome.reason;
  return row;
}

}  // namespace

bool is_regression(const BenchRow& row, double percent) {
  return row.certain_ratio && *row.certain_ratio > 1 + percent / 100;
}

std::vector<BenchRow> bench_operator(const Device& device, Evaluator& evaluator, const BenchRequest& request,
                                     const std::function<void(std::size_t, const BenchRow&)>& on_row) {
  std::vector<BenchRow> rows;
  for (const ShapeRow& shape : request.shapes) {
    rows.push_back(bench_one(device, evaluator, request, shape));
    if (on_row) on_row(rows.size() - 1, rows.back());
  }
  return rows;
}

std::optional<double> improvement_percent(const BenchRow& row) {
  if (!row.ratio) return std::nullopt;
  return (1 - *row.ratio) * 100;
}

Improvement improvement_of(const BenchRow& row, double min_improvement_percent) {
  if (row.status != BenchStatus::ok || !row.microseconds) return Improvement::keep;
  const auto percent = improvement_percent(row);
  if (!percent) return Improvement::fresh;
  const bool enough = row.verdict == BenchVerdict::faster && *percent >= min_improvement_percent;
  return enough ? Improvement::update : Improvement::keep;
}

std::string_view to_string(Improvement improvement) {
  switch (improvement) {
    case Improvement::update:
      return "UPDATE";
    case Improvement::fresh:
      return "NEW";
    case Improvement::keep:
      return "KEEP";
  }
  return "UNKNOWN";
}

std::string_view to_string(BenchVerdict verdict) {
  switch (verdict) {
    case BenchVerdict::none:
      return "";
    case BenchVerdict::faster:
      return "faster";
    case BenchVerdict::slower:
      return "slower";
    case BenchVerdict::same:
      return "same";
  }
  return "unknown";
}

std::string_view to_string(BenchStatus status) {
  switch (status) {
    case BenchStatus::ok:
      return "OK";
    case BenchStatus::mismatch:
      return "MISMATCH";
    case BenchStatus::error:
      return "ERROR";
  }
  return "UNKNOWN";
}

}  // namespace gemmtune
