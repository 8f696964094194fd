// The journal and the recording of one `tune`.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "cli/tune/profile_file.h"
#include "cli/tune/tune_options.h"
#include "evaluate/journal/journaled_evaluator.h"
#include "evaluate/replay/recording_evaluator.h"

namespace gemmtune::cli {

/// As an observer it writes decisions down: a profile must have the trials of a problem before, so it comes
/// last in the list of observers.
class TuneJournal final : public RunObserver {
 public:
  /// Opens or begins the journal beside the output (and the recording, where one was asked for), before
  /// anything is measured. `device` and `request` must outlive this; the request gets what the journal knows.
  static Result<std::unique_ptr<TuneJournal>> open(const TuneOptions& options, const Outputs& outputs,
                                                   const Device& device, TuneRequest& request,
                                                   std::span<const ShapeRow> all_shapes);

  /// An unfinished run goes on.
  bool goes_on() const { return run_.goes_on; }
  /// `inner` with both around it; once an evaluator. Each has a connection of its own, so that several may
  /// measure at once; a recording takes one evaluator only. `inner` must outlive this.
  Result<Evaluator*> around(Evaluator& inner);
  /// The end of the run; `summary` null: it ended in an error.
  void end(const RunSummary* summary, bool interrupted);

  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t index, const ItemReport& report) override;
  void problem_revised(std::size_t index, const ItemReport& report) override;

 private:
  TuneJournal(const Outputs& outputs, Journal journal, RunStart run, const Device& device,
              const TuneRequest& request);

  std::vector<std::string> earlier_winners(const Problem& problem);
  /// A problem that ends in this process without trials (it was interrupted, or a killed process had
  /// published it) gets those that the journal has.
  std::vector<Trial> unreported_trials(const Problem& problem);

  /// Removed, once it is no journal's any more, if the journal was copied beside the output.
  struct LocalJournal {
    std::string path;
    std::string made_folder;  // removed too if nothing else is in it; empty: none
    bool is_copied = false;
    ~LocalJournal();
  };

  LocalJournal local_;  // first: the connections go before it
  const std::string path_;
  const std::string copy_path_;  // beside the output; the same unless --journal names a folder
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
};

/// What is meant by "the same run": everything that decides which measurements a run asks for. The options'
/// part is identity_text() of the option table.
/// `all_shapes`: the whole list where the request has one shard of it, so that all shards are one run.
RunText run_text(const Device& device, const TuneRequest& request, std::span<const ShapeRow> all_shapes);

}  // namespace gemmtune::cli
