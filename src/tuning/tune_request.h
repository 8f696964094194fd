// What a run of the tuner is asked for.
#pragma once

#include <functional>
#include <optional>
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
#include "tuning/m_range.h"

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
  /// A run of some length also measures the device's compute roof (tuning/compute_roof.h), for reports.
  bool measures_compute_roof = false;
  /// All M of a weight take kernels of one bit class (tuning/invariant_group.h); evaluators must find bit classes.
  bool invariant = false;
  /// Of an invariant request: a sum is a tree of segments of k, so that ranks with N / 2, N / 4, … or K / 2, K / 4, … give the bits
  /// of the whole weight (docs/tensor_parallel.md).
  bool tensor_parallel = false;
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

}  // namespace gemmtune
