#include "cli/compat/aiter_options.h"

#include "base/file.h"
#include "cli/compat/tune_gemm_mode.h"

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

}  // namespace

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

Status apply_aiter_options(TuneOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(refuse_foreign(options));
  return apply_preshuffle(options);
}

std::vector<std::string> aiter_notes(const TuneOptions& options) {
  std::vector<std::string> notes;
  if (options.with_hipblaslt)
    notes.emplace_back(
        "--with-hipblaslt: the vendor's library takes part anyway; a --libtype that does not name it leaves "
        "it out");
  return notes;
}

}  // namespace gemmtune::cli
