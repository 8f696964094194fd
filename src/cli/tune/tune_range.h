// gemmtune tune --m-range: weights in, ranges of M out.
#pragma once

#include <memory>
#include <vector>

#include "base/environment.h"
#include "cli/tune/range_report.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

/// On a machine, with the journal; answers the exit code.
int tune_ranges(const TuneOptions& options, const Environment& environment,
                const std::vector<std::unique_ptr<Device>>& devices, const ShapeList& shapes);

struct RangeReplay {
  const TuneRequest& request;  // its clock is the replay's
  const ShapeList& shapes;
  const Outputs& outputs;
};
/// The same from a recording, without a journal.
int replay_ranges(const TuneOptions& options, const RangeReplay& replay, Device& device,
                  Evaluator& evaluator);

}  // namespace gemmtune::cli
