#include "cli/tune/winner_check.h"

#include <string>

#include "base/interrupt.h"
#include "resolve/known_rows.h"
#include "tuning/row_check.h"

namespace gemmtune::cli {

Result<std::vector<CheckedRow>> check_winners(const Device& device, Evaluator& evaluator,
                                              const RunSummary& summary, const Outputs& outputs) {
  std::vector<CheckedRow> rows;
  if (summary.items.empty()) return rows;
  std::vector<std::string> paths{outputs.tuned};
  paths.insert(paths.end(), outputs.also_read.begin(), outputs.also_read.end());
  GEMMTUNE_TRY(const auto known,
               KnownRows::read(paths, form_of(summary.items.front().shape.problem), device.info()));
  for (const ItemReport& report : summary.items) {
    if (interrupted()) break;
    const TunedEntry* row = report.row();
    if (row == nullptr && report.state == ProblemState::skipped_done) {
      if (const KnownRows::Row* found = known.find(report.shape.problem)) row = &found->entry;
    }
    if (row != nullptr) rows.push_back({*row, check_rows(device, evaluator, {row, 1}, {}).front()});
  }
  return rows;
}

}  // namespace gemmtune::cli
