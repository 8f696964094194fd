// Which kernel runs where nothing was tuned: the baseline that speed-ups are against, and the fallback on a
// miss.
#pragma once

#include <memory>
#include <span>

#include "backends/backend.h"

namespace gemmtune::cpu {

/// What a user without gemmtune gets: oneDNN on the weight as it is (packed where it is pre-shuffled), else
/// OpenBLAS. `not_found` with each library's reason where neither takes the problem.
Result<Candidate> choose_baseline(std::span<const KernelFamily* const> families, const Problem& problem);

/// oneDNN where it takes the problem and its weight's layout; else our own at its default config: `skinny` up
/// to 8 rows, `tiled` above, either where the other refuses, and `quantized`, `batched` or `moe` for the
/// operations they are for. Never `reference`. `unsupported` with the reasons where none takes the problem.
Result<Candidate> choose_fallback(std::span<const KernelFamily* const> families, const Problem& problem);

}  // namespace gemmtune::cpu
