#include "evaluate/journal/journal_schema.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/byte_lock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/process.h"

namespace gemmtune {
namespace {

constexpr std::int64_t application_id = 0x67656d74;  // "gemt": identifies our files

// Rows of outcomes and finals are only added: the result of one call of an evaluator for one candidate
// (outcomes) or for all of them (finals). The order of a problem's rows is the order of their ids.
constexpr const char* schema = R"(
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  started TEXT NOT NULL,
  finished TEXT,             -- NULL: unfinished, may be resumed
  request TEXT NOT NULL,     -- hash of the request: the same request resumes the run
  command TEXT NOT NULL,     -- the same as text
  policy TEXT NOT NULL,
  environment TEXT NOT NULL, -- the env hash of its rows
  device TEXT NOT NULL,
  owner TEXT NOT NULL        -- the process that works on it
);
CREATE TABLE problems (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  problem TEXT NOT NULL,
  any_m TEXT NOT NULL,       -- the problem with M = 1: problems of one weight
  m INTEGER NOT NULL,
  reference TEXT NOT NULL,   -- the kernel that every run measures: times of two runs are compared by it
  reference_us REAL,         -- NULL until it was measured
  UNIQUE (run, problem)
);
CREATE TABLE outcomes (
  id INTEGER PRIMARY KEY,
  problem INTEGER NOT NULL REFERENCES problems(id) ON DELETE CASCADE,
  stage TEXT NOT NULL,       -- screen, finals, neighbour
  m INTEGER NOT NULL,        -- the problem's, or the neighbour's
  candidate TEXT NOT NULL,
  source TEXT NOT NULL,      -- identity of its family: source and flags, or the library's version
  key TEXT NOT NULL,         -- hash of problem, device, candidate, source, policy
  kind TEXT NOT NULL,
  reason TEXT NOT NULL,
  err_ratio REAL,
  deterministic INTEGER NOT NULL,
  samples TEXT NOT NULL,     -- JSON, microseconds
  at TEXT NOT NULL,
  errors TEXT                -- JSON: those that were measured, and the bit class; NULL before version 3
);
CREATE INDEX outcomes_by_key ON outcomes (key);
CREATE INDEX outcomes_by_problem ON outcomes (problem);
CREATE TABLE finals (
  id INTEGER PRIMARY KEY,
  problem INTEGER NOT NULL REFERENCES problems(id) ON DELETE CASCADE,
  candidates TEXT NOT NULL,  -- JSON: kernel names
  rounds INTEGER NOT NULL,
  result TEXT NOT NULL,      -- JSON: outcomes, times (rounds x candidates), A against A
  noise_floor REAL,
  at TEXT NOT NULL
);
CREATE INDEX finals_by_problem ON finals (problem);
CREATE TABLE decisions (
  problem INTEGER PRIMARY KEY REFERENCES problems(id) ON DELETE CASCADE,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  kernel TEXT NOT NULL,
  us REAL,
  speedup REAL,
  verdict TEXT NOT NULL,
  at TEXT NOT NULL
);
CREATE INDEX problems_by_weight ON problems (any_m);
)";

/// WAL with synchronous=NORMAL: a commit is in the operating system's hands when it returns, so that no kill
/// of the process loses it. Only a loss of power may lose the latest commits; the file stays whole.
constexpr const char* connection_settings =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;";

Status check_version(SqlDatabase& database, bool& empty) {
  GEMMTUNE_TRY(const auto tables, database.integer("SELECT count(*) FROM sqlite_master"));
  empty = tables == 0;
  if (empty) return {};
  GEMMTUNE_TRY(const auto id, database.integer("PRAGMA application_id"));
  if (id != application_id) {
    return Status::unsupported("{}: is another program's SQLite file, expected a journal of gemmtune",
                               database.path());
  }
  GEMMTUNE_TRY(const auto version, database.integer("PRAGMA user_version"));
  if (version <= journal_version) return {};
  return Status::unsupported(
      "{}: is of journal version {}, this gemmtune knows up to {}; use the newer one, or move the file away",
      database.path(), version, journal_version);
}

Status check_whole(SqlDatabase& database) {
  GEMMTUNE_TRY(auto check, database.prepare("PRAGMA quick_check(1)"));
  GEMMTUNE_TRY(const auto row, check.step());
  if (row && check.text(0) == "ok") return {};
  return Status::invalid("{}: damaged: {}", database.path(), row ? check.text(0) : "no answer");
}

Status make_tables(SqlDatabase& database) {
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(database));
  bool empty = true;  // another process may have been faster
  GEMMTUNE_RETURN_IF_ERROR(check_version(database, empty));
  if (!empty) return {};
  GEMMTUNE_RETURN_IF_ERROR(database.execute(schema));
  GEMMTUNE_RETURN_IF_ERROR(database.execute(
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={}", application_id, journal_version)));
  return transaction.commit();
}

/// What a version lacks to be the next one.
constexpr const char* migrations[] = {
    "ALTER TABLE problems RENAME COLUMN canary TO reference;"
    "ALTER TABLE problems RENAME COLUMN canary_us TO reference_us;",
    "ALTER TABLE outcomes ADD COLUMN errors TEXT;",
};
static_assert(std::size(migrations) == journal_version - 1);

Status migrate(SqlDatabase& database) {
  constexpr const char* query = "PRAGMA user_version";
  auto version = database.integer(query);
  if (!version.ok() || *version == journal_version) return version.status();
  GEMMTUNE_TRY(auto transaction, SqlTransaction::begin(database));
  version = database.integer(query);  // another process may have been faster
  if (!version.ok()) return version.status();
  for (std::int64_t from = std::max<std::int64_t>(1, *version); from < journal_version; ++from) {
    GEMMTUNE_RETURN_IF_ERROR(database.execute(migrations[from - 1]));
  }
  GEMMTUNE_RETURN_IF_ERROR(database.execute(fmt::format("PRAGMA user_version={}", journal_version)));
  return transaction.commit();
}

/// A database of ours, whole and of a known version; `invalid_argument`: damaged.
Result<SqlDatabase> open_whole(const std::string& path) {
  GEMMTUNE_TRY(auto database, SqlDatabase::open(path));
  bool empty = true;
  GEMMTUNE_RETURN_IF_ERROR(check_version(database, empty));
  GEMMTUNE_RETURN_IF_ERROR(check_whole(database));
  GEMMTUNE_RETURN_IF_ERROR(database.execute(connection_settings));
  GEMMTUNE_RETURN_IF_ERROR(empty ? make_tables(database) : migrate(database));
  return database;
}

Status move_aside(const std::string& path) {
  const std::string damaged = path + ".damaged";
  if (std::rename(path.c_str(), damaged.c_str()) != 0) {
    return Status::io("{}: is damaged and cannot be moved to {}: {}", path, damaged, std::strerror(errno));
  }
  // What belongs to the damaged file must not be taken for the new one's.
  for (const char* ending : {"-wal", "-shm"}) {
    if (file_exists(path + ending)) std::rename((path + ending).c_str(), (damaged + ending).c_str());
  }
  return {};
}

bool is_damage(const Status& status) { return status.code() == StatusCode::invalid_argument; }

Status as_journal_error(const Status& status) {
  return {status.code(), fmt::format("the journal of measurements: {}", status.message())};
}

Result<SqlDatabase> open_or_replace(const std::string& path) {
  // One process at a time: the first one makes the tables, or moves a damaged file; the others find the new
  // one.
  GEMMTUNE_TRY(const auto lock, FileLock::acquire(path + ".lock"));
  auto database = open_whole(path);
  if (database.ok() || !is_damage(database.status())) return database;
  log(LogLevel::warning, "{}; moved to {}.damaged, a new journal is begun", database.message(), path);
  GEMMTUNE_RETURN_IF_ERROR(move_aside(path));
  return open_whole(path);
}

}  // namespace

Result<SqlDatabase> open_journal(const std::string& path) {
  auto database = open_or_replace(path);
  if (!database.ok()) return as_journal_error(database.status());
  return database;
}

std::string run_lock_path(const std::string& journal) { return journal + ".runs"; }

bool run_is_live(const std::string& journal, std::int64_t id, const std::string& owner) {
  if (owner.empty()) return false;  // it gave the run back
  return process_runs(owner) || ByteLock::is_held(run_lock_path(journal), static_cast<std::uint64_t>(id));
}

Result<SqlDatabase> open_existing_journal(const std::string& path) {
  if (!file_exists(path)) return Status::not_found("{}: no such file", path);
  // SQLite takes an empty file for a database without tables, and would make them in it.
  std::error_code error;
  if (std::filesystem::is_empty(path, error) && !std::filesystem::is_directory(path, error)) {
    return Status::invalid("{}: empty, expected a journal of gemmtune", path);
  }
  GEMMTUNE_TRY(auto database, open_whole(path));
  return database;
}

}  // namespace gemmtune
