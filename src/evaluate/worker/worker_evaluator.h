// The evaluator that measures in a worker process. A kernel that crashes, hangs, exhausts the memory or
// ends the process costs that one candidate: the worker is replaced, the device is probed, and the run
// continues.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/backend.h"
#include "backends/traits.h"
#include "base/file_lock.h"
#include "evaluate/evaluator.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/worker/worker_process.h"

namespace gemmtune {

struct WorkerOptions {
  WorkerLaunch launch;
  std::string backend = "auto";
  DeviceRequest device;
  InProcessOptions evaluation;  // of the evaluator in the worker; on_step is not used
  /// No step of a worker may take longer: infinity for no limit.
  double timeout_seconds = 1800;
  /// A candidate may take `deadline_factor` times what the problem's candidates took so far, at least this.
  double min_deadline_seconds = 5;
  double deadline_factor = 20;
  /// The run's device. Its default kernel may take default_patience times that long: without its time a row has no speed-up.
  /// Null: no kernel is the default. Must outlive the evaluator.
  const Device* device_of_run = nullptr;
  /// What a worker may hold. 0: half of what is free when it starts, of which the pools take half.
  std::size_t memory_limit_bytes = 0;
  /// Called while the worker is busy; if it returns true, the request fails with `unsupported: interrupted`.
  std::function<bool()> cancelled;
  /// The same where the time of the run is over: it also ends checks at another M, which `cancelled` lets finish.
  std::function<bool()> is_spent = {};
  /// Seconds in which the worker waited for another program that was timing, as they pass.
  std::function<void(double seconds)> on_waited = {};
};

/// Starts its worker at the first request. One thread at a time.
class WorkerEvaluator final : public Evaluator {
 public:
  explicit WorkerEvaluator(WorkerOptions options);
  ~WorkerEvaluator() override;

  /// Starts the worker now, where there is none: an error says why there can be none.
  Status start();
  bool compiles_ahead() const override { return traits_of(options_.backend).compiles_ahead; }
  /// Sends the announcement to the worker in parts, as screening proceeds. If a worker is lost, the rest is
  /// not announced to the next one: if the compiler ended it, the next one fails while that candidate is
  /// built.
  void announce(const Problem& problem, std::span<const Candidate> candidates) override;
  /// A candidate that cost a worker is not tried again by this evaluator: it keeps its outcome.
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  /// Where a worker dies, the finals begin again without the candidate that was running.
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

  /// The worker's process, another one after a loss; 0 while there is none.
  pid_t worker() const { return process_ ? process_->pid() : 0; }
  /// Of all threads of its workers, in requests that were answered.
  double processor_seconds() const { return processor_seconds_; }

 private:
  /// A worker that did not answer, and why.
  struct Loss {
    std::optional<std::size_t> candidate;  // of the request's, that was running
    Outcome outcome;                       // that it would have
    bool killed_from_outside = false;      // by another process
    bool may_try_again = false;            // external cause: the request had not begun, or another process
                                           // killed the worker
  };
  using Answer = std::variant<WorkerReply, Loss>;
  class Watch;

  Status start_worker();
  bool is_cancelled() const { return options_.cancelled && options_.cancelled(); }
  /// Of the worker that runs. An error: the request as a whole failed there, or was cancelled.
  Result<Answer> ask(const WorkerRequest& request);
  /// Starts a worker if there is none, and repeats the request if a loss had an external cause or no
  /// candidate was running. A loss that it returns names a candidate.
  Result<Answer> ask_stubbornly(const WorkerRequest& request);
  /// `killed_for`: why it must be killed; empty where it ended by itself.
  Loss lose(const Watch& watch, std::optional<Outcome> killed_for);
  /// For requests of one candidate; `key` is its place among the lost ones.
  Result<WorkerReply> ask_of_one(const WorkerRequest& request, const std::string& key);
  void learn(const Problem& problem, const WorkerReply& reply);
  /// Counts a wait for another program's timing lock, and says for whom the worker waits, once; it has no log of its own.
  void note_wait(const WorkerState& state);
  void count_wait(double seconds);
  /// Before `candidate` is screened: announces the next ones, where that is due.
  void announce_from(const Candidate& candidate);

  WorkerOptions options_;
  std::unique_ptr<WorkerProcess> process_;
  std::uint32_t requests_ = 0;  // of this worker
  std::size_t memory_limit_ = 0;
  double processor_seconds_ = 0;
  double waited_ = 0;                    // for other programs that were timing
  double waited_in_request_ = 0;         // … during this request, as far as on_waited knows
  std::optional<double> waits_since_;    // steady_seconds() up to which the current wait was counted
  std::set<std::string> named_holders_;  // for whom a wait was logged
  bool had_worker_ = false;              // that opened the device
  std::map<std::string, Outcome> lost_;  // by problem and kernel name
  Problem announced_problem_;
  std::vector<Candidate> announced_;
  std::size_t sent_ = 0;  // number of announced candidates that the worker has
  std::string learnt_problem_;
  double learnt_seconds_ = 0;  // sum over
  int learnt_count_ = 0;       // … so many candidates of that problem
};

}  // namespace gemmtune
