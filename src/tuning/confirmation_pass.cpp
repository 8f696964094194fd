#include "tuning/confirmation_pass.h"

#include <numeric>
#include <utility>

#include "evaluate/worker/worker_pool.h"
#include "select/confirmation.h"

namespace gemmtune {

void ConfirmationPass::add(std::size_t item, LayoutResult&& result) {
  if (run_.request().confirmations < 2) return;
  const std::lock_guard guard(lock_);
  rows_.push_back({item, std::move(result), run_.request().clock()});
}

Status ConfirmationPass::confirm(std::size_t which, Evaluator& evaluator, bool is_last) {
  const TuneRequest& request = run_.request();
  Row& row = rows_[which];
  ItemReport& report = run_.report(row.item);
  const double begin = request.clock();
  const Deadline deadline = run_.budget().rest();
  if (begin - row.settled_at < request.seconds_before_confirmation || deadline.over()) return {};
  run_.confirmation_started(row.item, which, rows_.size());
  Confirmation pass = gemmtune::confirm(report.shape.problem, row.result.layout, request.policy,
                                        row.result.settled, evaluator, deadline);
  if (pass.changes.empty()) return {};
  {
    const std::lock_guard guard(lock_);
    if (pass.quietness.busy() && !is_last) {
      disturbed_.push_back(which);
      return {};
    }
    changes_.insert(changes_.end(), pass.changes.begin(), pass.changes.end());
    RunSummary& summary = run_.summary();
    ++summary.confirmed;
    if (!(pass.settled.winner->candidate == row.result.settled.winner->candidate)) ++summary.revised;
  }
  row.result.settled = std::move(pass.settled);
  run_.set_row(row.item, row.result);
  report.seconds += request.clock() - begin;
  return run_.revise(row.item);
}

Status ConfirmationPass::widen_all_ties() {
  const double deviation = run_.summary().pass_deviation = pass_deviation(changes_);
  if (deviation == 0) return {};
  for (Row& row : rows_) {
    widen_ties(row.result.screened, run_.request().policy, deviation, row.result.settled);
    const ItemReport& report = run_.report(row.item);
    if (report.ties.size() == row.result.settled.ties.size()) continue;
    run_.set_row(row.item, row.result);
    GEMMTUNE_RETURN_IF_ERROR(run_.revise(row.item));
  }
  return {};
}

Status ConfirmationPass::run(std::span<Evaluator* const> evaluators) {
  std::vector<std::size_t> waiting(rows_.size());
  std::iota(waiting.begin(), waiting.end(), std::size_t{0});
  for (int tries = 2; tries > 0 && !waiting.empty(); --tries) {
    GEMMTUNE_RETURN_IF_ERROR(
        share_out(waiting.size(), evaluators.size(), [&](std::size_t worker, std::size_t i) {
          return confirm(waiting[i], *evaluators[worker], tries == 1);
        }));
    waiting = std::exchange(disturbed_, {});
  }
  return widen_all_ties();
}

}  // namespace gemmtune
