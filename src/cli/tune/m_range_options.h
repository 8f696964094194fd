// --m-range and --m-regret of `gemmtune tune`.
#pragma once

#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace CLI {
class App;
}

namespace gemmtune::cli {

void declare_m_range(CLI::App& app, TuneOptions& options);

/// "A:B" with 1 ≤ A ≤ B ≤ 2³¹ − 1, and percent above 0 up to 100. Requires a text.
Result<MRangeRequest> m_range_of(const TuneOptions& options);

/// Nothing without --m-range. Checks it, and what cannot stand beside it; a single size then needs no -m: its
/// M becomes the last of the range.
Status take_m_range(TuneOptions& options);

}  // namespace gemmtune::cli
