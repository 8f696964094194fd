// The evaluator of online tuning, over one in a worker process or one in the process that serves: it never
// tries a candidate that is known to fail, and can be stopped between two samples. In the process that
// serves, a candidate leaves a trace that outlives a crash.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/forwarding_evaluator.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/journal/journal.h"

namespace gemmtune {

struct OnlineEvaluation {
  InProcessOptions in_process;    // where there is no worker
  std::string device_text;        // journal_device_text
  std::string policy_text;        // journal_policy_text
  std::set<std::string> trusted;  // kernel names that the service runs anyway: no trace, no question
  const std::atomic<bool>* stopping = nullptr;
};

/// Candidates whose latest outcome in `journal` or in one of `others` is a lasting failure fail again without
/// a try. In the process that serves, `journal` gets the outcome `crashed` for a candidate before its code
/// runs for the first time, which its true outcome replaces: where the process dies in between, no later
/// process tries it again. Of a worker it gets lasting failures alone.
///
/// Once `stopping` is set, every call answers an error before its next sample; nothing of the candidate in
/// hand is written down but that it did not crash.
class OnlineEvaluator final : public ForwardingEvaluator {
 public:
  /// In this process. All must outlive this.
  OnlineEvaluator(Device& device, Journal& journal, std::int64_t run, std::vector<Journal>& others,
                  const OnlineEvaluation& options);
  /// By `worker`, which measures in another process what `device` is here, and answers an error once `stopping` is set.
  OnlineEvaluator(Evaluator& worker, Device& device, Journal& journal, std::int64_t run,
                  std::vector<Journal>& others, const OnlineEvaluation& options);

  /// Never: the other cores are the service's.
  bool compiles_ahead() const override { return false; }
  void announce(const Problem&, std::span<const Candidate>) override {}
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  struct Trial {
    JournalStage stage;
    const Problem& problem;
    const Candidate& candidate;
  };

  OnlineEvaluator(std::unique_ptr<InProcessEvaluator> evaluator, Device& device, Journal& journal,
                  std::int64_t run, std::vector<Journal>& others, const OnlineEvaluation& options);
  bool is_isolated() const { return evaluator_ == nullptr; }
  JournaledOutcome record(const Trial& trial, Outcome outcome) const;
  std::string key_of(const Problem& problem, const Candidate& candidate) const;
  std::optional<Outcome> earlier_failure(const Problem& problem, const Candidate& candidate);
  bool stopped() const { return options_.stopping != nullptr && options_.stopping->load(); }
  bool is_new(const std::string& what, const Candidate& candidate);
  /// An error only where the trace cannot be written: then the candidate must not run.
  Status leave_trace(const Trial& trial);
  void write(const Trial& trial, const Outcome& outcome);

  Device& device_;
  Journal& journal_;
  std::int64_t run_;
  std::vector<Journal>& others_;
  OnlineEvaluation options_;
  std::unique_ptr<InProcessEvaluator> evaluator_;        // null: a worker
  std::set<std::pair<std::string, std::string>> tried_;  // what was done with which kernel
  std::map<std::string, Outcome> failed_;                // by kernel name: known before, or met here
};

}  // namespace gemmtune
