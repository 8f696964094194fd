// One `gemmtune tune`, from its options to an exit code.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/check_report.h"
#include "cli/shared/console.h"
#include "cli/tune/compare_rows.h"
#include "cli/tune/profile_file.h"
#include "cli/tune/time_breakdown.h"
#include "cli/tune/tune_buckets.h"
#include "cli/tune/tune_journal.h"
#include "cli/tune/tune_options.h"
#include "cli/tune/tune_shard.h"
#include "cli/tune/worker_activity.h"
#include "evaluate/replay/recording.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// What a run says at its end.
struct TuneAnswer {
  int code = 0;      // the exit code
  std::string text;  // for stdout, or a JSON document; empty: it is printed already
};

/// Tuning of shapes and of ranges of M, on devices, in this process or from a recording (--replay), and
/// --compare; they differ in the device, in the evaluators, and in what is reported at the end.
class TuneSession {
 public:
  /// The environment must outlive this; the options are checked.
  TuneSession(const TuneOptions& options, const Environment& environment)
      : options_(options), environment_(environment) {}

  /// An error is one of usage or input.
  Result<TuneAnswer> run();

 private:
  bool is_replay() const { return recording_.has_value(); }
  /// The run's clock: it stops while a worker waits for another program that is timing.
  double seconds() const { return steady_seconds() - waited_seconds_; }
  Device& device() const { return *devices_.front(); }
  Status open_devices();
  Status read_shapes();
  /// Of --shard: leaves the shapes of this part.
  Status take_shard();
  Result<TuneAnswer> list_shards();
  /// --dry-run: what would be tuned.
  Result<TuneAnswer> answer_dry_run();
  /// Outputs, request, profile and journal: everything that can be wrong before something is measured.
  Status prepare();
  Status prepare_profile();
  /// Diagnostics of the shapes, and what will be done.
  void announce();
  std::string opening_line() const;
  /// Of --compare in tune_gemm's mode.
  Result<std::vector<CheckedRow>> winners_checked(const RunSummary& summary);
  Status make_evaluators();
  Result<RunSummary> tune();
  /// --buckets, after the last shape, until the moment at which the budget cuts a run off.
  Result<BucketReport> decide_buckets();
  Result<TuneAnswer> report(const RunSummary& summary);

  TuneOptions options_;  // as given, with the folder of --keep
  const Environment& environment_;
  double begin_ = 0;  // of reading the shapes: the budget counts from here
  std::atomic<double> waited_seconds_{0};
  std::atomic<bool> decides_buckets_{
      false};  // they have a deadline of their own, which breaks no measurement off
  std::optional<Recording> recording_;
  std::vector<std::unique_ptr<Device>> devices_;
  ShapeList shapes_;
  std::optional<TuneShard> shard_;
  Outputs outputs_;
  std::optional<CandidateFile> candidate_file_;  // of --compare: what is tuned into
  TuneRequest request_;
  std::optional<ProfileFile> profile_;
  std::optional<Console> console_;
  std::unique_ptr<TuneJournal> journal_;
  TimeBreakdown time_breakdown_;
  WorkerActivities activities_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;
  std::vector<Evaluator*> measuring_;  // one a device: of evaluators_, or with the journal around it
};

}  // namespace gemmtune::cli
