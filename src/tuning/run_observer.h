// Who is called while the tuner runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "evaluate/evaluator.h"
#include "problem/problem.h"
#include "select/finals.h"
#include "tuning/item_report.h"
#include "tuning/m_range_planner.h"

namespace gemmtune {

/// A measurement over a range of M that begins now.
struct RangeStep {
  std::size_t item = 0;  // index into the summary
  std::size_t items = 0;
  Problem problem;  // with the M of the measurement
  MQuestion::Kind kind = MQuestion::Kind::none;
  std::size_t searched = 0;   // M of this item that had the full search
  std::size_t first_ms = 0;   // number of M that have it in any case
  double settled_share = 0;   // of the axis in log M; 0 until those are done
  double item_seconds = 0;    // since the item began
  double settling_begin = 0;  // the item_seconds at which the first M were done; 0: not yet
};

/// Called by one thread at a time; with several evaluators from the thread of each.
///
/// A problem is a shape of the request (`index` into it, `count` shapes), or one of the searches over ranges
/// of M: `index` then counts the searches of the run, and `count` is 0, for their number is not known before
/// the end.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Before the run starts: `done` of `count` shapes of a long list were looked at.
  virtual void preparing(std::size_t /*done*/, std::size_t /*count*/) {}
  /// Once, before all else, where the problems are known before the run (not over ranges of M): those that
  /// will be tuned, by so many evaluators at once.
  virtual void run_started(std::span<const std::size_t> /*waiting*/, std::size_t /*evaluators*/) {}
  virtual void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) = 0;
  /// `index`: of the problem that it was tried for.
  virtual void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) = 0;
  /// Under a budget: the problem is left, and may begin again where it stopped.
  virtual void problem_paused(std::size_t /*index*/) {}
  /// Under a budget: the problem has a row, which is in the file, and may be visited again. Once more for each
  /// later visit; problem_done follows in any case.
  virtual void problem_settled(std::size_t /*index*/, const ItemReport& /*report*/) {}
  /// The paired rounds of a problem's finals so far.
  virtual void paired_rounds(std::size_t /*index*/, const PairedRatio& /*ratio*/) {}
  virtual void problem_done(std::size_t index, const ItemReport& report) = 0;
  /// A confirmation pass begins: number `done` of `count`, from 0.
  virtual void confirmation_started(std::size_t /*index*/, std::size_t /*done*/, std::size_t /*count*/) {}
  /// The confirmation pass changed the row of a problem that was done.
  virtual void problem_revised(std::size_t /*index*/, const ItemReport& /*report*/) {}
  virtual void range_step(const RangeStep& /*step*/) {}
  /// A weight over its range of M is done: number `item` of `items`, from 0.
  virtual void range_done(std::size_t /*item*/, std::size_t /*items*/, const ItemReport& /*report*/) {}
};

}  // namespace gemmtune
