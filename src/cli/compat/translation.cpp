#include "cli/compat/translation.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/compat/tune_gemm_mode.h"
#include "cli/compat/tune_gemm_results.h"
#include "cli/inspect/bench.h"
#include "cli/shared/device_options.h"
#include "cli/tune/shape_choice.h"

namespace gemmtune::cli {
namespace {

/// An option of kernels that only AITER has.
Status refuse_foreign(const TuneOptions& options) {
  if (!options.blocks_per_unit.empty())
    return Status::invalid(
        "--blockPerCu {}: is of CK Tile's kernels; here occupancy is a parameter of the families (eu of "
        "mfma, smem on NVIDIA GPUs): give its values with --search-space",
        options.blocks_per_unit);
  if (options.grouped_gemm)
    return Status::invalid(
        "--grouped-gemm: is of AITER's grouped kernels of gfx1250; here --op fused_moe tunes every family "
        "that takes the mixture: drop the option");
  if (options.mxfp4_flydsl)
    return Status::invalid(
        "--mxfp4-flydsl: is of AITER's FlyDSL kernels; here --op fused_moe with MXFP4 weights in the shapes "
        "tunes every family that takes them: drop the option");
  return {};
}

Status apply_preshuffle(TuneOptions& options) {
  if (!options.preshuffle) return {};
  GEMMTUNE_TRY(const auto named, operation_of(options.size));
  const OperationForm operation = named.value_or(OperationForm(Operation::a8w8_blockscale));
  if (operation.operation != Operation::a8w8_blockscale)
    return Status::invalid(
        "--preshuffle: only of a8w8_blockscale, not of --op {}; expected an operation whose name ends "
        "in _bpreshuffle, without --preshuffle",
        options.size.operation);
  options.size.operation = to_string({Operation::a8w8_blockscale, true});
  return {};
}

/// What the environment gives where the command line is silent: GTUNE_INPUT as -i, GTUNE_TUNED as -o, and the folder of
/// --buckets.
void take_environment(const Environment& environment, TuneOptions& options) {
  const bool reads_results = options.compare_wo_tuning || options.benchmark;
  const bool reads_a_table = options.run_config && !options.run_config->empty();
  const bool has_model = !environment.model_folder.empty();
  if (!names_shapes(options) && !has_model && !reads_results && !reads_a_table && options.replay.empty() &&
      !options.buckets)
    options.input = environment.input_file;
  if (!options.output.empty()) return;
  if (options.buckets) {
    // Where dispatch finds Triton configs.
    if (!environment.config_folder.empty()) options.output = join_path(environment.config_folder, "triton");
  } else if (!reads_results && !has_yaml_default(options)) {
    options.output = environment.tuned_file;
  }
}

/// --preshuffle as --op; an error says what to use instead of an option that only AITER's kernels have.
Status apply_aiter_options(TuneOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(refuse_foreign(options));
  return apply_preshuffle(options);
}

/// A line for each option that changes nothing here.
std::vector<std::string> aiter_notes(const TuneOptions& options) {
  std::vector<std::string> notes;
  if (options.with_hipblaslt)
    notes.emplace_back(
        "--with-hipblaslt: the vendor's library takes part anyway; a --libtype that does not name it leaves "
        "it out");
  return notes;
}

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
