// tune_gemm's mode of `tune`: what its options mean in ours, what its YAML as the output asks for, and correctness of winners.
// docs/coming_from_tune_gemm.md.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "cli/shared/check_report.h"
#include "cli/tune/tune_options.h"
#include "evaluate/evaluator.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// One of tune_gemm's options was given, or a YAML of sizes or of results is named.
bool is_tune_gemm(const TuneOptions& options);

/// The file of results without -o where has_yaml_default(), in the folder that the program runs in.
inline constexpr const char* default_results_yaml = "tuning_results.yaml";
/// True for a YAML of sizes, and for -m -n -k with tune_gemm's options, unless the run asks for what only a CSV holds.
bool has_yaml_default(const TuneOptions& options);

/// Turns tune_gemm's options into ours: fp16 for a single size without types, GPUs into --device, --compare into
/// checks of winners. An error for contradictions.
Status apply_tune_gemm(TuneOptions& options);

/// A line for each option that was given and does nothing on this device, and about data that prove nothing.
std::vector<std::string> tune_gemm_notes(const TuneOptions& options, const DeviceInfo& device);

/// --bias_vector of shapes from a file or a model.
Status add_bias(const TuneOptions& options, ShapeList& shapes);

/// What a YAML as the output asks for: one file of tune_gemm's form, of GEMMs that it can hold. Ok for others.
Status check_yaml_output(const TuneOptions& options, const Outputs& outputs, const ShapeList& shapes);

/// Makes the folder of --keep beside the output and names it and its profile in `outputs`.
Status make_keep_folder(const TuneOptions& options, Outputs& outputs);

/// Verifies the row of each shape of the run; of shapes that were skipped the row in the outputs.
Result<std::vector<CheckedRow>> check_winners(const Device& device, Evaluator& evaluator,
                                              const RunSummary& summary, const Outputs& outputs);

}  // namespace gemmtune::cli
