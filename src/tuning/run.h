// What the work items of one run share: budget, known rows, winners so far, publishing and observing.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "resolve/known_rows.h"
#include "tuning/budget.h"
#include "tuning/problem_tuner.h"
#include "tuning/publisher.h"
#include "tuning/row_environment.h"
#include "tuning/run_observer.h"
#include "tuning/transfer.h"
#include "tuning/tune_request.h"

namespace gemmtune {

/// A known row counts as done: not where the request retunes it, and not of a lower accuracy class than it allows.
bool counts_as_done(const Device& device, const TuneRequest& request, const std::string& environment_hash,
                    const TunedEntry& row);

class Run {
 public:
  /// `evaluators`: how many work at the same time. All must outlive this.
  Run(Device& device, std::size_t evaluators, const TuneRequest& request, RunObserver& observer);

  // Before and after the work, from one thread.

  /// Everything that can be wrong before anything slow: unknown families or strategy, an output that cannot
  /// be written, a file of rows that cannot be read. Known rows are those of the output and of the request's
  /// further files.
  Status open();
  /// The report of a shape or weight, of the work item `group`; answers its index. Not `waits`: nothing is to be
  /// done, the report has the reason.
  std::size_t add(ItemReport&& report, std::size_t group, bool waits);
  /// Reports to the observer, not each time, that `done` of `count` shapes were added.
  void preparing(std::size_t done, std::size_t count);
  /// After the last add().
  void begin();
  RunSummary& summary() { return summary_; }
  /// Publishes what waits and adds up. The summary is then moved from.
  Result<RunSummary> finish();

  // For items, from several threads at the same time. Only the item that added a report writes to it.

  const Device& device() const { return device_; }
  const TuneRequest& request() const { return request_; }
  const std::string& environment_hash() const { return environment_.hash; }
  const KnownRows& known() const { return known_; }
  std::size_t items() const { return summary_.items.size(); }
  ItemReport& report(std::size_t item) { return summary_.items[item]; }
  bool waits(std::size_t item) const { return waiting_[item]; }
  bool stopped() const { return request_.stop && request_.stop(); }
  /// What was measured last may have been ended in the middle: by an interrupt, or by the end of the budget.
  bool ended() const { return stopped() || budget_.is_cut_off(); }
  /// An error, whose message is the report's reason: the problem is malformed, or not of the run's operation.
  Status check_problem(const Problem& problem) const;
  /// ok if the output can hold a row of the problem.
  Status check_expressible(const Problem& problem) const { return publisher_.check_expressible(problem); }
  bool counts(const TunedEntry& row) const {
    return counts_as_done(device_, request_, environment_.hash, row);
  }
  /// The layout that a weight must have: plain where it is not packed, else that of a row that stays;
  /// nullopt: free. `is_replaced`: this item writes the row anew.
  std::optional<WeightLayout> decided_layout(const Problem& weight,
                                             const std::function<bool(const TunedEntry&)>& is_replaced) const;

  /// The bit class of rows of this problem's group that stay; empty: there are none. `is_replaced` as above.
  std::string decided_bits(const Problem& problem,
                           const std::function<bool(const TunedEntry&)>& is_replaced) const;
  /// An error, whose message is the report's reason: rows of this problem's group have a bit class, and one of this run would have none.
  /// It would take the place of such a row, or never be looked up beside them.
  Status check_keeps_bits(const Problem& problem) const;

  /// What is worked on next, and how long.
  RunBudget& budget() { return budget_; }
  const RunBudget& budget() const { return budget_; }
  /// State and reason of a problem that the budget, or an interrupt, left unreached or unsettled.
  void set_unfinished(ItemReport& report, bool was_visited) const;

  /// A number for a search over a range of M: how many began before.
  std::size_t next_search();
  void problem_started(std::size_t index, const ShapeRow& shape);
  /// The full search of a problem, observed; winners of this run and of earlier ones go first.
  ProblemResult search(std::size_t index, const Problem& problem, std::optional<WeightLayout> layout,
                       const TuningVisit& visit, Evaluator& evaluator, TuningProgress* progress = nullptr);
  /// A winner that need not be searched for.
  void learn_winner(const Problem& problem, const std::string& kernel_name);
  void problem_paused(std::size_t index);
  void problem_settled(std::size_t index);
  void problem_done(std::size_t index, const ItemReport& report);
  void confirmation_started(std::size_t item, std::size_t done, std::size_t count);
  void range_step(const RangeStep& step);
  void range_done(std::size_t item);

  /// Row, state and ties of a shape's report.
  void set_row(std::size_t item, const LayoutResult& result);
  /// Into the environment beside the file: the noise floor of a measurement that was kept, and if the machine
  /// was busy meanwhile.
  void note_machine(double noise_floor, bool busy);
  Status publish(const std::vector<TunedEntry>& rows);
  Status flush();
  /// Into the environment of the rows, which is written again if this run has rows already.
  Status note_compute_roof(ComputeRoof roof);
  /// Publishes the changed row of a shape that was done.
  Status revise(std::size_t item);

 private:
  void note_error(Accuracy accuracy, const MeasuredError& error);
  /// Reading the weight alone takes so long; 0: not known.
  void note_roof(const Problem& problem, double microseconds);
  void note_energy(const ItemReport& report);
  void note_routings(const ItemReport& report);
  void note_bits(const TunedEntry& row);
  /// As observed by now. Requires lock_.
  void update_environment();

  /// What an untuned call runs, then winners of problems near this one.
  std::vector<Candidate> hints_for(const Problem& problem) const;
  /// Of the tuned file: that of the first shape. Requires shapes.
  OperationForm operation() const { return form_of(request_.shapes.front().problem); }

  Device& device_;
  const TuneRequest& request_;
  RunObserver& observer_;
  const std::size_t evaluators_;
  const RowEnvironment environment_;
  RunBudget budget_;
  Publisher publisher_;
  KnownRows known_;
  std::vector<BudgetItem> budget_items_;  // until begin()
  std::vector<bool> waiting_;
  RunSummary summary_;

  std::mutex lock_;  // of the observer, and of what follows
  Transfer transfer_;
  std::vector<double> noise_floors_;
  double memory_roof_gigabytes_ =
      0;  // a second: the highest rate at which a weight was read; 0: not measured
  std::optional<ComputeRoof> compute_roof_;
  int busy_rows_ = 0;
  std::map<std::string, double> errors_;         // the largest of the rows' winners, by class
  std::map<std::string, RowEnergy> energies_;    // of rows, by problem text
  std::map<std::string, RowRoutings> routings_;  // likewise
  std::map<std::string, RowBits> bits_;          // likewise
  std::size_t searches_ = 0;
};

}  // namespace gemmtune
