// The tuner: shapes in, tuned entries out. It knows the order of the steps and nothing else; every step is a
// part of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "evaluate/evaluator.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/shapes/shape_list.h"
#include "measure/policy.h"
#include "tuned/entry.h"
#include "tuning/budget.h"
#include "tuning/m_range.h"

namespace gemmtune {

struct TuneRequest {
  std::vector<ShapeRow> shapes;
  std::string output;  // tuned file, published after each problem; empty: nowhere
  PublishOptions publish;
  std::vector<std::string> libtypes;  // empty: all families (`reference` only where named)
  bool split_k = true;
  bool pdl = false;  // also looks for the best programmatic dependent launch
  double max_err_ratio = 0.05;
  Policy policy;
  std::string strategy = "staged";
  double budget_seconds = 0;            // 0: none
  bool all = false;                     // retune what the output already has
  bool stale = false;                   // retune rows whose env is not today's
  std::vector<std::string> also_read;   // further tuned files that count as done
  int shapes_at_once = 100;             // never more than this many are in the hands of evaluators
  SecondsClock clock = steady_seconds;  // of budgets and of the seconds that are reported
  /// Kernel names that were good for a problem, or for others like it, in earlier runs: the best first. They
  /// only decide what is tried first. May be empty; called by one thread at a time.
  std::function<std::vector<std::string>(const Problem&)> earlier_winners;
  /// Measurings of a winner: 1 the finals; 2 a confirmation pass too (select/confirmation.h), once all shapes
  /// are settled, of those whose finals ended at least `seconds_before_confirmation` ago; under a budget as
  /// far as time is left.
  int confirmations = 1;
  double seconds_before_confirmation = 30;
  std::optional<MRangeRequest> m_range{};  // of tune_m_ranges alone
};

/// 2 on a CPU, which has neighbours; 1 on a GPU, which is not shared while it is tuned.
int default_confirmations(const DeviceInfo& device);
/// Samples of 3 ms where neighbours take the memory for milliseconds; of 0.5 ms on a GPU, whose times differ
/// by less than 1 %.
Policy default_policy(const DeviceInfo& device);

enum class ProblemState { tuned, kept_default, skipped_done, unsupported, failed, out_of_budget };
std::string_view to_string(ProblemState state);

struct ProblemReport {
  ShapeRow shape;
  ProblemState state = ProblemState::failed;
  std::string reason;                 // for skipped_done, unsupported, failed, out_of_budget
  std::optional<TunedEntry> entry;    // for tuned and kept_default
  std::vector<Trial> trials;          // every candidate that was looked at, for --profile_file and --verbose
  std::vector<std::string> refusals;  // "family: why it does not take the problem"
  Quietness quietness;
  std::vector<std::string> ties;  // Settled::ties
  double seconds = 0;
};

struct TuneSummary {
  std::vector<ProblemReport> problems;  // in the order of the request
  double seconds = 0;
  double geometric_mean_speedup = 0;  // over rows with a baseline; 0: none
  std::int64_t candidates = 0;
  std::size_t confirmed = 0;  // rows with a confirmation pass
  std::size_t revised = 0;    // rows of these with another kernel after it
  double pass_deviation = 0;  // of a ratio between passes, select/confirmation.h
};

/// Called by one thread at a time; where several evaluators work, by each of their threads.
class TuneObserver {
 public:
  virtual ~TuneObserver() = default;
  /// Once, before all else: the shapes that will be tuned, by index into the request, by so many evaluators
  /// at once; the others are left out.
  virtual void run_started(std::span<const std::size_t> /*waiting*/, std::size_t /*evaluators*/) {}
  virtual void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) = 0;
  /// `index`: of the problem that it was tried for.
  virtual void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) = 0;
  virtual void problem_done(std::size_t index, const ProblemReport& report) = 0;
  /// A confirmation pass begins: number `done` of `count`, from 0.
  virtual void confirmation_started(std::size_t /*index*/, std::size_t /*done*/, std::size_t /*count*/) {}
  /// The confirmation pass changed the row of a problem that was done.
  virtual void problem_revised(std::size_t /*index*/, const ProblemReport& /*report*/) {}
};

/// Tunes every shape of the request on `device` through `evaluator`. Problems of one pre-shuffled weight (N,
/// K, types) share one layout, chosen over all their M weighted by calls. An error is one that stops the run
/// (the output cannot be written …); failed shapes are in the summary.
Result<TuneSummary> tune(Device& device, Evaluator& evaluator, const TuneRequest& request,
                         TuneObserver& observer);

/// The same with several evaluators, one thread each, of devices that are equal to `device` in gfx and
/// cu_num. Shapes of one layout group stay with one evaluator; publishing and observing happen here.
Result<TuneSummary> tune(Device& device, std::span<Evaluator* const> evaluators, const TuneRequest& request,
                         TuneObserver& observer);

/// The environment of rows made by this request on this device: its hash (the `env` column) and the JSON
/// object behind it. The hash covers device, libraries, families and policy; the object holds observations
/// beside them (the date, and what the caller gives), which it does not cover.
struct RowEnvironment {
  std::string hash;
  std::string json;
};
RowEnvironment row_environment(const Device& device, const Policy& policy,
                               const std::map<std::string, double>& observations = {});

}  // namespace gemmtune
