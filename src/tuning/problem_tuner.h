// One problem from its candidates to a settled kernel in each weight layout.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "resolve/candidate_list.h"
#include "search/strategy.h"
#include "select/finals.h"
#include "tuning/item_report.h"
#include "tuning/tune_request.h"
#include "tuning/visit.h"

namespace gemmtune {

struct LayoutResult {
  WeightLayout layout = WeightLayout::plain;
  Settled settled;
  std::vector<Trial> screened{};  // its candidates before the finals
  std::string bits{};             // the class that `settled` was chosen in, of an invariant request
  /// The best programmatic dependent launch, where it was asked for and is faster than `settled`'s kernel;
  /// its default is that kernel.
  std::optional<Settled> dependent = std::nullopt;
};

/// What earlier visits of a problem found: a later one goes on from there.
struct TuningProgress {
  std::vector<Trial> screened;                                    // by the search
  std::map<WeightLayout, std::vector<Trial>> dependent_screened;  // by those of dependent launches
  std::vector<Candidate> winners;                        // of earlier finals: they take part in the next
  std::map<WeightLayout, std::optional<Settled>> safer;  // keep_safer()
};

struct ProblemResult {
  std::vector<LayoutResult> layouts;  // those with a winner, in the order in which candidates name them
  std::vector<Trial> trials;
  std::vector<std::string> refusals;
  ProblemState failure = ProblemState::failed;  // where no layout has a winner …
  std::string reason;                           // … and why
  VisitFigures figures;
};

/// Failures of finals replace what screening said of a candidate; new candidates are added.
void merge_trials(const std::vector<Trial>& finals, std::vector<Trial>& trials);

/// What is seen of a problem while it is tuned.
struct TuningWatch {
  std::function<void(const Trial&)> on_trial;  // of a candidate that was looked at for the first time
  std::function<void(const PairedRatio&)> on_ratio = {};
};

/// Which candidates a request wants.
inline CandidateFilter candidate_filter(const TuneRequest& request, bool dependent = false) {
  return {request.libtypes,        request.split_k, tries_whole_libraries(request.strategy),
          request.policy.accuracy, dependent,       &request.search_space,
          request.tensor_parallel};
}

/// `layout`: the only one that counts, where the weight's layout is decided; nullopt: every layout of the
/// candidates. `hints` go first in the search, in their order. `progress`: of earlier visits, and then of this
/// one too; null: there is one visit only. A visit that does not settle answers neither layouts nor a reason. Of an
/// invariant request the layouts are as screened, without finals: the whole group has these (invariant_group.h).
ProblemResult tune_problem(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                           const Problem& problem, std::optional<WeightLayout> layout,
                           const TuningVisit& visit, const TuningWatch& watch,
                           const std::vector<Candidate>& hints = {}, TuningProgress* progress = nullptr);

/// The row of a settled problem: numbers rounded to 4 decimals as AITER's tables hold them. Requires a
/// winner.
TunedEntry make_entry(const DeviceInfo& device, const Problem& problem, const Settled& settled,
                      const std::string& environment_hash, const Policy& policy);
/// The columns of the row's programmatic dependent launch. Requires a winner. It met the row's kernel in
/// rounds of their own, later and maybe at another clock: its time is the row's by their ratio in those.
void set_dependent(const Settled& dependent, TunedEntry& entry);

}  // namespace gemmtune
