// The journal and the recording of one `tune`: around its evaluator and its observer.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "cli/tune/profile_file.h"
#include "cli/tune/tune_options.h"
#include "evaluate/journal/journaled_evaluator.h"
#include "evaluate/replay/recording_evaluator.h"

namespace gemmtune::cli {

class TuneJournal {
 public:
  /// Opens or begins the journal beside the output (and the recording, where one was asked for), before
  /// anything is measured. `device` and `request` must outlive this.
  static Result<std::unique_ptr<TuneJournal>> open(const TuneOptions& options, const Outputs& outputs,
                                                   const Device& device, const TuneRequest& request);

  /// An unfinished run goes on.
  bool goes_on() const { return run_.goes_on; }
  /// `inner` with both around it; once an evaluator. Each has a connection of its own, so that several may
  /// measure at once; a recording takes one evaluator only. `inner` must outlive this.
  Result<Evaluator*> around(Evaluator& inner);
  /// `inner`, and decisions into the journal. A problem that ends here without trials (it was interrupted, or
  /// a killed process had published it) gets those that the journal has, so that a profile misses none.
  TuneObserver& around(TuneObserver& inner);
  /// What earlier runs on this device found good for a problem: kernel names, the best first.
  std::vector<std::string> earlier_winners(const Problem& problem);
  /// The end of the run; `summary` null: it ended in an error.
  void end(const TuneSummary* summary, bool interrupted);

 private:
  class Observer;

  TuneJournal(std::string path, Journal journal, RunStart run, const Device& device,
              const TuneRequest& request);

  const std::string path_;
  Journal journal_;
  RunStart run_;
  const Device& device_;
  const TuneRequest& request_;
  JournalOptions options_;
  std::optional<RecordingWriter> recording_;
  std::unique_ptr<RecordingEvaluator> recorder_;
  struct Journaled {
    Journal journal;
    std::unique_ptr<JournaledEvaluator> evaluator;
  };
  std::deque<Journaled> evaluators_;  // addresses stay
  std::unique_ptr<Observer> observer_;

 public:
  ~TuneJournal();
};

/// What is meant by "the same run": everything that decides which measurements a run asks for.
RunText run_text(const Device& device, const TuneRequest& request);

}  // namespace gemmtune::cli
