// Context: a device, the tuned files of a process and the plans made from them. What users open first.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/silu_and_mul.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"
#include "dispatch/capture.h"
#include "dispatch/counters.h"
#include "dispatch/miss_handler.h"
#include "dispatch/plan.h"
#include "dispatch/plan_cache.h"
#include "dispatch/workspace_pool.h"
#include "resolve/online_rows.h"
#include "resolve/table_set.h"

namespace gemmtune {

/// What is set here wins over the environment.
struct ContextOptions {
  std::string config_folder;
  TunedFileLists tuned_files;  // each replaces its operation's default list
  std::string backend;         // empty: "auto"
  std::string device;
  int threads = 0;
  bool strict_environment = false;
  bool own_threads_only = false;  // rows of fewer threads do not answer
  bool log_config = false;
  bool verify_untuned = false;  // the first run of each plan that no row answered (UntunedGuard)
  bool capture = false;
  std::string capture_folder;  // empty: the environment's, else the config folder
  HostParallelFor parallel_for;
  LogSink log = nullptr;
  void* log_context = nullptr;
};

/// All members are safe from any thread.
class Context {
 public:
  /// Reads the environment, opens the device, reads the tuned files.
  static Result<std::unique_ptr<Context>> open(const ContextOptions& options);
  /// On a device that is open already.
  Context(const ContextOptions& options, const Environment& environment, std::unique_ptr<Device> device);
  ~Context();

  /// The plan of a problem (m = 0 is legal), from the cache where it is known. A cached answer allocates
  /// nothing. `stream`: where it will run, as far as the caller knows; a problem that no row answers is
  /// reported to the miss handler unless the stream is being captured.
  /// `promises`: what a row's programmatic dependent launch needs; without them its plain kernel runs.
  Result<PlanRef> plan(const Problem& problem, Stream stream = {}, LaunchPromises promises = {});
  /// The same if a row answers that was measured at this M; empty, and no kernel is made, if none does. Both answers are
  /// cached.
  Result<PlanRef> tuned_plan(const Problem& problem, Stream stream = {}, LaunchPromises promises = {});
  /// plan() from the cache alone; none if the plan would have to be made.
  PlanRef cached_plan(const Problem& problem, LaunchPromises promises = {});
  /// The plan of a problem on a kernel that the caller names (make_named_plan()). Made anew each time; counts as no answer.
  Result<PlanRef> named_plan(std::string_view kernel, const Problem& problem, LaunchPromises promises,
                             bool verify);
  /// y = silu(gate) · up on a GPU's `stream`, on a CPU (null) on the device's threads or the host's. Requires a checked call.
  Status silu_and_mul(const SiluAndMul& call, Stream stream) const;
  /// Reads the tuned files again. Where one is there but cannot be read, the old rows stay and the error is
  /// returned.
  Status reload();

  /// Writes what capture has not written yet; ok where capture is off.
  Status flush_capture();

  /// Handler called for problems that no row answers; null for none. The previous one is destroyed once no
  /// thread runs it. `file` (where given) replaces the online file and is read.
  void set_miss_handler(std::shared_ptr<MissHandler> handler, std::optional<OnlineFile> file);
  /// Reads the online file again (nothing where there is none): problems that no row answered and that it has
  /// now are planned anew, all other plans stay. An error where it is there but cannot be read; the old rows
  /// then stay.
  Status reload_online();
  OnlineTuning online_tuning() const { return environment_.online_tuning; }
  /// What the switch means for this context's config folder. Requires that it is not off.
  OnlineFile default_online_file(OnlineTuning switched_by) const;
  const std::string& module_folder() const { return environment_.module_folder; }
  /// A line for this context's log and the process's.
  void say(LogLevel level, std::string_view line) const;
  /// Rows of another environment do not answer.
  bool is_strict() const { return options_.strict_environment; }

  Device& device() const { return *device_->device; }
  /// The tables of this moment; they stay readable as long as they are held.
  std::shared_ptr<const TableSet> tables() const;
  /// The rows of online tuning, likewise; null: there is no online file.
  std::shared_ptr<const TableSet> online_rows() const;
  /// The shipped rows of this device, read by the first call, which no other table answered; no rows if they are off.
  const TableSet& shipped_tables() const;
  CounterValues counters() const { return counters_.read(); }
  WorkspacePool& workspaces() const { return *workspaces_; }

 private:
  Result<PlanRef> make(const PlanKey& key);
  void count(const Plan& plan);
  void count_unanswered(const Problem& problem, int rows_passed_over);
  /// Online tuning and capture, said once, if the user has no home to keep their files in.
  void leave_out_what_needs_a_config_folder();
  void start_capture();
  TableSet read_tables() const;
  void log_tables(const TableSet& tables) const;
  /// Online rows and shipped tables: no user named these files.
  void log_rows_of_ours(const TableSet& rows) const;
  /// Files that are not used. Those that nobody named wait until their operation is asked for.
  void warn_of_sources(const TableSet& tables);
  void warn_of_sources(OperationForm operation);  // those that waited
  /// For the process's log once, whichever context says it.
  void warn_once(const std::string& line) const;
  void log_plan(const Plan& plan);
  void log_look_up(const Plan& plan);
  /// The tuned files of an operation, colon-separated.
  std::string asked_files(OperationForm operation) const;
  Result<PlanRef> report_miss(PlanRef plan, Stream stream, PlanKey key);
  Miss miss_of(const Plan& plan) const;

  ContextOptions options_;
  Environment environment_;
  std::shared_ptr<const DispatchDevice> device_;
  std::shared_ptr<WorkspacePool> workspaces_;
  mutable std::mutex tables_mutex_;  // of tables_, online_… and generation_ together, and of the handler
  std::shared_ptr<const TableSet> tables_;
  mutable std::once_flag shipped_flag_;
  mutable std::shared_ptr<const TableSet> shipped_;  // shipped_tables() reads it
  std::mutex online_reading_mutex_;                  // what was read later is swapped in later
  std::optional<OnlineFile> online_file_;
  std::shared_ptr<const TableSet> online_;
  std::shared_ptr<MissHandler> miss_handler_;
  std::atomic<bool> reports_misses_{false};
  std::atomic<std::uint64_t> generation_{0};
  PlanCache cache_;
  Counters counters_;
  std::mutex planning_mutex_;  // one kernel is made at a time; and of the next five
  std::set<std::string> environments_said_;
  std::set<std::string> passed_said_;       // files
  std::set<std::string> triton_only_said_;  // files
  std::set<std::string> look_ups_said_;
  std::multimap<OperationForm, std::string> waiting_warnings_;
  std::shared_ptr<CaptureRecorder> capture_;  // speaks through say(); null: off
};

/// The tuned files that a context with these options reads.
std::vector<TablePath> context_table_paths(const ContextOptions& options, const Environment& environment);

}  // namespace gemmtune
