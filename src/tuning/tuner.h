// The tuner: a request in, rows of a tuned file out. A run is a list of work items (work_item.h); what they
// share (budget, known rows, publishing, observing) is in run.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/deadline.h"
#include "base/status.h"
#include "candidates/search_space.h"
#include "evaluate/evaluator.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/shapes/shape_list.h"
#include "measure/policy.h"
#include "select/finals.h"
#include "tuned/entry.h"
#include "tuning/m_range_planner.h"

namespace gemmtune {

struct TuneRequest {
  std::vector<ShapeRow> shapes;
  // Tuned file, published as the run goes on; empty: nowhere. A YAML (by its ending) gets tune_gemm's results,
  // which have no ranges and name no device: none of them counts as done.
  std::string output;
  PublishOptions publish;
  std::vector<std::string> libtypes;  // empty: all families (`reference` only where named)
  bool split_k = true;
  bool pdl = false;     // also looks for the best programmatic dependent launch
  bool energy = false;  // measures joules too; policy.objective may need them anyway: weighs_energy()
  double max_err_ratio = 0.05;
  Policy policy;
  std::string strategy = "staged";
  SearchSpace search_space{};           // narrows the families' spaces; without families: not
  double budget_seconds = 0;            // 0: none
  double seconds_spent = 0;             // of the budget, before the run: reading the shapes
  bool all = false;                     // retune what the output already has
  bool stale = false;                   // retune rows whose env is not today's
  std::vector<std::string> also_read;   // further tuned files that count as done
  int shapes_at_once = 100;             // upper limit of the evaluators that work at the same time
  SecondsClock clock = steady_seconds;  // of budgets and of the seconds that are reported
  /// Kernel names that were good for a problem, or for others like it, in earlier runs: the best first. They
  /// only decide what is tried first. May be empty; called by one thread at a time.
  std::function<std::vector<std::string>(const Problem&)> earlier_winners{};
  /// Trials of a problem that an earlier process of this run measured and did not report. The observer gets
  /// them with a report that has none of its own. May be empty; called by one thread at a time.
  std::function<std::vector<Trial>(const Problem&)> unreported_trials{};
  /// True once the run must end: nothing further is measured, what was decided is published. May be empty.
  /// Safe from any thread.
  std::function<bool()> stop{};
  /// Measurings of a winner: 1 the finals; 2 a confirmation pass too (select/confirmation.h), once all shapes
  /// are settled, of those whose finals ended at least `seconds_before_confirmation` ago; under a budget as
  /// far as time is left. Ranges of M have none.
  int confirmations = 1;
  double seconds_before_confirmation = 30;
  /// Set: each weight (N, K, types) of the shapes is tuned over this range. The M of the shapes then only
  /// say, with their calls, which M matter for the choice of a weight layout.
  std::optional<MRangeRequest> m_range{};
  /// All M of a weight take kernels of one bit class (tuning/invariant_group.h); evaluators must find bit classes.
  bool invariant = false;
};

/// Joules are measured.
inline bool weighs_energy(const TuneRequest& request) {
  return request.energy || request.policy.objective != Objective::time;
}

/// ok if the request's joules can be measured on this device and be chosen by; the error names --energy or --objective.
Status check_energy(Device& device, const TuneRequest& request);

/// 2 on a CPU, which has neighbours; 1 on a GPU, which is not shared while it is tuned. Also 1 for other objectives: the
/// confirmation pass compares times only.
int default_confirmations(const DeviceInfo& device, Objective objective = Objective::time);
/// 30 on a CPU, whose neighbours stay for seconds to minutes; 0 on a GPU, where the second pass has other memory.
double default_seconds_before_confirmation(const DeviceInfo& device);
/// How the request's winners are measured again: `asked` passes (0: the device's own number for the policy's
/// objective), and the wait before the second.
void choose_confirmations(TuneRequest& request, const DeviceInfo& device, int asked);

enum class ProblemState {
  tuned,
  kept_default,
  skipped_done,
  unsupported,
  failed,
  out_of_budget,
  interrupted
};
std::string_view to_string(ProblemState state);

/// What the report of a range of M has beside that of a shape.
struct RangeFigures {
  std::vector<std::string> failures;  // "M = 17: why no kernel runs there"
  std::size_t searched = 0;           // M with the full search
  std::size_t compared = 0;           // M with paired rounds of known kernels
  int finals_calls = 0;               // of those rounds
  double settled_share = 0;           // of the axis in log M; 1: all of it
};

/// A shape, or a weight over a range of M, and its result.
struct ItemReport {
  ShapeRow shape;  // of a range: M is its last, the calls are those of all shapes of the weight
  ProblemState state = ProblemState::failed;  // of a range kept_default: every row has the default kernel
  std::string reason;                         // for all but tuned and kept_default
  bool repeats = false;          // skipped_done because an earlier shape of the list is the same problem
  std::vector<TunedEntry> rows;  // of a shape at most one; of a range ascending in M, with m_from and regret
  std::vector<Trial> trials;     // every candidate that was looked at; empty for a range
  std::vector<std::string> refusals;  // "family: why it does not take the problem"; of a range at its last M
  Quietness quietness;
  double noise_floor = 0;                   // Settled::noise_floor
  std::vector<std::string> ties;            // Settled::ties
  std::vector<KernelEnergy> energies;       // of finalists of a shape, where joules were measured
  std::string energy_reason;                // why joules are missing that were asked for
  std::vector<RoutingLoss> routing_losses;  // Settled::routing_losses
  std::string routing_reason;
  std::string instead_of;
  Objective chosen_by = Objective::time;  // what the row's kernel was chosen by
  std::string
      default_fault;  // of a row without a usable default: what is wrong with it, or why it has no time
  std::string doubt;  // Settled::doubt
  double seconds = 0;
  std::optional<RangeFigures> range{};

  /// The row of a shape; null for none.
  const TunedEntry* row() const { return rows.empty() ? nullptr : &rows.front(); }
};

struct RunSummary {
  std::vector<ItemReport>
      items;                  // shapes in the order of the request, or weights in the order of their first
  double seconds = 0;         // without those …
  double waited_seconds = 0;  // … in which a worker waited for another program that was timing
  double geometric_mean_speedup = 0;  // over rows with a baseline; 0: none
  std::int64_t candidates = 0;
  std::size_t confirmed = 0;  // rows with a confirmation pass
  std::size_t revised = 0;    // rows of these with another kernel after it
  double pass_deviation = 0;  // of a ratio between passes, select/confirmation.h
};

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

/// The environment of rows made by this request on this device: its hash (the `env` column) and the JSON
/// object behind it. The hash covers device, libraries, families and policy; the object holds observations
/// beside them (the date, and what the caller gives) and what speed-ups are against, which it does not cover.
struct RowEnvironment {
  std::string hash;
  std::string json;
};
/// Joules of a row's kernel and of its default, where both were measured.
struct RowEnergy {
  KernelEnergy kernel;
  std::optional<KernelEnergy> default_kernel;
};
/// What a mixture's kernel loses on routings that it was not tuned on.
struct RowRoutings {
  std::vector<RoutingLoss> losses;  // all of one kernel
  std::string instead_of;           // Settled::instead_of
};
/// The bit class of a row, and what it was seen on.
struct RowBits {
  std::string id;
  std::string evidence;
};
/// `energies`, `routings` and `bits`: by problem text.
RowEnvironment row_environment(const Device& device, const Policy& policy,
                               const std::map<std::string, double>& observations = {},
                               const std::map<std::string, RowEnergy>& energies = {},
                               const std::map<std::string, RowRoutings>& routings = {},
                               const std::map<std::string, RowBits>& bits = {});

}  // namespace gemmtune
