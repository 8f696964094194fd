#include "cli/compat/translation.h"

#include <limits>
#include <utility>

#include "cli/compat/aiter_options.h"
#include "cli/compat/tune_gemm_mode.h"
#include "cli/compat/tune_gemm_results.h"
#include "cli/inspect/bench.h"
#include "cli/shared/device_options.h"
#include "cli/tune/shape_choice.h"

namespace gemmtune::cli {
namespace {

/// As `gemmtune bench` with how `tune` measures: a tuned file, or the shapes that would be tuned.
Result<int> run_config(const TuneOptions& options, const Environment& environment, Device& device) {
  GEMMTUNE_TRY(const auto operation, operation_of(options.size));
  Result<BenchInput> input = Status::internal("no input");
  if (options.run_config->empty()) {
    GEMMTUNE_TRY(auto shapes, shapes_of(options, environment, device.info()));
    GEMMTUNE_RETURN_IF_ERROR(add_bias(options, shapes));
    input = bench_input_of(std::move(shapes), environment, device);
  } else {
    input = read_bench_input(*options.run_config, operation, environment, device, options.strict);
  }
  if (!input.ok()) return input.status();
  BenchOptions bench;
  bench.policy = policy_of(options, device.info());
  bench.max_err_ratio = options.request.max_err_ratio;
  bench.max_regression = std::numeric_limits<double>::infinity();  // a report, no gate
  bench.quiet = options.quiet;
  bench.json = options.json;
  return time_operator(bench, std::move(*input), device);
}

}  // namespace

Status translate(const Environment& environment, TuneOptions& options) {
  take_environment(environment, options);
  GEMMTUNE_RETURN_IF_ERROR(apply_aiter_options(options));
  GEMMTUNE_RETURN_IF_ERROR(apply_tune_gemm(options));
  options.notes = aiter_notes(options);
  for (std::string& note : tune_gemm_notes(options)) options.notes.push_back(std::move(note));
  return {};
}

Result<std::optional<int>> run_other_command(const TuneOptions& options, const Environment& environment) {
  if (!options.run_config && !options.compare_wo_tuning && !options.benchmark) return std::optional<int>();
  const bool runs_here = options.run_config.has_value();
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, runs_here));
  GEMMTUNE_TRY(const auto code, runs_here ? run_config(options, environment, *device)
                                : options.compare_wo_tuning
                                    ? check_results(options, environment, *device)
                                    : benchmark_results(options, environment, *device));
  return std::optional(code);
}

}  // namespace gemmtune::cli
