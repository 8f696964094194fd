// What a run over shapes (tuner.h) and one over ranges of M (m_range_tuner.h) begin with.
#pragma once

#include "backends/backend.h"
#include "base/status.h"
#include "problem/problem.h"
#include "resolve/known_rows.h"
#include "tuning/publisher.h"
#include "tuning/tuner.h"

namespace gemmtune {

/// To the request's output, with the environment beside it.
Publisher publisher_of(const TuneRequest& request, const RowEnvironment& environment);

/// Everything that can be wrong before anything slow: unknown families or strategy, an output that cannot be
/// written, a file of rows that cannot be read. The rows are those of the output and of the request's further
/// files.
Result<KnownRows> start_run(const Device& device, const TuneRequest& request, const Publisher& publisher);

}  // namespace gemmtune
