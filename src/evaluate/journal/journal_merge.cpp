#include "evaluate/journal/journal_merge.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/temporary_file.h"
#include "evaluate/journal/journal_schema.h"

namespace gemmtune {
namespace {

constexpr const char* run_columns = "started, finished, request, command, policy, environment, device";
constexpr const char* outcome_columns =
    "stage, m, candidate, source, key, kind, reason, err_ratio, deterministic, samples, at, errors";
constexpr const char* finals_columns = "candidates, rounds, result, noise_floor, at";
constexpr const char* decision_columns = "state, reason, kernel, us, speedup, verdict, at";

/// A run or a problem of the input, and its place in the output.
using Id = std::int64_t;

/// `added` is the input, attached to the output's connection.
class JournalMerge {
 public:
  explicit JournalMerge(SqlDatabase& journal) : journal_(journal) {}
  Result<JournalMergeReport> run();

 private:
  Result<std::vector<Id>> ids(const std::string& query, std::initializer_list<Id> values);
  Result<Id> number(const std::string& query, std::initializer_list<Id> values);
  Status execute(const std::string& statement, std::initializer_list<Id> values);
  /// The output's run that takes this one's problems: of the same request, and without a problem that both measured.
  Result<std::optional<Id>> partner_of(Id run);
  /// The output's record of the same measuring of a problem; nullopt: none, or of another measuring.
  Result<std::optional<Id>> twin_of(Id problem, Id run);
  Status add_run(Id run);
  Status add_problem(Id problem, Id run);

  SqlDatabase& journal_;
  JournalMergeReport report_;
};

Result<std::vector<Id>> JournalMerge::ids(const std::string& query, std::initializer_list<Id> values) {
  GEMMTUNE_TRY(auto rows, journal_.prepare(query));
  for (const Id value : values) rows.bind(value);
  std::vector<Id> found;
  auto row = rows.step();
  for (; row.ok() && *row; row = rows.step()) found.push_back(rows.integer(0));
  if (!row.ok()) return row.status();
  return found;
}

Result<Id> JournalMerge::number(const std::string& query, std::initializer_list<Id> values) {
  GEMMTUNE_TRY(auto found, ids(query, values));
  return found.empty() ? 0 : found.front();
}

Status JournalMerge::execute(const std::string& statement, std::initializer_list<Id> values) {
  GEMMTUNE_TRY(auto prepared, journal_.prepare(statement));
  for (const Id value : values) prepared.bind(value);
  return prepared.run();
}

/// Its first result is the input's first result: the same process measured it.
Result<std::optional<Id>> JournalMerge::twin_of(Id problem, Id run) {
  constexpr const char* query =
      "SELECT mine.id FROM main.problems AS mine, added.problems AS theirs "
      "WHERE theirs.id = ? AND mine.run = ? AND mine.problem = theirs.problem AND "
      "(NOT EXISTS (SELECT 1 FROM added.outcomes WHERE problem = theirs.id) "
      " OR NOT EXISTS (SELECT 1 FROM main.outcomes WHERE problem = mine.id) "
      " OR EXISTS (SELECT 1 FROM main.outcomes AS a, added.outcomes AS b "
      "   WHERE a.id = (SELECT min(id) FROM main.outcomes WHERE problem = mine.id) "
      "     AND b.id = (SELECT min(id) FROM added.outcomes WHERE problem = theirs.id) "
      "     AND a.candidate = b.candidate AND a.at = b.at AND a.stage = b.stage AND a.samples = b.samples))";
  GEMMTUNE_TRY(const auto found, ids(query, {problem, run}));
  return found.empty() ? std::optional<Id>() : std::optional(found.front());
}

Result<std::optional<Id>> JournalMerge::partner_of(Id run) {
  constexpr const char* query =
      "SELECT mine.id FROM main.runs AS mine, added.runs AS theirs WHERE theirs.id = ? "
      "AND mine.request = theirs.request AND mine.environment = theirs.environment "
      "AND mine.policy = theirs.policy AND mine.device = theirs.device ORDER BY mine.id";
  GEMMTUNE_TRY(const auto candidates, ids(query, {run}));
  for (const Id candidate : candidates) {
    constexpr const char* in_both =
        "SELECT theirs.id FROM added.problems AS theirs "
        "JOIN main.problems AS mine ON mine.problem = theirs.problem "
        "WHERE theirs.run = ? AND mine.run = ?";
    GEMMTUNE_TRY(const auto shared, ids(in_both, {run, candidate}));
    bool fits = true;
    for (const Id problem : shared) {
      GEMMTUNE_TRY(const auto twin, twin_of(problem, candidate));
      fits = fits && twin.has_value();
    }
    if (fits) return std::optional(candidate);
  }
  return std::optional<Id>();
}

Status JournalMerge::add_problem(Id problem, Id run) {
  GEMMTUNE_TRY(const auto twin, twin_of(problem, run));
  if (twin) {
    const std::string results =
        "SELECT (SELECT count(*) FROM {0}.outcomes WHERE problem = ?) + (SELECT count(*) FROM {0}.finals "
        "WHERE problem "
        "= ?) + (SELECT count(*) FROM {0}.decisions WHERE problem = ?)";
    const auto mine = number(fmt::format(fmt::runtime(results), "main"), {*twin, *twin, *twin});
    const auto theirs = number(fmt::format(fmt::runtime(results), "added"), {problem, problem, problem});
    for (const Status& status : {mine.status(), theirs.status()}) GEMMTUNE_RETURN_IF_ERROR(status);
    if (*mine >= *theirs) {
      ++report_.known;
      return {};
    }
    GEMMTUNE_RETURN_IF_ERROR(execute("DELETE FROM main.problems WHERE id = ?", {*twin}));
  }
  GEMMTUNE_RETURN_IF_ERROR(
      execute("INSERT INTO main.problems (run, problem, any_m, m, reference, reference_us) "
              "SELECT ?, problem, any_m, m, reference, reference_us FROM added.problems WHERE id = ?",
              {run, problem}));
  const Id own = journal_.last_id();
  for (const auto& [table, columns] :
       {std::pair{"outcomes", outcome_columns}, std::pair{"finals", finals_columns}}) {
    GEMMTUNE_RETURN_IF_ERROR(execute(
        fmt::format(
            "INSERT INTO main.{0} (problem, {1}) SELECT ?, {1} FROM added.{0} WHERE problem = ? ORDER BY id",
            table, columns),
        {own, problem}));
  }
  GEMMTUNE_RETURN_IF_ERROR(execute(
      fmt::format(
          "INSERT INTO main.decisions (problem, {0}) SELECT ?, {0} FROM added.decisions WHERE problem = ?",
          decision_columns),
      {own, problem}));
  ++report_.problems;
  return {};
}

Status JournalMerge::add_run(Id run) {
  GEMMTUNE_TRY(auto partner, partner_of(run));
  if (partner) {
    GEMMTUNE_TRY(auto owner, journal_.prepare("SELECT owner FROM main.runs WHERE id = ?"));
    GEMMTUNE_TRY(const auto row, owner.bind(*partner).step());
    if (row && run_is_live(journal_.path(), *partner, owner.text(0)))
      return Status::unsupported("{}: a running tune works on run {}; merge once it has ended",
                                 journal_.path(), *partner);
    // As early as the first, and unfinished as long as one of them is.
    GEMMTUNE_RETURN_IF_ERROR(
        execute("UPDATE main.runs SET (started, finished) = (SELECT min(theirs.started, main.runs.started), "
                "CASE WHEN theirs.finished IS NULL OR main.runs.finished IS NULL THEN NULL "
                "ELSE max(theirs.finished, main.runs.finished) END FROM added.runs AS theirs WHERE theirs.id "
                "= ?) WHERE id = ?",
                {run, *partner}));
  } else {
    GEMMTUNE_RETURN_IF_ERROR(
        execute(fmt::format("INSERT INTO main.runs ({0}, owner) SELECT {0}, '' FROM added.runs "
                            "WHERE id = ?",
                            run_columns),
                {run}));
    partner = journal_.last_id();
  }
  GEMMTUNE_TRY(const auto problems, ids("SELECT id FROM added.problems WHERE run = ? ORDER BY id", {run}));
  for (const Id problem : problems) GEMMTUNE_RETURN_IF_ERROR(add_problem(problem, *partner));
  return {};
}

Result<JournalMergeReport> JournalMerge::run() {
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(journal_));
  GEMMTUNE_TRY(const auto runs, ids("SELECT id FROM added.runs ORDER BY id", {}));
  for (const Id run : runs) GEMMTUNE_RETURN_IF_ERROR(add_run(run));
  GEMMTUNE_RETURN_IF_ERROR(transaction.commit());
  return report_;
}

}  // namespace

Result<JournalMergeReport> merge_journal(const std::string& output, const std::string& input) {
  // Opened once by itself: it becomes of today's version, and what is damaged is said with its name.
  if (const auto whole = open_existing_journal(input); !whole.ok()) return whole.status();
  GEMMTUNE_TRY(auto journal, open_journal(output));
  GEMMTUNE_TRY(auto attach, journal.prepare("ATTACH DATABASE ? AS added"));
  GEMMTUNE_RETURN_IF_ERROR(attach.bind(input).run());
  return JournalMerge(journal).run();
}

Status copy_journal(const std::string& from, const std::string& to) {
  // SQLite writes beside the original: the disk of the copy may have no locks.
  const auto local = TemporaryFile::beside(from);
  if (!local.ok()) return Status::io("{}: {}", from, local.message());
  {
    GEMMTUNE_TRY(auto journal, open_existing_journal(from));
    GEMMTUNE_TRY(auto vacuum, journal.prepare("VACUUM INTO ?"));
    GEMMTUNE_RETURN_IF_ERROR(vacuum.bind(local->path()).run());
  }
  auto arriving = TemporaryFile::beside(to);
  if (!arriving.ok()) return Status::io("{}: cannot be copied to {}: {}", from, to, arriving.message());
  std::error_code error;
  std::filesystem::copy_file(local->path(), arriving->path(),
                             std::filesystem::copy_options::overwrite_existing, error);
  if (!error && !arriving->replace(to)) error = std::error_code(errno, std::generic_category());
  return error ? Status::io("{}: cannot be copied to {}: {}", from, to, error.message()) : Status();
}

}  // namespace gemmtune
