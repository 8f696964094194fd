// The second measuring of winners, once all shapes of a run are settled (select/second_look.h).
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

  /// A row that was settled now. Nothing where the request wants one look. Safe from several threads.
  void add(std::size_t item, LayoutResult&& result);
  /// Looks again at each row whose first look is long enough ago, as far as the budget reaches, and revises
  /// it. Rows that meet a busy machine wait until the others are done, once at most.
  Status run(std::span<Evaluator* const> evaluators);

 private:
  struct Row {
    std::size_t item;
    LayoutResult result;
    double settled_at;  // of the request's clock
  };
  /// `is_last`: a result counts even if the machine was busy.
  Status look_again(std::size_t which, Evaluator& evaluator, bool is_last);
  /// How far ratios moved between looks decides which kernels are ties.
  void widen_all_ties();

  Run& run_;
  std::vector<Row> rows_;
  std::mutex lock_;  // of rows_ while they are added, and of what follows
  std::vector<std::size_t> disturbed_;
  std::vector<double> changes_;  // SecondLook::changes of all rows
};

}  // namespace gemmtune
