#include "evaluate/journal/journal_report.h"

#include <algorithm>

#include "base/clock.h"
#include "evaluate/outcome_json.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace gemmtune {
namespace {

struct StoredRun {
  std::int64_t id = 0;
  std::string started;
  bool running = false;
};

Result<std::vector<StoredRun>> runs_newest_first(SqlDatabase& journal) {
  GEMMTUNE_TRY(auto rows, journal.prepare("SELECT id, started, owner FROM runs ORDER BY id DESC"));
  std::vector<StoredRun> runs;
  auto row = rows.step();
  for (; row.ok() && *row; row = rows.step())
    runs.push_back(
        {rows.integer(0), rows.text(1), run_is_live(journal.path(), rows.integer(0), rows.text(2))});
  if (!row.ok()) return row.status();
  return runs;
}

Result<std::int64_t> forget(SqlDatabase& journal, const std::vector<StoredRun>& runs) {
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(journal));
  std::int64_t gone = 0;
  for (const StoredRun& run : runs) {
    if (run.running) continue;
    GEMMTUNE_TRY(auto remove, journal.prepare("DELETE FROM runs WHERE id = ?"));
    GEMMTUNE_RETURN_IF_ERROR(remove.bind(run.id).run());
    ++gone;
  }
  GEMMTUNE_RETURN_IF_ERROR(transaction.commit());
  GEMMTUNE_RETURN_IF_ERROR(journal.execute("VACUUM"));
  return gone;
}

/// Of one finals call: a line a candidate with its times of all rounds.
void finals_lines(const JournalLine& call, const std::vector<std::string>& candidates,
                  const FinalsResult& result, const std::function<void(const JournalLine&)>& on_line) {
  for (std::size_t i = 0; i < candidates.size() && i < result.outcomes.size(); ++i) {
    JournalLine line = call;
    line.candidate = candidates[i];
    line.kind = to_string(result.outcomes[i].kind);
    line.reason = result.outcomes[i].reason;
    line.err_ratio = result.outcomes[i].err_ratio;
    line.error = result.outcomes[i].error;
    line.bits = result.outcomes[i].bits;
    line.deterministic = result.outcomes[i].deterministic;
    line.samples = result.outcomes[i].microseconds;
    on_line(line);
  }
}

/// Columns 0 … 6: run, at, device, environment, problem, m, reference_us.
JournalLine line_of(const SqlStatement& row) {
  JournalLine line;
  line.run = row.integer(0);
  line.at = row.text(1);
  line.device = row.text(2);
  line.environment = row.text(3);
  line.problem = row.text(4);
  line.m = row.integer(5);
  if (!row.is_null(6)) line.reference_us = row.number(6);
  return line;
}

/// Of each call what all its lines share, its candidates and its result.
Status for_each_finals(
    SqlDatabase& journal,
    const std::function<void(JournalLine&, std::vector<std::string>&, FinalsResult&)>& on_call) {
  constexpr const char* query =
      "SELECT run, finals.at, device, environment, problems.problem, m, reference_us, candidates, result "
      "FROM finals JOIN problems ON problems.id = finals.problem JOIN runs ON runs.id = run "
      "ORDER BY finals.id";
  GEMMTUNE_TRY(auto rows, journal.prepare(query));
  auto row = rows.step();
  for (; row.ok() && *row; row = rows.step()) {
    JournalLine line = line_of(rows);
    line.stage = "finals";
    auto candidates = texts_from_json(parse_json(rows.text(7)));
    auto result = finals_from_json(parse_json(rows.text(8)));
    if (result && result->routing) line.stage = fmt::format("finals_on_{}", to_string(*result->routing));
    if (candidates && result) on_call(line, *candidates, *result);
  }
  return row.status();
}

}  // namespace

Result<std::vector<JournalRunReport>> list_runs(SqlDatabase& journal) {
  constexpr const char* query =
      "SELECT id, started, finished, owner, device, command, policy, environment, "
      "(SELECT count(*) FROM problems WHERE run = runs.id), "
      "(SELECT count(*) FROM decisions JOIN problems ON problems.id = decisions.problem WHERE run = "
      "runs.id), "
      "(SELECT count(DISTINCT outcomes.problem || ' ' || candidate) FROM outcomes "
      "   JOIN problems ON problems.id = outcomes.problem WHERE run = runs.id), "
      "(SELECT count(*) FROM outcomes JOIN problems ON problems.id = outcomes.problem "
      "   WHERE run = runs.id AND kind <> 'ok') FROM runs ORDER BY id";
  GEMMTUNE_TRY(auto rows, journal.prepare(query));
  std::vector<JournalRunReport> runs;
  auto row = rows.step();
  for (; row.ok() && *row; row = rows.step()) {
    JournalRunReport run;
    run.id = rows.integer(0);
    run.started = rows.text(1);
    run.finished = rows.text(2);
    run.running = run_is_live(journal.path(), run.id, rows.text(3));
    run.device = rows.text(4);
    run.command = rows.text(5);
    run.policy = rows.text(6);
    run.environment = rows.text(7);
    run.problems = rows.integer(8);
    run.decided = rows.integer(9);
    run.candidates = rows.integer(10);
    run.failures = rows.integer(11);
    runs.push_back(std::move(run));
  }
  if (!row.ok()) return row.status();
  return runs;
}

Status for_each_outcome(SqlDatabase& journal, const std::function<void(const JournalLine&)>& on_line) {
  // Failures of finals are among the outcomes too, for later runs; they are reported with their finals.
  constexpr const char* query =
      "SELECT run, outcomes.at, device, environment, problems.problem, outcomes.m, reference_us, "
      "  stage, candidate, source, kind, reason, err_ratio, deterministic, samples, errors "
      "FROM outcomes JOIN problems ON problems.id = outcomes.problem JOIN runs ON runs.id = run "
      "WHERE stage <> 'finals' ORDER BY outcomes.id";
  GEMMTUNE_TRY(auto rows, journal.prepare(query));
  auto row = rows.step();
  for (; row.ok() && *row; row = rows.step()) {
    JournalLine line = line_of(rows);
    line.stage = rows.text(7);
    line.candidate = rows.text(8);
    line.source = rows.text(9);
    line.kind = rows.text(10);
    line.reason = rows.text(11);
    line.err_ratio = rows.number(12);
    line.deterministic = rows.integer(13) != 0;
    line.samples = numbers_from_json(parse_json(rows.text(14))).value_or(std::vector<double>());
    if (!rows.is_null(15)) {
      const Json measured = parse_json(rows.text(15));
      line.error = error_from_json(measured);
      line.bits = bits_from_json(measured);
    }
    on_line(line);
  }
  GEMMTUNE_RETURN_IF_ERROR(row.status());
  return for_each_finals(
      journal, [&](const JournalLine& call, const std::vector<std::string>& candidates,
                   const FinalsResult& result) { finals_lines(call, candidates, result, on_line); });
}

Status for_each_rounds(SqlDatabase& journal, const std::function<void(const JournalRounds&)>& on_rounds) {
  return for_each_finals(journal,
                         [&](JournalLine& call, std::vector<std::string>& candidates, FinalsResult& result) {
                           on_rounds({call.run, std::move(call.at), std::move(call.device),
                                      std::move(call.problem), std::move(candidates), std::move(result)});
                         });
}

Result<std::int64_t> prune_to(SqlDatabase& journal, std::int64_t keep) {
  GEMMTUNE_TRY(auto runs, runs_newest_first(journal));
  const auto kept = std::min<std::int64_t>(keep, static_cast<std::int64_t>(runs.size()));
  runs.erase(runs.begin(), runs.begin() + kept);
  return forget(journal, runs);
}

Result<std::int64_t> prune_older(SqlDatabase& journal, double days) {
  GEMMTUNE_TRY(auto runs, runs_newest_first(journal));
  const std::string limit = utc_text_before(days * 24 * 3600);
  std::erase_if(runs, [&](const StoredRun& run) { return run.started >= limit; });
  return forget(journal, runs);
}

}  // namespace gemmtune
