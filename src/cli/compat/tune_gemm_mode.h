// tune_gemm's mode of `tune`: what its options mean in ours. docs/coming_from_tune_gemm.md.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// True for a YAML of sizes, and for -m -n -k with tune_gemm's options, unless the run asks for what only a CSV holds:
/// results go into tuning_results.yaml then, in the folder that the program runs in.
bool has_yaml_default(const TuneOptions& options);

/// Turns tune_gemm's options into ours: fp16 for a single size without types, GPUs into --device, --compare into
/// checks of winners. An error for contradictions.
Status apply_tune_gemm(TuneOptions& options);

/// A line for each option that was given and does nothing, and about data that prove nothing.
std::vector<std::string> tune_gemm_notes(const TuneOptions& options);

}  // namespace gemmtune::cli
