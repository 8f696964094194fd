#include "evaluate/journal/sqlite.h"

#include <sqlite3.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_path_bytes = 504;  // SQLite's 512 less "-journal"

Status sqlite_failure(const std::string& path, int code, const char* text) {
  const int primary = code & 0xff;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) return Status::invalid("{}: {}", path, text);
  return Status::io("{}: {}", path, text);
}

}  // namespace

void SqlStatement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

SqlStatement& SqlStatement::bind(std::string_view text) {
  bind_error_ |= sqlite3_bind_text(handle_.get(), ++bound_, text.data(), static_cast<int>(text.size()),
                                   SQLITE_TRANSIENT);
  return *this;
}

SqlStatement& SqlStatement::bind(std::int64_t number) {
  bind_error_ |= sqlite3_bind_int64(handle_.get(), ++bound_, number);
  return *this;
}

SqlStatement& SqlStatement::bind(double number) {
  if (std::isnan(number)) return bind_null();
  bind_error_ |= sqlite3_bind_double(handle_.get(), ++bound_, number);
  return *this;
}

SqlStatement& SqlStatement::bind_null() {
  bind_error_ |= sqlite3_bind_null(handle_.get(), ++bound_);
  return *this;
}

Result<bool> SqlStatement::step() {
  if (bind_error_ != SQLITE_OK) return Status::internal("{}: a value cannot be bound", path_);
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return sqlite_failure(path_, code, sqlite3_errmsg(sqlite3_db_handle(handle_.get())));
}

Status SqlStatement::run() { return step().status(); }

std::string SqlStatement::text(int column) const {
  const unsigned char* text = sqlite3_column_text(handle_.get(), column);
  if (text == nullptr) return {};
  return {reinterpret_cast<const char*>(text),
          static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column))};
}

std::int64_t SqlStatement::integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }

double SqlStatement::number(int column) const {
  return is_null(column) ? std::nan("") : sqlite3_column_double(handle_.get(), column);
}

bool SqlStatement::is_null(int column) const {
  return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL;
}

void SqlDatabase::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<SqlDatabase> SqlDatabase::open(const std::string& path, int busy_milliseconds) {
  std::error_code ignored;
  const std::size_t bytes = std::filesystem::absolute(resolve_links(path), ignored).string().size();
  if (bytes > max_path_bytes) {
    return Status::io("{}: the path has {} bytes, SQLite takes at most {}; use a shorter one", path, bytes,
                      max_path_bytes);
  }
  GEMMTUNE_RETURN_IF_ERROR(check_links(path));
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  SqlDatabase database(path, handle);
  if (handle == nullptr) return Status::out_of_memory("{}: no memory for SQLite", path);
  if (code != SQLITE_OK) return sqlite_failure(path, code, sqlite3_errmsg(handle));
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, busy_milliseconds);
  return database;
}

Status SqlDatabase::execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : sqlite_failure(path_, code, sqlite3_errmsg(handle_.get()));
}

Result<SqlStatement> SqlDatabase::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v2(handle_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return sqlite_failure(path_, code, sqlite3_errmsg(handle_.get()));
  return SqlStatement(path_, statement);
}

Result<std::int64_t> SqlDatabase::integer(std::string_view sql) {
  GEMMTUNE_TRY(auto statement, prepare(sql));
  GEMMTUNE_TRY(const auto row, statement.step());
  return row ? statement.integer(0) : 0;
}

std::int64_t SqlDatabase::last_id() const { return sqlite3_last_insert_rowid(handle_.get()); }

Result<SqlTransaction> SqlTransaction::begin(SqlDatabase& database) {
  // IMMEDIATE takes the write lock at once: a reader that becomes a writer later could be refused.
  GEMMTUNE_RETURN_IF_ERROR(database.execute("BEGIN IMMEDIATE"));
  return SqlTransaction(database);
}

SqlTransaction::~SqlTransaction() {
  if (database_ != nullptr) (void)database_->execute("ROLLBACK");
}

Status SqlTransaction::commit() {
  GEMMTUNE_RETURN_IF_ERROR(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace gemmtune
