// The evaluator of online tuning: runs candidates in the process that serves, so it never tries one that is
// known to fail, leaves a trace that outlives a crash, and can be stopped between two samples.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/journal/journal.h"

namespace gemmtune {

struct OnlineEvaluation {
  InProcessOptions in_process;
  std::string device_text;        // journal_device_text
  std::string policy_text;        // journal_policy_text
  std::set<std::string> trusted;  // kernel names that the service runs anyway: no trace, no question
  const std::atomic<bool>* stopping = nullptr;
};

/// Before a candidate's code runs for the first time, `journal` gets the outcome `crashed` for it, which its
/// true outcome replaces: where the process dies in between, no later process tries it again. Candidates
/// whose latest outcome in `journal` or in one of `others` is a lasting failure fail again without a try.
///
/// Once `stopping` is set, every call answers an error before its next sample; nothing of the candidate in
/// hand is written down but that it did not crash.
class OnlineEvaluator final : public Evaluator {
 public:
  /// All must outlive this.
  OnlineEvaluator(Device& device, Journal& journal, std::int64_t run, std::vector<Journal>& others,
                  const OnlineEvaluation& options);

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> finals(const Problem& problem, std::span<const Candidate> candidates,
                              int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  struct Trial {
    JournalStage stage;
    const Problem& problem;
    const Candidate& candidate;
  };

  JournaledOutcome record(const Trial& trial, Outcome outcome) const;
  std::string key_of(const Problem& problem, const Candidate& candidate) const;
  std::optional<Outcome> earlier_failure(const Problem& problem, const Candidate& candidate);
  bool stopped() const { return options_.stopping != nullptr && options_.stopping->load(); }
  bool is_new(JournalStage stage, const Candidate& candidate);
  /// An error only where the trace cannot be written: then the candidate must not run.
  Status leave_trace(const Trial& trial);
  void write(const Trial& trial, const Outcome& outcome);

  Device& device_;
  Journal& journal_;
  std::int64_t run_;
  std::vector<Journal>& others_;
  OnlineEvaluation options_;
  InProcessEvaluator inner_;
  std::set<std::pair<JournalStage, std::string>> tried_;
  std::map<std::string, Outcome> failed_;  // by kernel name: known before, or met here
};

}  // namespace gemmtune
