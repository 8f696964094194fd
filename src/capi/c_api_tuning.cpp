// The C interface of tuning in process: reads the caller's structures by their size, runs the tuner, turns
// every error into a code and a text.
#include <gemmtune/tuning.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <thread>

#include "backends/device_request.h"
#include "base/environment.h"
#include "base/text.h"
#include "capi/c_api_error.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/worker/worker_evaluator.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

thread_local std::string last_error;

int code_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return GEMMTUNE_TUNING_OK;
    case StatusCode::invalid_argument:
      return GEMMTUNE_TUNING_INVALID_ARGUMENT;
    case StatusCode::not_found:
      return GEMMTUNE_TUNING_NOT_FOUND;
    case StatusCode::unsupported:
      return GEMMTUNE_TUNING_UNSUPPORTED;
    case StatusCode::io_error:
      return GEMMTUNE_TUNING_IO_ERROR;
    case StatusCode::out_of_memory:
      return GEMMTUNE_TUNING_OUT_OF_MEMORY;
    case StatusCode::internal:
      return GEMMTUNE_TUNING_INTERNAL;
  }
  return GEMMTUNE_TUNING_INTERNAL;
}

std::string text_of(const char* text) { return text == nullptr ? std::string() : std::string(text); }

/// A structure of an older caller is shorter: what it lacks is zero, which is every field's default.
template <typename Struct>
Struct read_sized(const void* source, std::size_t size) {
  Struct value{};
  std::memcpy(&value, source, std::min(size, sizeof(Struct)));
  return value;
}

Result<DataType> read_type(const char* text, DataType absent, const char* field) {
  if (text == nullptr) return absent;
  if (const auto type = parse_data_type(text)) return *type;
  return Status::invalid("{} is '{}', expected bf16, fp16 or fp32", field, text);
}

Result<ShapeRow> read_shape(const gemmtune_tuning_shape& shape) {
  ShapeRow row;
  row.problem.m = shape.m;
  row.problem.n = shape.n;
  row.problem.k = shape.k;
  const auto x_type = read_type(shape.x_type, DataType::bf16, "x_type");
  if (!x_type.ok()) return x_type.status();
  const auto y_type = read_type(shape.y_type, *x_type, "y_type");
  if (!y_type.ok()) return y_type.status();
  row.problem.x_type = *x_type;
  row.problem.w_type = *x_type;
  row.problem.y_type = *y_type;
  row.problem.bias = shape.bias != 0;
  row.problem.bpreshuffle = shape.bpreshuffle != 0;
  if (row.problem.bpreshuffle) row.problem.weight_layout = WeightLayout::any;
  row.calls = std::max<std::int64_t>(1, shape.calls);
  return row;
}

Result<std::vector<ShapeRow>> read_shapes(const gemmtune_tuning_options& options) {
  if (options.input != nullptr) {
    auto list = read_shape_list(options.input, {});
    if (!list.ok()) return list.status();
    return std::move(list->rows);
  }
  if (options.shapes == nullptr || options.shape_count == 0) {
    return Status::invalid("input is NULL and there are no shapes: expected one of them");
  }
  const std::size_t stride = options.shapes->size;
  if (stride < offsetof(gemmtune_tuning_shape, x_type)) {
    return Status::invalid("shapes[0].size is {}, expected sizeof(gemmtune_tuning_shape), {}", stride,
                           sizeof(gemmtune_tuning_shape));
  }
  std::vector<ShapeRow> rows;
  const auto* bytes = reinterpret_cast<const char*>(options.shapes);
  for (std::size_t i = 0; i < options.shape_count; ++i) {
    auto row = read_shape(read_sized<gemmtune_tuning_shape>(bytes + i * stride, stride));
    if (!row.ok()) return Status(row.code(), fmt::format("shapes[{}]: {}", i, row.message()));
    rows.push_back(std::move(*row));
  }
  return rows;
}

class CallbackObserver final : public TuneObserver {
 public:
  explicit CallbackObserver(const gemmtune_tuning_options& options) : options_(options) {}
  void problem_started(std::size_t, std::size_t count, const ShapeRow&) override { count_ = count; }
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t index, const ProblemReport& report) override {
    if (options_.progress == nullptr) return;
    gemmtune_tuning_progress progress{};
    progress.size = sizeof progress;
    progress.index = index;
    progress.count = count_;
    progress.state = static_cast<std::int32_t>(report.state);
    progress.reason = report.reason.c_str();
    progress.kernel_name = report.entry ? report.entry->kernel_name.c_str() : "";
    progress.microseconds = report.entry ? report.entry->us : 0;
    progress.speedup = report.entry ? report.entry->speedup.value_or(0) : 0;
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

gemmtune_tuning_summary counts_of(const TuneSummary& summary) {
  gemmtune_tuning_summary counts{};
  std::int64_t* const by_state[] = {&counts.tuned,       &counts.kept_default, &counts.skipped_done,
                                    &counts.unsupported, &counts.failed,       &counts.out_of_budget};
  for (const ProblemReport& report : summary.problems) ++*by_state[static_cast<std::size_t>(report.state)];
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
  return std::make_unique<WorkerEvaluator>(std::move(worker));
}

Result<TuneSummary> run(const gemmtune_tuning_options& options) {
  TuneRequest request;
  request.output = text_of(options.output);
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
  auto shapes = read_shapes(options);
  if (!shapes.ok()) return shapes.status();
  request.shapes = std::move(*shapes);
  const auto measuring = device_request(
      {.text = text_of(options.device), .threads = options.threads, .pin_threads = options.pin_threads != 0},
      read_environment());
  if (!measuring.ok()) return measuring.status();
  DeviceRequest listing = *measuring;
  if (options.worker_program != nullptr) listing.pin_threads = false;
  auto device = open_device(backend_of(options), listing);
  if (!device.ok()) return device.status();
  request.policy = default_policy((*device)->info());
  request.confirmations =
      options.confirmations == 0 ? default_confirmations((*device)->info()) : options.confirmations;
  InProcessOptions evaluation;
  evaluation.policy = request.policy;
  evaluation.max_err_ratio = request.max_err_ratio;
  evaluation.reference_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto evaluator = make_evaluator(options, **device, *measuring, evaluation);
  CallbackObserver observer(options);
  return tune(**device, *evaluator, request, observer);
}

int tune_checked(const gemmtune_tuning_options* options, gemmtune_tuning_summary* summary) {
  if (options == nullptr) return keep_tuning_error(Status::invalid("options is NULL"));
  constexpr std::size_t least = offsetof(gemmtune_tuning_options, backend);
  if (options->size < least) {
    return keep_tuning_error(
        Status::invalid("options->size is {}, expected sizeof(gemmtune_tuning_options), {}", options->size,
                        sizeof(gemmtune_tuning_options)));
  }
  const auto known = read_sized<gemmtune_tuning_options>(options, options->size);
  const auto result = run(known);
  if (!result.ok()) return keep_tuning_error(result.status());
  if (summary == nullptr) return GEMMTUNE_TUNING_OK;
  gemmtune_tuning_summary counts = counts_of(*result);
  counts.size = summary->size;
  std::memcpy(summary, &counts, std::min(summary->size, sizeof counts));
  return GEMMTUNE_TUNING_OK;
}

}  // namespace

int keep_tuning_error(const Status& status) {
  last_error = status.message();
  return code_of(status.code());
}

}  // namespace gemmtune

extern "C" int gemmtune_tune(const gemmtune_tuning_options* options, gemmtune_tuning_summary* summary) {
  try {
    return gemmtune::tune_checked(options, summary);
  } catch (const std::bad_alloc&) {
    gemmtune::last_error = "out of memory";
    return GEMMTUNE_TUNING_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    gemmtune::last_error = error.what();
    return GEMMTUNE_TUNING_INTERNAL;
  }
}

extern "C" const char* gemmtune_tuning_last_error(void) { return gemmtune::last_error.c_str(); }
