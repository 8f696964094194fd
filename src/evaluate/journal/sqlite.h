// SQLite with owners for its handles and Status for its codes; nothing else of gemmtune sees sqlite3.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gemmtune {

/// A prepared statement. Values are bound in the order of the calls; a reset forgets them.
class SqlStatement {
 public:
  SqlStatement& bind(std::string_view text);
  SqlStatement& bind(std::int64_t number);
  SqlStatement& bind(double number);  // NaN becomes NULL
  SqlStatement& bind_null();

  /// True: there is a row to read; false: there are no more rows.
  Result<bool> step();
  /// For statements without rows.
  Status run();

  std::string text(int column) const;
  std::int64_t integer(int column) const;
  double number(int column) const;
  bool is_null(int column) const;

 private:
  friend class SqlDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  SqlStatement(std::string path, sqlite3_stmt* statement) : path_(std::move(path)), handle_(statement) {}

  std::string path_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
  int bound_ = 0;
  int bind_error_ = 0;
};

/// One connection, for one thread. Errors name the file; a file that is no database or is damaged answers
/// `invalid_argument`, what the operating system refuses `io_error`.
class SqlDatabase {
 public:
  /// Makes the file where missing. A lock of another process is waited for, at most `busy_milliseconds`.
  static Result<SqlDatabase> open(const std::string& path, int busy_milliseconds = 30000);

  /// One or several statements without values.
  Status execute(const std::string& sql);
  Result<SqlStatement> prepare(std::string_view sql);
  /// The first column of the first row.
  Result<std::int64_t> integer(std::string_view sql);
  std::int64_t last_id() const;
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  SqlDatabase(std::string path, sqlite3* database) : path_(std::move(path)), handle_(database) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

/// Writes between begin() and commit() are all there or none; without a commit they are undone.
class SqlTransaction {
 public:
  static Result<SqlTransaction> begin(SqlDatabase& database);
  SqlTransaction(SqlTransaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  SqlTransaction& operator=(SqlTransaction&&) = delete;
  ~SqlTransaction();
  Status commit();

 private:
  explicit SqlTransaction(SqlDatabase& database) : database_(&database) {}
  SqlDatabase* database_;
};

}  // namespace gemmtune
