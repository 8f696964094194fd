// An evaluator that writes the results of another one to the journal and returns the journal's where it has
// them. The unit of resuming is one screening sample, one whole call of finals, one check at another M.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/forwarding_evaluator.h"
#include "evaluate/journal/journal.h"

namespace gemmtune {

struct JournalOptions {
  std::int64_t run = 0;
  std::string policy;         // what a failure depends on beside its key: policy and tolerance
  std::string device;         // identity of the device, as RunText::device
  bool retry_failed = false;  // failures of earlier runs, and of this run before now, are tried again
};

/// Candidates of this run that were measured before this process began get their samples in the order in
/// which they were taken; if more are requested, only the missing ones are measured. Candidates that
/// failed in an earlier run under the same key fail again without a try. Times of earlier runs are not used.
///
/// The inner evaluator gets one candidate at a time, so that each outcome is in the journal before the next
/// candidate begins. If the journal cannot be written any more, the log says so once and measuring continues.
class JournaledEvaluator final : public ForwardingEvaluator {
 public:
  /// All must outlive this.
  JournaledEvaluator(Evaluator& inner, Journal& journal, const Device& device, JournalOptions options);

  void announce(const Problem& problem, std::span<const Candidate> candidates) override;
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  /// The next journaled call of this kind, these candidates and rounds, else the inner evaluator's.
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  /// What this run knew of a candidate before this process began.
  struct Past {
    std::vector<double> samples;
    std::size_t used = 0;  // of the samples
    Outcome latest;        // without samples
    bool asked_earlier_runs = false;
  };
  struct Bench {
    std::int64_t id = 0;  // of the problem in the journal; 0: it could not be written
    std::string reference;
    std::vector<double> reference_samples;
    std::map<std::string, Past> screened;
    std::map<std::pair<std::string, std::int64_t>, Outcome> neighbours;
    std::vector<JournaledFinals> finals;
    std::size_t finals_used = 0;
  };

  Bench& bench_of(const Problem& problem);
  void load(Bench& bench);
  std::optional<Outcome> from_past(Past& past, int samples);
  std::optional<Outcome> earlier_failure(const Problem& problem, const Candidate& candidate);
  std::string key_of(const Problem& problem, const Candidate& candidate) const;
  JournaledOutcome record(JournalStage stage, const Problem& problem, const Candidate& candidate,
                          Outcome outcome) const;
  void note_reference(Bench& bench, const Candidate& candidate, const std::vector<double>& samples);
  void written(const Status& status);

  Journal& journal_;
  const Device& device_;
  JournalOptions options_;
  std::map<std::string, Bench> benches_;  // by problem text
  bool writes_ = true;
};

}  // namespace gemmtune
