// Options of AITER's tuners that gemmtune has no other option for: what they mean here, or what to use instead.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// What the environment gives where the command line is silent: GTUNE_INPUT as -i, GTUNE_TUNED as -o, and the folder of
/// --buckets.
void take_environment(const Environment& environment, TuneOptions& options);

/// --preshuffle as --op; an error says what to use instead of an option that only AITER's kernels have.
Status apply_aiter_options(TuneOptions& options);

/// A line for each option that changes nothing here.
std::vector<std::string> aiter_notes(const TuneOptions& options);

}  // namespace gemmtune::cli
