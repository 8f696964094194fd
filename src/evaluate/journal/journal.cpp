#include "evaluate/journal/journal.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"
#include "base/enumerators.h"
#include "base/hash.h"
#include "base/process.h"
#include "evaluate/journal/journal_schema.h"
#include "evaluate/outcome_json.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "measure/statistics.h"

namespace gemmtune {
namespace {

std::string any_m(const Problem& problem) {
  Problem first = problem;
  first.m = 1;
  return print(first);
}

std::vector<double> samples_of(const SqlStatement& row, int column) {
  const auto json = parse_json(row.text(column));
  return numbers_from_json(json).value_or(std::vector<double>());
}

JournalStage parse_stage(std::string_view text) {
  if (text == to_string(JournalStage::finals)) return JournalStage::finals;
  if (text == to_string(JournalStage::neighbour)) return JournalStage::neighbour;
  return JournalStage::screen;
}

/// Columns: kind, reason, err_ratio, deterministic, samples, errors.
Outcome read_outcome(const SqlStatement& row, int first) {
  Outcome outcome;
  outcome.kind = parse_outcome_kind(row.text(first)).value_or(OutcomeKind::refused);
  outcome.reason = row.text(first + 1);
  outcome.err_ratio = row.number(first + 2);
  outcome.deterministic = row.integer(first + 3) != 0;
  outcome.microseconds = samples_of(row, first + 4);
  const Json measured = parse_json(row.text(first + 5));
  outcome.error = error_from_json(measured);
  outcome.bits = bits_from_json(measured);
  return outcome;
}

}  // namespace

std::string journal_path(const std::string& tuned_file) { return tuned_file + ".journal"; }

constexpr EnumeratorNames<JournalStage, 3> stage_names({{JournalStage::screen, "screen"},
                                                        {JournalStage::finals, "finals"},
                                                        {JournalStage::neighbour, "neighbour"}});
std::string_view to_string(JournalStage stage) { return stage_names.of(stage); }

bool is_lasting_failure(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::build_failed:
    case OutcomeKind::launch_failed:
    case OutcomeKind::wrong:
    case OutcomeKind::timed_out:
    case OutcomeKind::crashed:
      return true;
    case OutcomeKind::ok:
    case OutcomeKind::refused:   // costs nothing to ask again
    case OutcomeKind::too_slow:  // against what was the fastest then
      return false;
  }
  return false;
}

std::string outcome_key(std::string_view problem, std::string_view device, std::string_view candidate,
                        std::string_view source, std::string_view policy) {
  return short_hash(fmt::format("{}\n{}\n{}\n{}\n{}", problem, device, candidate, source, policy), 16);
}

Result<Journal> Journal::open(const std::string& path) {
  GEMMTUNE_TRY(auto database, open_journal(path));
  return Journal(std::move(database));
}

Result<std::optional<std::int64_t>> Journal::unfinished_run(const std::string& request) {
  constexpr const char* query =
      "SELECT id, owner FROM runs WHERE request = ? AND finished IS NULL ORDER BY id DESC";
  GEMMTUNE_TRY(auto runs, database_.prepare(query));
  runs.bind(request);
  auto row = runs.step();
  for (; row.ok() && *row; row = runs.step()) {
    const std::string owner = runs.text(1);
    if (owner == process_identity() || !run_is_live(path(), runs.integer(0), owner))
      return std::optional(runs.integer(0));
  }
  if (!row.ok()) return row.status();
  return std::optional<std::int64_t>();
}

Result<RunStart> Journal::begin_run(const RunText& text, bool go_on) {
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(database_));
  RunStart start;
  if (go_on) {
    GEMMTUNE_TRY(const auto found, unfinished_run(text.request));
    start.goes_on = found.has_value();
    start.id = found.value_or(0);
  }
  GEMMTUNE_TRY(
      auto statement,
      database_.prepare(
          start.goes_on ? "UPDATE runs SET owner = ? WHERE id = ?"
                        : "INSERT INTO runs (owner, started, request, command, policy, environment, device) "
                          "VALUES (?, ?, ?, ?, ?, ?, ?)"));
  statement.bind(process_identity());
  if (start.goes_on) {
    statement.bind(start.id);
  } else {
    statement.bind(utc_text()).bind(text.request).bind(text.command).bind(text.policy);
    statement.bind(text.environment).bind(text.device);
  }
  GEMMTUNE_RETURN_IF_ERROR(statement.run());
  if (!start.goes_on) start.id = database_.last_id();
  // Where files cannot be locked the owner's identity alone says that it runs.
  run_lock_.reset();
  if (auto lock = ByteLock::take(run_lock_path(path()), static_cast<std::uint64_t>(start.id)); lock.ok())
    run_lock_ = std::move(*lock);
  GEMMTUNE_RETURN_IF_ERROR(transaction.commit());
  return start;
}

Status Journal::end_run(std::int64_t run, bool complete) {
  run_lock_.reset();
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(database_));
  constexpr const char* query =
      "DELETE FROM runs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM problems WHERE run = runs.id)";
  GEMMTUNE_TRY(auto forget, database_.prepare(query));
  GEMMTUNE_RETURN_IF_ERROR(forget.bind(run).run());
  GEMMTUNE_TRY(auto finish, database_.prepare("UPDATE runs SET owner = '', finished = ? WHERE id = ?"));
  if (complete) {
    finish.bind(utc_text());
  } else {
    finish.bind_null();
  }
  GEMMTUNE_RETURN_IF_ERROR(finish.bind(run).run());
  return transaction.commit();
}

Result<std::int64_t> Journal::add_problem(std::int64_t run, const Problem& problem,
                                          const std::string& reference) {
  const std::string text = print(problem);
  constexpr const char* query =
      "INSERT OR IGNORE INTO problems (run, problem, any_m, m, reference) VALUES (?, ?, ?, ?, ?)";
  GEMMTUNE_TRY(auto insert, database_.prepare(query));
  insert.bind(run).bind(text).bind(any_m(problem)).bind(problem.m).bind(reference);
  GEMMTUNE_RETURN_IF_ERROR(insert.run());
  GEMMTUNE_TRY(auto find, database_.prepare("SELECT id FROM problems WHERE run = ? AND problem = ?"));
  GEMMTUNE_TRY(const auto row, find.bind(run).bind(text).step());
  if (!row) return Status::not_found("{}: run {} is gone", path(), run);
  return find.integer(0);
}

Status Journal::insert(std::int64_t problem, const JournaledOutcome& record) {
  constexpr const char* query =
      "INSERT INTO outcomes (problem, stage, m, candidate, source, key, kind, reason, err_ratio, "
      "  deterministic, samples, at, errors) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
  GEMMTUNE_TRY(auto statement, database_.prepare(query));
  const Outcome& outcome = record.outcome;
  statement.bind(problem).bind(to_string(record.stage)).bind(record.m).bind(record.candidate);
  statement.bind(record.source).bind(record.key).bind(to_string(outcome.kind)).bind(outcome.reason);
  statement.bind(outcome.err_ratio).bind(std::int64_t{outcome.deterministic});
  statement.bind(json_line(to_json(outcome.microseconds))).bind(utc_text());
  Json measured = to_json(outcome.error);
  measured.update(to_json(outcome.bits));
  statement.bind(json_line(measured));
  return statement.run();
}

Status Journal::add(std::int64_t problem, const JournaledOutcome& outcome) {
  return insert(problem, outcome);  // a statement by itself is a transaction
}

Status Journal::add(std::int64_t problem, const JournaledFinals& finals,
                    const std::vector<JournaledOutcome>& failures) {
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(database_));
  constexpr const char* query =
      "INSERT INTO finals (problem, candidates, rounds, result, noise_floor, at) "
      "VALUES (?, ?, ?, ?, ?, ?)";
  GEMMTUNE_TRY(auto statement, database_.prepare(query));
  statement.bind(problem).bind(json_line(Json(finals.candidates))).bind(std::int64_t{finals.rounds});
  statement.bind(json_line(to_json(finals.result)))
      .bind(noise_floor(finals.result.same_ratios))
      .bind(utc_text());
  GEMMTUNE_RETURN_IF_ERROR(statement.run());
  for (const JournaledOutcome& failure : failures) GEMMTUNE_RETURN_IF_ERROR(insert(problem, failure));
  return transaction.commit();
}

Status Journal::add(std::int64_t run, const Problem& problem, const JournaledDecision& decision) {
  constexpr const char* query =
      "INSERT OR REPLACE INTO decisions (problem, state, reason, kernel, us, speedup, verdict, at) "
      "SELECT id, ?, ?, ?, ?, ?, ?, ? FROM problems WHERE run = ? AND problem = ?";
  GEMMTUNE_TRY(auto statement, database_.prepare(query));
  const double none = std::nan("");
  statement.bind(decision.state).bind(decision.reason).bind(decision.kernel);
  statement.bind(decision.microseconds.value_or(none)).bind(decision.speedup.value_or(none));
  statement.bind(decision.verdict).bind(utc_text()).bind(run).bind(print(problem));
  return statement.run();
}

Status Journal::set_reference(std::int64_t problem, double microseconds) {
  GEMMTUNE_TRY(auto statement, database_.prepare("UPDATE problems SET reference_us = ? WHERE id = ?"));
  return statement.bind(microseconds).bind(problem).run();
}

Result<std::vector<JournaledOutcome>> Journal::outcomes(std::int64_t problem) {
  constexpr const char* query =
      "SELECT stage, m, candidate, source, key, kind, reason, err_ratio, deterministic, samples, errors "
      "FROM outcomes WHERE problem = ? ORDER BY id";
  GEMMTUNE_TRY(auto rows, database_.prepare(query));
  std::vector<JournaledOutcome> outcomes;
  auto row = rows.bind(problem).step();
  for (; row.ok() && *row; row = rows.step()) {
    outcomes.push_back({parse_stage(rows.text(0)), rows.integer(1), rows.text(2), rows.text(3), rows.text(4),
                        read_outcome(rows, 5)});
  }
  if (!row.ok()) return row.status();
  return outcomes;
}

Result<std::vector<JournaledOutcome>> Journal::undecided(std::int64_t run, const Problem& problem) {
  constexpr const char* query =
      "SELECT id FROM problems "
      "WHERE run = ? AND problem = ? AND id NOT IN (SELECT problem FROM decisions)";
  GEMMTUNE_TRY(auto find, database_.prepare(query));
  GEMMTUNE_TRY(const auto row, find.bind(run).bind(print(problem)).step());
  if (!row) return std::vector<JournaledOutcome>();
  GEMMTUNE_TRY(auto all, outcomes(find.integer(0)));
  std::vector<JournaledOutcome> merged;
  std::map<std::string, std::size_t> places;
  for (JournaledOutcome& record : all) {
    if (record.stage == JournalStage::neighbour) continue;
    const auto [place, is_new] = places.try_emplace(record.candidate, merged.size());
    if (is_new) {
      merged.push_back(std::move(record));
      continue;
    }
    Outcome& known = merged[place->second].outcome;
    std::vector<double> samples = std::move(known.microseconds);
    samples.insert(samples.end(), record.outcome.microseconds.begin(), record.outcome.microseconds.end());
    record.outcome.error = worst_of(known.error, record.outcome.error);
    known = std::move(record.outcome);
    known.microseconds = std::move(samples);
  }
  return merged;
}

Result<std::vector<JournaledFinals>> Journal::finals(std::int64_t problem) {
  constexpr const char* query = "SELECT candidates, rounds, result FROM finals WHERE problem = ? ORDER BY id";
  GEMMTUNE_TRY(auto rows, database_.prepare(query));
  std::vector<JournaledFinals> all;
  auto row = rows.bind(problem).step();
  for (; row.ok() && *row; row = rows.step()) {
    auto candidates = texts_from_json(parse_json(rows.text(0)));
    auto result = finals_from_json(parse_json(rows.text(2)));
    if (!candidates || !result || result->outcomes.size() != candidates->size()) break;  // measured again
    all.push_back({std::move(*candidates), static_cast<int>(rows.integer(1)), std::move(*result)});
  }
  if (!row.ok()) return row.status();
  return all;
}

Result<std::optional<FailureRecord>> Journal::earlier_failure(const std::string& key, std::int64_t run) {
  constexpr const char* query =
      "SELECT kind, reason, err_ratio, deterministic, samples, errors, at FROM outcomes "
      "JOIN problems ON problems.id = outcomes.problem WHERE key = ? AND run <> ? "
      "ORDER BY outcomes.id DESC LIMIT 1";
  GEMMTUNE_TRY(auto rows, database_.prepare(query));
  GEMMTUNE_TRY(const auto row, rows.bind(key).bind(run).step());
  if (!row) return std::optional<FailureRecord>();
  FailureRecord record{read_outcome(rows, 0), rows.text(6)};
  if (!is_lasting_failure(record.outcome.kind)) return std::optional<FailureRecord>();
  return std::optional(std::move(record));
}

Result<std::vector<JournalHint>> Journal::hints(const std::string& device, const Problem& problem,
                                                std::size_t limit, std::int64_t but_of) {
  constexpr const char* query =
      "SELECT candidate, problems.m, reference_us, samples FROM outcomes "
      "JOIN problems ON problems.id = outcomes.problem JOIN runs ON runs.id = problems.run "
      "WHERE any_m = ? AND device = ? AND stage = 'screen' AND kind = 'ok' AND reference_us > 0 "
      "AND runs.id <> ?";
  GEMMTUNE_TRY(auto rows, database_.prepare(query));
  std::map<std::pair<std::int64_t, std::string>, std::vector<double>> relative;
  auto row = rows.bind(any_m(problem)).bind(device).bind(but_of).step();
  for (; row.ok() && *row; row = rows.step()) {
    for (const double sample : samples_of(rows, 3)) {
      relative[{rows.integer(1), rows.text(0)}].push_back(sample / rows.number(2));
    }
  }
  if (!row.ok()) return row.status();
  std::vector<JournalHint> hints;
  for (auto& [of, samples] : relative) hints.push_back({of.second, of.first, median(samples)});
  const auto distance = [&](const JournalHint& hint) {
    return std::abs(std::log(static_cast<double>(hint.m) / static_cast<double>(problem.m)));
  };
  std::ranges::stable_sort(hints, [&](const JournalHint& a, const JournalHint& b) {
    return distance(a) != distance(b) ? distance(a) < distance(b) : a.relative < b.relative;
  });
  if (hints.size() > limit) hints.resize(limit);
  return hints;
}

}  // namespace gemmtune
