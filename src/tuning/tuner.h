// The tuner: a request in, rows of a tuned file out. A run is a list of work items (work_item.h); what they
// share (budget, known rows, publishing, observing) is in run.h.
#pragma once

#include <span>

#include "tuning/item_report.h"
#include "tuning/row_environment.h"
#include "tuning/run_observer.h"
#include "tuning/tune_request.h"

namespace gemmtune {

/// Tunes the request on `device` through `evaluators`, one thread each, of devices that are equal to `device`
/// in gfx and cu_num. Problems of one packed weight (N, K, types) share one layout, chosen over all their M
/// weighted by calls, and stay with one evaluator. An error is one that stops the run (the output cannot be
/// written …); failed items are in the summary.
///
/// Over ranges of M the file gets, while a weight is at work, its finished ranges from the left end on, and
/// the tuned M behind them as rows of one M (not where the file has a row of that M). A weight that the
/// output covers already is left out unless request.all (or .stale, where its rows are of another
/// environment). Not for fused_moe, which is looked up by token tiers: `unsupported`.
Result<RunSummary> tune(Device& device, std::span<Evaluator* const> evaluators, const TuneRequest& request,
                        RunObserver& observer);
Result<RunSummary> tune(Device& device, Evaluator& evaluator, const TuneRequest& request,
                        RunObserver& observer);

}  // namespace gemmtune
