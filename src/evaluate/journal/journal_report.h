// Reports of `gemmtune journal`: the runs of a journal and their outcomes; deletes old runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/evaluator.h"
#include "evaluate/journal/journal_schema.h"

namespace gemmtune {

struct JournalRunReport {
  std::int64_t id = 0;
  std::string started;
  std::string finished;  // empty: unfinished
  bool running = false;  // a living process works on it
  std::string device;
  std::string command;
  std::string policy;
  std::string environment;
  std::int64_t problems = 0;
  std::int64_t decided = 0;
  std::int64_t candidates = 0;  // of all problems
  std::int64_t failures = 0;    // outcomes other than ok
};

/// The oldest first.
Result<std::vector<JournalRunReport>> list_runs(SqlDatabase& journal);

/// One outcome with all that it belongs to.
struct JournalLine {
  std::int64_t run = 0;
  std::string at;
  std::string device;
  std::string environment;
  std::string problem;
  std::string stage;
  std::int64_t m = 0;
  std::string candidate;
  std::string source;
  std::string kind;
  std::string reason;
  double err_ratio = 0;
  MeasuredError error;
  BitClass bits;
  bool deterministic = true;
  std::optional<double> reference_us;  // of the problem in that run
  std::vector<double> samples;         // microseconds
};

/// Every outcome in the order in which they were written; those of finals hold the rounds' times.
Status for_each_outcome(SqlDatabase& journal, const std::function<void(const JournalLine&)>& on_line);

/// One call of finals: its paired rounds.
struct JournalRounds {
  std::int64_t run = 0;
  std::string at;
  std::string device;
  std::string problem;
  std::vector<std::string> candidates;
  FinalsResult result;
};
Status for_each_rounds(SqlDatabase& journal, const std::function<void(const JournalRounds&)>& on_rounds);

/// Deletes all but the newest `keep` runs, except a run that a living process works on. Returns how many.
Result<std::int64_t> prune_to(SqlDatabase& journal, std::int64_t keep);
/// Deletes the runs that began more than `days` ago.
Result<std::int64_t> prune_older(SqlDatabase& journal, double days);

}  // namespace gemmtune
