// The C function that tunes in process.
#include <gemmtune/tuning.h>

#include <algorithm>
#include <cstddef>

#include "backends/device_request.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "capi/c_problem.h"
#include "evaluate/external/external_device.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/worker/worker_evaluator.h"
#include "select/energy.h"
#include "tuning/budget.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

std::string text_of(const char* text) { return text == nullptr ? std::string() : std::string(text); }

/// The message of this thread's last failure as a Status.
Status last_failure(gemmtune_status code) {
  return {code == GEMMTUNE_UNSUPPORTED ? StatusCode::unsupported : StatusCode::invalid_argument,
          gemmtune_last_error()};
}

/// Problem `i`, which is `step` bytes long; all are of the first one's operation.
Result<ShapeRow> read_problem(const gemmtune_tuning_options& options, std::size_t i, std::size_t step) {
  const auto* bytes = reinterpret_cast<const char*>(options.problems);
  const auto* given = reinterpret_cast<const gemmtune_problem*>(bytes + i * step);
  if (given->size != step)
    return Status::invalid("size is {}, expected that of problems[0], {}", given->size, step);
  gemmtune_problem known;
  ShapeRow row;
  if (const auto bad = c::read_problem(given, known, row.problem); bad != GEMMTUNE_OK)
    return last_failure(bad);
  if (known.operation != options.problems->operation) {
    return Status::invalid("operation is {}, expected that of problems[0]: one file has one operation",
                           to_string(form_of(row.problem)));
  }
  if (known.weight_layout != GEMMTUNE_LAYOUT_PLAIN && known.weight_layout != GEMMTUNE_LAYOUT_ANY) {
    return Status::invalid("weight_layout is {}, expected plain or any: the tuner chooses the layout",
                           gemmtune_layout_text(known.weight_layout));
  }
  if (options.calls != nullptr) row.calls = std::max<std::int64_t>(1, options.calls[i]);
  return row;
}

Result<std::vector<ShapeRow>> read_problems(const gemmtune_tuning_options& options,
                                            const DeviceInfo& device) {
  if (options.input != nullptr) {
    ShapeListOptions list_options;
    list_options.architecture = device.gfx;
    GEMMTUNE_TRY(auto list, read_shape_list(options.input, list_options));
    for (const std::string& note : list.notes) log(LogLevel::info, "{}", note);
    return std::move(list.rows);
  }
  if (options.problems == nullptr || options.problem_count == 0)
    return Status::invalid("input is null and there are no problems: expected one of them");
  const std::size_t step = options.problems->size;
  if (const auto bad = c::check_size(options.problems); bad != GEMMTUNE_OK) return last_failure(bad);
  std::vector<ShapeRow> rows;
  for (std::size_t i = 0; i < options.problem_count; ++i) {
    auto row = read_problem(options, i, step);
    if (!row.ok()) return Status(row.code(), fmt::format("problems[{}]: {}", i, row.message()));
    rows.push_back(std::move(*row));
  }
  return rows;
}

double joules_of(const ItemReport& report, const std::string& kernel_name) {
  const KernelEnergy* energy = find_energy(report.energies, kernel_name);
  return energy == nullptr ? 0 : energy->joules;
}

class CallbackObserver final : public RunObserver {
 public:
  explicit CallbackObserver(const gemmtune_tuning_options& options) : options_(options) {}
  void problem_started(std::size_t, std::size_t count, const ShapeRow&) override { count_ = count; }
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t index, const ItemReport& report) override {
    if (options_.progress == nullptr) return;
    gemmtune_tuning_progress progress{};
    progress.size = sizeof progress;
    progress.index = index;
    progress.count = count_;
    progress.state = static_cast<gemmtune_tuning_state>(report.state);
    progress.reason = report.reason.c_str();
    progress.kernel_name = report.row() ? report.row()->kernel_name.c_str() : "";
    progress.microseconds = report.row() ? report.row()->us : 0;
    progress.speedup = report.row() ? report.row()->speedup.value_or(0) : 0;
    if (report.row()) {
      progress.joules = joules_of(report, report.row()->kernel_name);
      progress.default_joules = joules_of(report, report.row()->default_kernel);
    }
    options_.progress(&progress, options_.context);
  }

 private:
  const gemmtune_tuning_options& options_;
  std::size_t count_ = 0;
};

static_assert(static_cast<int>(ProblemState::tuned) == GEMMTUNE_TUNING_TUNED);
static_assert(static_cast<int>(ProblemState::kept_default) == GEMMTUNE_TUNING_KEPT_DEFAULT);
static_assert(static_cast<int>(ProblemState::skipped_done) == GEMMTUNE_TUNING_SKIPPED_DONE);
static_assert(static_cast<int>(ProblemState::unsupported) == GEMMTUNE_TUNING_UNSUPPORTED_SHAPE);
static_assert(static_cast<int>(ProblemState::failed) == GEMMTUNE_TUNING_FAILED);
static_assert(static_cast<int>(ProblemState::out_of_budget) == GEMMTUNE_TUNING_OUT_OF_BUDGET);
static_assert(static_cast<int>(ProblemState::interrupted) == GEMMTUNE_TUNING_INTERRUPTED);

gemmtune_tuning_summary counts_of(const RunSummary& summary) {
  gemmtune_tuning_summary counts{};
  std::int64_t interrupted = 0;  // this function has no way to interrupt it
  std::int64_t* const by_state[] = {&counts.tuned,       &counts.kept_default, &counts.skipped_done,
                                    &counts.unsupported, &counts.failed,       &counts.out_of_budget,
                                    &interrupted};
  for (const ItemReport& report : summary.items) ++*by_state[static_cast<std::size_t>(report.state)];
  counts.candidates = summary.candidates;
  counts.seconds = summary.seconds;
  counts.geometric_mean_speedup = summary.geometric_mean_speedup;
  return counts;
}

std::string backend_of(const gemmtune_tuning_options& options) {
  const std::string backend = text_of(options.backend);
  return backend.empty() ? "auto" : backend;
}

/// In this process, or in one of the worker program. The device must outlive it.
std::unique_ptr<Evaluator> make_evaluator(const gemmtune_tuning_options& options, Device& device,
                                          const DeviceRequest& device_request,
                                          const InProcessOptions& evaluation) {
  if (options.worker_program == nullptr) return std::make_unique<InProcessEvaluator>(device, evaluation);
  WorkerOptions worker;
  worker.launch = {options.worker_program, {"worker"}};
  worker.backend = backend_of(options);
  worker.device = device_request;
  worker.evaluation = evaluation;
  worker.device_of_run = &device;
  worker.is_spent = [begin = steady_seconds(), budget = options.budget_seconds] {
    return budget > 0 && steady_seconds() - begin > cut_off_seconds(budget);
  };
  return std::make_unique<WorkerEvaluator>(std::move(worker));
}

Result<RunSummary> run(const gemmtune_tuning_options& options) {
  TuneRequest request;
  request.output = text_of(options.output);
  if (request.output.empty())
    return Status::invalid("output is null or empty: expected the path of a tuned file");
  if (request.output == "-")
    return Status::invalid(
        "output is '-': rows are no stream; expected the path of a tuned file (./- for one of this name)");
  request.budget_seconds = options.budget_seconds;
  request.all = options.all != 0;
  if (options.search != nullptr) request.strategy = options.search;
  const std::string libtypes = text_of(options.libtypes);
  for (const std::string_view libtype : split(libtypes, ',')) {
    if (!trim(libtype).empty()) request.libtypes.emplace_back(trim(libtype));
  }
  if (options.confirmations < 0 || options.confirmations > 2) {
    return Status::invalid("confirmations is {}, expected 1, 2 or 0", options.confirmations);
  }
  if (!(options.budget_seconds >= 0)) {
    return Status::invalid("budget_seconds is {}, expected at least 0", options.budget_seconds);
  }
  const auto accuracy =
      parse_accuracy_policy(options.accuracy == nullptr ? "default" : std::string_view(options.accuracy));
  const auto objective =
      parse_objective(options.objective == nullptr ? "time" : std::string_view(options.objective));
  if (!objective) return Status::invalid("objective is {}, expected time, energy or edp", options.objective);
  if (!accuracy) return Status::invalid("accuracy is {}, expected default or fast", options.accuracy);
  const bool in_worker = options.worker_program != nullptr;
  GEMMTUNE_TRY(const auto measuring,
               device_request({.text = text_of(options.device),
                               .threads = options.threads,
                               .pin_threads = options.pin_threads != 0,
                               .default_team = in_worker ? Team::openmp_or_own : Team::automatic},
                              read_environment()));
  DeviceRequest listing = measuring;
  if (in_worker) listing.pin_threads = false;
  const double begin = steady_seconds();
  const double budget = request.budget_seconds;
  GEMMTUNE_TRY(auto device, open_device_of(backend_of(options), listing,
                                           budget > 0 ? std::min(budget, hello_seconds) : hello_seconds));
  GEMMTUNE_TRY(request.shapes, read_problems(options, device->info()));
  request.policy = default_policy(device->info());
  request.policy.accuracy = *accuracy;
  request.policy.objective = *objective;
  request.energy = options.energy != 0;
  choose_confirmations(request, device->info(), options.confirmations);
  const InProcessOptions evaluation = in_process_options(*device, request.policy, request.max_err_ratio);
  const auto evaluator = make_evaluator(options, *device, measuring, evaluation);
  CallbackObserver observer(options);
  request.seconds_spent = steady_seconds() - begin;
  return tune(*device, *evaluator, request, observer);
}

gemmtune_status tune_checked(const gemmtune_tuning_options* options, gemmtune_tuning_summary* summary) {
  gemmtune_tuning_options known;
  if (const auto bad = c::read_struct(options, known); bad != GEMMTUNE_OK) return bad;
  if (summary != nullptr) {
    if (const auto bad = c::check_size(summary); bad != GEMMTUNE_OK) return bad;
  }
  const auto result = run(known);
  if (!result.ok()) return c::report(result.status());
  return summary == nullptr ? GEMMTUNE_OK : c::write_struct(counts_of(*result), summary);
}

}  // namespace
}  // namespace gemmtune

extern "C" gemmtune_status gemmtune_tune(const gemmtune_tuning_options* options,
                                         gemmtune_tuning_summary* summary) {
  return gemmtune::c::guarded([&] { return gemmtune::tune_checked(options, summary); });
}
