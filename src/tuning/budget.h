// Budget: which problem is worked on next, and how much of a run's time it gets. The one place that decides it.
//
// Under a budget every problem has a short first visit: the defaults and what the strategy tries first. Its
// seconds a candidate are the device's own, so what the rest of each search and its finals would take is known
// then. The time that is left beyond the shortest finals of all is shared out so that a second more is expected
// to gain the same everywhere, and each problem has a second visit, which searches on and settles it, those
// first where most is expected of a second. What a visit leaves goes to the others; problems that were cut are
// visited again as long as time is left. If first visits of all would take longer than the budget, every weight gets
// its share of them, at values of M that are far apart. docs/runs.md, "Budgets".
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "problem/problem.h"
#include "tuning/visit.h"

namespace gemmtune {

/// When a measurement that is still running is cut off: a budget ends between measurements, and one of them
/// may take long. With what publishing takes a run keeps its budget, of 2 s and more, within 10 % and a second; a worker
/// alone takes a second to start.
constexpr double cut_off_seconds(double budget_seconds) { return std::max(3.0, 1.05 * budget_seconds + 0.5); }

/// A problem as budgets see it.
struct BudgetItem {
  Problem problem;
  double calls = 1;  // how much a gain counts
  std::size_t group =
      0;              // problems of one group are worked on one at a time, by one evaluator where possible
  bool waits = true;  // false: nothing is to be done
};

struct BudgetOptions {
  double seconds = 0;  // 0: none
  double spent = 0;    // of it, before the run
  SecondsClock clock = steady_seconds;
  std::size_t evaluators = 1;
  bool goes_on = true;  // a problem may be left and visited again
};

class RunBudget {
 public:
  struct Visit {
    std::size_t group = 0;
    std::optional<std::size_t> item;  // none: no problem of the group waits, it is only to be reported
    TuningVisit tuning;
  };

  explicit RunBudget(BudgetOptions options);
  /// All problems of the run, group after group in its order; once, before the first visit.
  void share_among(const std::vector<BudgetItem>& items);

  // From several threads at the same time, each with a number of its own.

  /// The next visit of an evaluator; none: its work is done. Without a budget the groups in their order, each
  /// problem once, without a limit. Under a budget the first problem has its turn in any case: no run ends
  /// with nothing. May wait for a problem that another evaluator is at.
  std::optional<Visit> next(std::size_t evaluator);
  /// The visit is over. Answers whether the problem may be visited again.
  bool done(const Visit& visit, const VisitFigures& figures);
  /// Nothing is handed out any more.
  void end();

  /// All that is left of it.
  Deadline rest() const { return deadline_; }
  /// What was measured last may have been cut off.
  bool is_cut_off() const {
    return is_limited() && -deadline_.seconds_left() >= cut_off_seconds(options_.seconds) - options_.seconds;
  }

 private:
  enum class State { unvisited, visited, settled, closed };
  struct Item {
    BudgetItem given;
    State state = State::unvisited;
    VisitFigures figures = {};
    int settled = 0;         // times
    std::size_t weight = 0;  // of weights_
    double distance = 1;     // from the nearest M of the weight that had a visit: of their logarithms
    double reserved = 0;     // of reserved_
    double allotted = 0;     // of allotted_
  };
  /// The problems of one (N, K), operation and types.
  struct Weight {
    std::vector<std::size_t> waiting;  // items
    double calls = 0;                  // of all of them
    double visited_calls = 0;
  };
  struct Group {
    std::vector<std::size_t> waiting;  // items that were not visited yet, the last one first
    std::optional<std::size_t> evaluator;
    bool in_work = false;
  };
  /// What further time is expected to do for a problem: `shortest` seconds settle it, up to rest() more improve
  /// the result.
  struct Prospect {
    std::size_t item = 0;
    double shortest = 0;  // set-up and the shortest finals
    double search = 0;    // what the search still takes
    double finals = 0;    // of whole finals, beyond the shortest
    double gain = 0;      // of all that: calls × logarithm of the time's ratio
    double rest() const { return search + finals; }
    double gain_per_second() const { return gain / (shortest + rest()); }
  };
  /// A gain that was seen at these sizes.
  struct Gain {
    double log_m = 0, log_n = 0, log_k = 0;
    double logarithm = 0;
  };

  bool is_limited() const { return options_.seconds > 0; }
  /// Of all evaluators together.
  double seconds_left() const;
  std::optional<Visit> next_unvisited(std::size_t evaluator);
  /// The group and what of it is visited next; none: every group has its evaluator.
  std::optional<std::size_t> next_group(std::size_t evaluator);
  /// Of a first visit that settles.
  double seconds_to_settle() const;
  /// Whether first visits of all that wait take longer than what is left.
  bool is_short_of_time() const;
  /// While time is short: of the weight that had the smallest share of its calls, the item that is called most and lies
  /// farthest from those that had a visit. None: another evaluator is at all of them.
  std::optional<std::size_t> spread_item(std::size_t evaluator) const;
  bool may_begin(const Group& group, std::size_t evaluator) const;
  /// The item had its first visit.
  void leave(std::size_t index);
  /// The extent of the next problem's first visit; none: there is no time for it.
  std::optional<TuningVisit> first_visit() const;
  std::optional<Visit> further_visit(std::size_t evaluator);
  void begin_visit(std::size_t group, std::size_t evaluator);
  /// Shares out what is left among those that wait for a further visit.
  void plan();
  Prospect prospect_of(std::size_t index) const;
  double expected_gain(const Item& item) const;
  double shortest_seconds(const VisitFigures& figures) const;
  static double extra_seconds(const Prospect& prospect, double price);
  void learn(Item& item, const VisitFigures& figures, bool first);

  const BudgetOptions options_;
  const Deadline deadline_;
  std::mutex lock_;  // of what follows
  std::condition_variable changed_;
  std::vector<Item> items_;
  std::vector<std::size_t> open_;  // items that are visited or settled, and some that are closed since
  std::vector<Group> groups_;
  std::vector<Weight> weights_;
  std::vector<std::size_t> order_;                   // of groups
  std::size_t at_ = 0;                               // in it
  std::map<std::size_t, std::size_t> at_evaluator_;  // the latest group of each
  std::size_t unvisited_ = 0;
  std::size_t visited_ = 0;  // that are not settled and not in work
  std::size_t in_work_ = 0;  // groups
  bool any_ = false;         // a problem had a visit
  bool any_result_ = false;  // … that settled it
  bool ended_ = false;
  double reserved_ = 0;                   // the shortest seconds of all `visited_`
  double allotted_ = 0;                   // seconds of further visits in work
  std::vector<Prospect> planned_;         // the best first …
  State planned_state_ = State::visited;  // … all in this state
  double planned_seconds_ = 0;            // of all of them
  double price_ = 0;                      // expected gain of the last second that each of them gets
  std::size_t changes_ = 0;               // visits that ended …
  std::size_t planned_changes_ = 0;       // … before `planned_` was made
  std::deque<double> first_seconds_;      // of the latest first visits
  std::deque<double> shortest_seconds_;   // of the same
  std::deque<double> overruns_;           // of the latest visits that settled: beyond their time
  std::deque<Gain> gains_;                // the latest
};

}  // namespace gemmtune
