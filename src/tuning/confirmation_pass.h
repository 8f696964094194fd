// The second measuring of winners, once all shapes of a run are settled (select/confirmation.h).
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "tuning/run.h"

namespace gemmtune {

class ConfirmationPass {
 public:
  /// `run` must outlive this.
  explicit ConfirmationPass(Run& run) : run_(run) {}

  /// A row that was settled now; ignored without a confirmation pass. Safe from several threads.
  void add(std::size_t item, LayoutResult&& result);
  /// Measures each row again whose finals are long enough ago, as far as the budget reaches, and revises
  /// it. Rows that meet a busy machine wait until the others are done, once at most.
  Status run(std::span<Evaluator* const> evaluators);

 private:
  struct Row {
    std::size_t item;
    LayoutResult result;
    double settled_at;  // of the request's clock
  };
  /// `is_last`: a result counts even if the machine was busy.
  Status confirm(std::size_t which, Evaluator& evaluator, bool is_last);
  /// How far ratios moved between passes decides which kernels are ties.
  Status widen_all_ties();

  Run& run_;
  std::vector<Row> rows_;
  std::mutex lock_;  // of rows_ while they are added, and of what follows
  std::vector<std::size_t> disturbed_;
  std::vector<double> changes_;  // Confirmation::changes of all rows
};

}  // namespace gemmtune
