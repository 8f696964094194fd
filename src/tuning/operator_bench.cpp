#include "tuning/operator_bench.h"

#include <numeric>

#include "base/enumerators.h"
#include "resolve/errata.h"
#include "select/paired_comparison.h"
#include "select/paired_rounds.h"

namespace gemmtune {
namespace {

constexpr double interval_confidence = 0.99;
constexpr double interval_alpha = (1 - interval_confidence) / 2;  // on each side
constexpr double regression_confidence = 0.999;
constexpr std::size_t regression_rounds = 11;  // fewer prove nothing at that confidence: 1 − 2·2⁻¹⁰ < 0.999

BenchStatus status_of(const Outcome& outcome) {
  if (outcome.kind == OutcomeKind::ok) return BenchStatus::ok;
  return outcome.kind == OutcomeKind::wrong ? BenchStatus::mismatch : BenchStatus::error;
}

PairedRounds rounds_of(const FinalsResult& result) {
  std::vector<std::size_t> columns(result.outcomes.size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  PairedRounds rounds(columns.size());
  rounds.add(columns, result.times);
  return rounds;
}

/// A kernel is faster or slower if the difference is larger than the noise floor; `bench` has no tie band.
BenchVerdict verdict_of(std::span<const double> ratios, double noise_floor) {
  Policy exact;
  exact.prefer_ratio = 1;
  exact.tie_band = 0;
  const RatioLimits limits = ratio_limits(exact, noise_floor);
  if (is_below(ratios, limits.win, interval_alpha)) return BenchVerdict::win;
  if (is_above(ratios, limits.tie, interval_alpha)) return BenchVerdict::slower;
  return BenchVerdict::undecided;
}

/// What dispatch runs for a program that packs its weights in the layout that the tables were tuned for. Only
/// the candidate of the answer is used: evaluators build their kernels where they run them.
Answer production_answer(const Device& device, const LookupTables& tables, const Problem& problem,
                         BindRules rules) {
  Answer answer;
  answer.status = check(problem);
  if (!answer.status.ok()) return answer;
  answer = answer_problem(device, tables, with_tuned_layout(device, tables, problem), rules);
  answer.bound.kernel.reset();
  return answer;
}

/// The default is compared in the class of `production`.
Result<Candidate> other_candidate(const Device& device, const BenchRequest& request, const Problem& problem,
                                  const Candidate& production, std::string& rule) {
  if (!request.against) {
    const bool fast = device.accuracy(production, problem) == Accuracy::tensor_core;
    return usable_default(device, problem, fast ? AccuracyPolicy::fast : AccuracyPolicy::keep);
  }
  Answer answer = production_answer(device, *request.against, problem, request.rules);
  if (!answer.status.ok()) return answer.status;
  rule = answer.rule();
  return std::move(answer.bound.candidate);
}

void fill_pair(const FinalsResult& result, BenchRow& row) {
  const PairedRounds rounds = rounds_of(result);
  const auto other = rounds.times(1);
  if (!other.empty()) row.other_microseconds = median(other);
  if (result.outcomes.size() > 1 && result.outcomes[1].kind != OutcomeKind::ok) {
    row.reason = fmt::format("{}: {}: {}", row.other_kernel, to_string(result.outcomes[1].kind),
                             result.outcomes[1].reason);
  }
  const auto ratios = rounds.ratios(0, 1);
  if (ratios.empty()) return;
  row.ratio = median(ratios);
  row.interval = median_interval(ratios, interval_confidence);
  if (ratios.size() >= regression_rounds)
    row.certain_ratio = median_interval(ratios, regression_confidence).low;
  row.verdict = verdict_of(ratios, noise_floor(result.same_ratios));
}

/// Both are one kernel: nothing to compare, one time for both.
void fill_same(BenchRow& row) {
  if (!row.microseconds) return;
  row.other_microseconds = row.microseconds;
  row.ratio = 1;
  row.interval = Interval{1, 1};
  row.certain_ratio = 1;
  row.verdict = BenchVerdict::same_kernel;
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
  row.accuracy = device.accuracy(production, shape.problem);
  row.match = answer.hit.match;
  row.hit_m = answer.hit.hit_m;
  row.rule = answer.rule();
  row.passed_rows = !answer.passed.empty();
  const auto other = other_candidate(device, request, shape.problem, production, row.other_rule);
  if (other.ok()) {
    row.other_kernel = other->kernel_name();
    row.other_accuracy = device.accuracy(*other, shape.problem);
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
  if (const auto times = rounds_of(*result).times(0); !times.empty()) row.microseconds = median(times);
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
  const bool enough = row.verdict == BenchVerdict::win && *percent >= min_improvement_percent;
  return enough ? Improvement::update : Improvement::keep;
}

constexpr EnumeratorNames<Improvement, 3> improvement_names({{Improvement::update, "UPDATE"},
                                                             {Improvement::fresh, "NEW"},
                                                             {Improvement::keep, "KEEP"}});
std::string_view to_string(Improvement improvement) { return improvement_names.of(improvement); }

constexpr EnumeratorNames<BenchVerdict, 5> bench_verdict_names({{BenchVerdict::none, ""},
                                                                {BenchVerdict::win, "win"},
                                                                {BenchVerdict::slower, "slower"},
                                                                {BenchVerdict::undecided, "undecided"},
                                                                {BenchVerdict::same_kernel, "same kernel"}});
std::string_view to_string(BenchVerdict verdict) { return bench_verdict_names.of(verdict); }

constexpr EnumeratorNames<BenchVerdict, 5> bench_verdict_meanings(
    {{BenchVerdict::none, "One of the sides has no time."},
     {BenchVerdict::win, "The first side is faster than the second by more than the noise floor."},
     {BenchVerdict::slower, "The first side is slower than the second by more than the noise floor."},
     {BenchVerdict::undecided, "Neither side is proven faster."},
     {BenchVerdict::same_kernel, "Both sides run one kernel."}});
std::string_view describe(BenchVerdict verdict) { return bench_verdict_meanings.of(verdict); }

constexpr EnumeratorNames<BenchStatus, 3> bench_status_names({{BenchStatus::ok, "OK"},
                                                              {BenchStatus::mismatch, "MISMATCH"},
                                                              {BenchStatus::error, "ERROR"}});
std::string_view to_string(BenchStatus status) { return bench_status_names.of(status); }

}  // namespace gemmtune
