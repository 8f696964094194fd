// The journal: an SQLite file beside the tuned file that gets every outcome the moment it is known. A run
// that was killed is resumed from it, later runs read from it which candidates fail, and it keeps results for
// which the tuned file has no row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_lock.h"
#include "evaluate/evaluator.h"
#include "evaluate/journal/sqlite.h"

namespace gemmtune {

/// `<tuned file>.journal`: its name must not end in .csv (tables are found by that).
std::string journal_path(const std::string& tuned_file);

/// Identity of a run. Two commands with the same `request` are the same run.
struct RunText {
  std::string request;      // hash of shapes, device, families, search and policy
  std::string command;      // the same for people
  std::string policy;       // Policy::text()
  std::string environment;  // the env hash of its rows
  std::string device;       // "gfx cu_num model"
};

struct RunStart {
  std::int64_t id = 0;
  bool goes_on = false;  // an unfinished run was found
};

enum class JournalStage { screen, finals, neighbour };
std::string_view to_string(JournalStage stage);

/// The result of one call for one candidate.
struct JournaledOutcome {
  JournalStage stage = JournalStage::screen;
  std::int64_t m = 0;  // the problem's; the other M of a neighbour check
  std::string candidate;
  std::string source;  // Device::family_identity
  std::string key;     // outcome_key
  Outcome outcome;
};

struct JournaledFinals {
  std::vector<std::string> candidates;
  int rounds = 0;
  FinalsResult result;
};

/// What was published for a problem, or why nothing was.
struct JournaledDecision {
  std::string state;
  std::string reason;
  std::string kernel;
  std::optional<double> microseconds;
  std::optional<double> speedup;
  std::string verdict;
};

/// A candidate that was good in an earlier run, for this problem or for another M of its weight.
struct JournalHint {
  std::string candidate;
  std::int64_t m = 0;
  double relative = 0;  // its time over that run's reference: 0.8 is a fifth faster
};

struct FailureRecord {
  Outcome outcome;
  std::string at;  // when it failed
};

/// Of everything that decides whether a stored failure is today's: problem, device, candidate, the source and
/// flags of its kernel, policy.
std::string outcome_key(std::string_view problem, std::string_view device, std::string_view candidate,
                        std::string_view source, std::string_view policy);

/// One thread; any number of processes. Each write is one transaction, in the file when the call returns.
class Journal {
 public:
  /// As open_journal.
  static Result<Journal> open(const std::string& path);
  const std::string& path() const { return database_.path(); }

  /// Resumes the newest unfinished run of this request that no living process works on; begins one if there
  /// is none, or if `go_on` is false.
  Result<RunStart> begin_run(const RunText& text, bool go_on);
  /// `complete`: nothing is left to do for this request. A run without any problem is deleted.
  Status end_run(std::int64_t run, bool complete);

  /// The id of a problem of a run; made where missing.
  Result<std::int64_t> add_problem(std::int64_t run, const Problem& problem, const std::string& reference);
  Status add(std::int64_t problem, const JournaledOutcome& outcome);
  /// The call, and its failures as outcomes of their own, together.
  Status add(std::int64_t problem, const JournaledFinals& finals,
             const std::vector<JournaledOutcome>& failures);
  Status add(std::int64_t run, const Problem& problem, const JournaledDecision& decision);
  Status set_reference(std::int64_t problem, double microseconds);

  /// In the order in which they were written.
  Result<std::vector<JournaledOutcome>> outcomes(std::int64_t problem);
  Result<std::vector<JournaledFinals>> finals(std::int64_t problem);
  /// Outcomes of a problem that a run has not decided: one per candidate, its samples together, a failure of
  /// finals before the outcome of screening. Empty if the problem is decided or was never begun.
  Result<std::vector<JournaledOutcome>> undecided(std::int64_t run, const Problem& problem);
  /// The latest outcome of this key in other runs, where it is a failure that would come again.
  Result<std::optional<FailureRecord>> earlier_failure(const std::string& key, std::int64_t run);
  /// The best candidates of earlier runs on `device`: of this problem first, then of the nearest M. Leaves
  /// out run `but_of` (0: none), because its own measuring must not change its order when it is resumed.
  Result<std::vector<JournalHint>> hints(const std::string& device, const Problem& problem, std::size_t limit,
                                         std::int64_t but_of = 0);

 private:
  explicit Journal(SqlDatabase database) : database_(std::move(database)) {}
  Result<std::optional<std::int64_t>> unfinished_run(const std::string& request);
  Status insert(std::int64_t problem, const JournaledOutcome& outcome);

  SqlDatabase database_;
  std::optional<ByteLock> run_lock_;  // of the run that was begun
};

/// True of outcomes that an unchanged candidate would have again: crashed, timed_out, wrong, build_failed,
/// launch_failed.
bool is_lasting_failure(OutcomeKind kind);

}  // namespace gemmtune
