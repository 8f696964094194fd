#include "tuning/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "formats/tune_gemm/gemm_result_file.h"
#include "measure/statistics.h"
#include "resolve/bind.h"
#include "resolve/candidate_list.h"
#include "resolve/errata.h"
#include "search/strategy.h"
#include "select/energy.h"
#include "tuned/key.h"
#include "verify/bit_rows.h"

namespace gemmtune {
namespace {

PublishOptions publish_options(const TuneRequest& request, const RowEnvironment& environment) {
  PublishOptions options = request.publish;
  options.environment_json = environment.json;
  return options;
}

}  // namespace

Run::Run(Device& device, std::size_t evaluators, const TuneRequest& request, RunObserver& observer)
    : device_(device),
      request_(request),
      observer_(observer),
      evaluators_(evaluators),
      environment_(row_environment(device, request.policy)),
      budget_({request.budget_seconds, request.seconds_spent, request.clock, evaluators, !request.m_range}),
      publisher_(request.output, publish_options(request, environment_), device) {}

Status Run::open() {
  GEMMTUNE_RETURN_IF_ERROR(check_libtypes(device_, request_.libtypes));
  GEMMTUNE_RETURN_IF_ERROR(make_strategy(request_.strategy, {}).status());
  GEMMTUNE_RETURN_IF_ERROR(check_energy(device_, request_));
  GEMMTUNE_RETURN_IF_ERROR(publisher_.check_writable());
  if (request_.m_range && is_yaml_path(request_.output))
    return Status::invalid("{}: tune_gemm's results have no ranges of M; expected a .csv", request_.output);
  if (request_.shapes.empty()) return {};
  std::vector<std::string> paths{request_.output};
  paths.insert(paths.end(), request_.also_read.begin(), request_.also_read.end());
  GEMMTUNE_TRY(known_, KnownRows::read(paths, operation(), device_.info()));
  return {};
}

std::size_t Run::add(ItemReport&& report, std::size_t group, bool waits) {
  const auto calls = static_cast<double>(std::max<std::int64_t>(1, report.shape.calls));
  budget_items_.push_back({report.shape.problem, calls, group, waits});
  waiting_.push_back(waits);
  summary_.items.push_back(std::move(report));
  return summary_.items.size() - 1;
}

void Run::begin() {
  budget_.share_among(std::exchange(budget_items_, {}));
  if (request_.m_range) return;
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i]) waiting.push_back(i);
  }
  observer_.run_started(waiting, evaluators_);
}

Result<RunSummary> Run::finish() {
  GEMMTUNE_RETURN_IF_ERROR(publisher_.flush());
  std::vector<double> speedups;
  for (const ItemReport& report : summary_.items) {
    for (const TunedEntry& row : report.rows) {
      if (row.speedup && *row.speedup > 0) speedups.push_back(*row.speedup);
    }
  }
  summary_.geometric_mean_speedup = geometric_mean(speedups);
  return std::move(summary_);
}

Status Run::check_problem(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (form_of(problem) == operation()) return {};
  return Status::unsupported("{}: a tuned file is of one operation, and this list begins with {}",
                             to_string(form_of(problem)), to_string(operation()));
}

bool counts_as_done(const Device& device, const TuneRequest& request, const std::string& environment_hash,
                    const TunedEntry& row) {
  if (request.all || (request.stale && row.env != environment_hash)) return false;
  if (request.invariant && row.bits.empty()) return false;
  return accuracy_of(device, row) >= lowest_accuracy(device, row.problem, request.policy.accuracy);
}

std::optional<WeightLayout> Run::decided_layout(
    const Problem& weight, const std::function<bool(const TunedEntry&)>& is_replaced) const {
  if (!is_packed(weight)) return WeightLayout::plain;
  for (const KnownRows::Row* row : known_.of_weight(weight)) {
    if (!share_packed_weight(row->entry.problem, weight) || is_replaced(row->entry)) continue;
    if (const auto layout = weight_layout_of(device_, row->entry)) return layout;
  }
  return std::nullopt;
}

std::string Run::decided_bits(const Problem& problem,
                              const std::function<bool(const TunedEntry&)>& is_replaced) const {
  for (const KnownRows::Row* row : known_.of_weight(problem)) {
    const bool is_of_group = group_of(row->entry.problem) == group_of(problem);
    if (is_of_group && !row->entry.bits.empty() && !is_replaced(row->entry))
      return std::string(row->entry.bits.view());
  }
  return {};
}

Status Run::check_keeps_bits(const Problem& problem) const {
  if (request_.invariant) return {};
  const std::string bits = decided_bits(problem, [](const TunedEntry&) { return false; });
  if (bits.empty()) return {};
  return Status::unsupported(
      "rows of this weight are batch-invariant (bit class {}), and this one would not be: tune it with "
      "--invariant rows, or into another file",
      bits);
}

void Run::set_unfinished(ItemReport& report, bool was_visited) const {
  if (stopped()) {
    report.state = ProblemState::interrupted;
    report.reason = was_visited ? "interrupted while it was measured" : "interrupted before its turn";
    return;
  }
  report.state = ProblemState::out_of_budget;
  report.reason = fmt::format("the budget of {} s {}", request_.budget_seconds,
                              was_visited ? "ended while it was measured" : "was spent before its turn");
}

std::size_t Run::next_search() {
  const std::lock_guard guard(lock_);
  return searches_++;
}

void Run::preparing(std::size_t done, std::size_t count) {
  constexpr std::size_t shapes_per_call = 4096;  // a few milliseconds
  if (done % shapes_per_call == 0) observer_.preparing(done, count);
}

void Run::problem_started(std::size_t index, const ShapeRow& shape) {
  const std::lock_guard guard(lock_);
  observer_.problem_started(index, request_.m_range ? 0 : items(), shape);
}

ProblemResult Run::search(std::size_t index, const Problem& problem, std::optional<WeightLayout> layout,
                          const TuningVisit& visit, Evaluator& evaluator, TuningProgress* progress) {
  std::vector<Candidate> hints;
  {
    const std::lock_guard guard(lock_);
    hints = hints_for(problem);
  }
  TuningWatch watch;
  watch.on_trial = [&](const Trial& trial) {
    const std::lock_guard guard(lock_);
    observer_.candidate_done(index, trial, ++summary_.candidates);
  };
  watch.on_ratio = [&](const PairedRatio& ratio) {
    const std::lock_guard guard(lock_);
    observer_.paired_rounds(index, ratio);
  };
  ProblemResult result =
      tune_problem(device_, evaluator, request_, problem, layout, visit, watch, hints, progress);
  if (ended() && result.layouts.empty() && result.failure == ProblemState::failed && !result.reason.empty()) {
    ItemReport ended;
    set_unfinished(ended, true);
    result.failure = ended.state;
    result.reason = std::move(ended.reason);
  }
  const std::lock_guard guard(lock_);
  for (const LayoutResult& each : result.layouts) {
    transfer_.learn(problem, each.settled.winner->candidate.kernel_name());
  }
  return result;
}

std::vector<Candidate> Run::hints_for(const Problem& problem) const {
  std::vector<std::string> names = transfer_.winners_near(problem);
  if (request_.earlier_winners) {
    for (std::string& earlier : request_.earlier_winners(problem)) names.push_back(std::move(earlier));
  }
  std::vector<Candidate> hints;
  // However short the time is, the row's kernel is one that was compared with what an untuned call runs.
  if (auto untuned = usable_fallback(device_, problem); untuned.ok())
    hints.push_back(std::move(untuned->candidate));
  std::ranges::move(candidates_named(names, device_, problem), std::back_inserter(hints));
  return hints;
}

void Run::learn_winner(const Problem& problem, const std::string& kernel_name) {
  const std::lock_guard guard(lock_);
  transfer_.learn(problem, kernel_name);
}

void Run::problem_paused(std::size_t index) {
  const std::lock_guard guard(lock_);
  observer_.problem_paused(index);
}

void Run::problem_settled(std::size_t index) {
  const std::lock_guard guard(lock_);
  observer_.problem_settled(index, report(index));
}

void Run::problem_done(std::size_t index, const ItemReport& report) {
  const std::lock_guard guard(lock_);
  // A problem that the run did not finish stays undecided: its trials are reported once it is.
  const bool undecided =
      report.state == ProblemState::out_of_budget || report.state == ProblemState::interrupted;
  if (!report.trials.empty() || undecided || !request_.unreported_trials) {
    observer_.problem_done(index, report);
    return;
  }
  ItemReport whole = report;
  whole.trials = request_.unreported_trials(report.shape.problem);
  observer_.problem_done(index, whole);
}

void Run::confirmation_started(std::size_t item, std::size_t done, std::size_t count) {
  const std::lock_guard guard(lock_);
  observer_.confirmation_started(item, done, count);
}

void Run::range_step(const RangeStep& step) {
  const std::lock_guard guard(lock_);
  observer_.range_step(step);
}

void Run::range_done(std::size_t item) {
  const std::lock_guard guard(lock_);
  observer_.range_done(item, items(), report(item));
}

void Run::set_row(std::size_t item, const LayoutResult& result) {
  ItemReport& report = summary_.items[item];
  const Settled& settled = result.settled;
  TunedEntry row =
      make_entry(device_.info(), report.shape.problem, settled, environment_.hash, request_.policy);
  if (result.dependent) set_dependent(*result.dependent, row);
  row.bits = result.bits;
  const bool kept = !settled.default_kernel.empty() && settled.default_kernel == row.kernel_name;
  note_error(*row.accuracy, settled.error);
  note_roof(report.shape.problem, settled.roof_microseconds);
  report.state = kept ? ProblemState::kept_default : ProblemState::tuned;
  static_cast<FinalsFigures&>(report) = settled;
  report.default_fault = settled.default_fault ? settled.default_fault->reason : std::string();
  report.rows = {std::move(row)};
  note_energy(report);
  note_routings(report);
  note_bits(*report.row());
}

void Run::note_bits(const TunedEntry& row) {
  if (row.bits.empty()) return;
  const std::lock_guard guard(lock_);
  bits_[print(row.problem)] = {std::string(row.bits.view()), bit_evidence(row.problem)};
}

void Run::note_energy(const ItemReport& report) {
  const TunedEntry& row = *report.row();
  const KernelEnergy* kernel = find_energy(report.energies, row.kernel_name);
  const KernelEnergy* other = find_energy(report.energies, row.default_kernel);
  const std::lock_guard guard(lock_);
  if (kernel == nullptr) {
    energies_.erase(print(row.problem));
  } else {
    energies_[print(row.problem)] = {*kernel, other == nullptr ? std::nullopt : std::optional(*other)};
  }
}

void Run::note_routings(const ItemReport& report) {
  if (!is_mixture(report.shape.problem)) return;
  RowRoutings routings{{}, report.instead_of};
  for (const RoutingLoss& loss : report.routing_losses) {
    if (loss.kernel_name == report.row()->kernel_name) routings.losses.push_back(loss);
  }
  const std::lock_guard guard(lock_);
  routings_.erase(print(report.shape.problem));
  if (!routings.losses.empty()) routings_[print(report.shape.problem)] = std::move(routings);
}

void Run::note_error(Accuracy accuracy, const MeasuredError& error) {
  const std::lock_guard guard(lock_);
  const auto note = [&](const char* name, double value) {
    if (!std::isfinite(value)) return;
    double& largest = errors_[fmt::format("{}_{}", name, to_string(accuracy))];
    largest = std::max(largest, value);
  };
  note("rms_error", error.rms);
  note("max_error", error.max);
  note("one_sign_error", error.one_sign);
}

void Run::note_roof(const Problem& problem, double microseconds) {
  if (microseconds <= 0) return;
  const std::lock_guard guard(lock_);
  memory_roof_gigabytes_ =
      std::max(memory_roof_gigabytes_, static_cast<double>(weight_bytes(problem)) / (microseconds * 1e3));
}

void Run::note_machine(double noise_floor, bool busy) {
  const std::lock_guard guard(lock_);
  noise_floors_.push_back(noise_floor);
  busy_rows_ += busy ? 1 : 0;
  update_environment();
}

void Run::update_environment() {
  std::map<std::string, double> observations = device_.observe();
  observations["noise_floor"] = median(noise_floors_);
  if (memory_roof_gigabytes_ > 0) observations["memory_roof_gbs"] = memory_roof_gigabytes_;
  observations["busy_rows"] = static_cast<double>(busy_rows_);
  observations.insert(errors_.begin(), errors_.end());
  publisher_.set_environment(row_environment(device_, request_.policy, observations, energies_, routings_,
                                             bits_, compute_roof_ ? &*compute_roof_ : nullptr)
                                 .json);
}

Status Run::note_compute_roof(ComputeRoof roof) {
  const std::lock_guard guard(lock_);
  const auto is_new = [](const ItemReport& item) {
    return !item.rows.empty() && item.state != ProblemState::skipped_done;
  };
  compute_roof_ = std::move(roof);
  const auto row = std::ranges::find_if(summary_.items, is_new);
  if (row == summary_.items.end() || noise_floors_.empty()) return {};  // with the first row
  update_environment();
  return publisher_.add(row->rows.front());
}

Status Run::publish(const std::vector<TunedEntry>& rows) {
  const std::lock_guard guard(lock_);
  for (const TunedEntry& row : rows) GEMMTUNE_RETURN_IF_ERROR(publisher_.add(row));
  return {};
}

Status Run::flush() {
  const std::lock_guard guard(lock_);
  return publisher_.flush();
}

Status Run::revise(std::size_t item) {
  const std::lock_guard guard(lock_);
  if (weighs_energy(request_)) update_environment();
  GEMMTUNE_RETURN_IF_ERROR(publisher_.add(*report(item).row()));
  observer_.problem_revised(item, report(item));
  return {};
}

}  // namespace gemmtune
