// What is shown to a person: lines and live ones on stderr, log lines through spdlog, tables on stdout.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune::cli {

/// Text for people on stdout, made printable() (base/text.h).
void print_text(std::string_view text);
/// CSV or JSON on stdout: byte for byte, but printable() where stdout is a terminal.
void print_document(std::string_view document);
/// An answer with --json (a document) or without (text).
void print_answer(bool json, std::string_view answer);
/// A line on stderr, made printable(), of a command without a Console.
void print_note(std::string_view text);
/// Warnings and errors of the log go to stderr while there is no Console.
void log_to_stderr();

/// How many columns a text takes on a terminal (code points; the texts here hold no wide characters).
std::size_t width(std::string_view text);
/// At most `columns` wide, with "…" in the middle where something was left out.
std::string shortened(std::string_view text, std::size_t columns);

bool stdout_is_terminal();
/// Columns of the terminal behind stdout, at most 120; 120 where there is none.
std::size_t stdout_columns();
/// Columns that a live line may have.
std::size_t live_columns();

/// stderr. Safe from any thread: log lines may come from any.
class Console {
 public:
  explicit Console(bool quiet);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool quiet() const { return quiet_; }
  /// True where lines may be rewritten: stderr is a terminal and nobody asked for quiet.
  bool is_live() const { return live_; }
  /// A line of its own, unless quiet.
  void line(std::string_view text);
  /// A line of its own, also when quiet: errors and warnings.
  void urgent_line(std::string_view text);
  /// Replaces the live line or lines; nothing where there are none.
  void live_line(std::string_view text);
  void live_lines(const std::vector<std::string>& lines);
  void clear_live_line();

 private:
  void write_line(std::string_view text);
  /// What takes the live lines away and leaves the cursor where they began.
  std::string erase_shown() const;

  std::mutex mutex_;
  bool quiet_;
  bool live_;
  std::vector<std::string> shown_;  // the live lines
};

/// From now on a usage_error() also writes {"command", "error", "exit_code"} to stdout: of a command line with --json.
void answer_errors_in_json();
/// "gemmtune COMMAND: text" on stderr (of an empty command "gemmtune: text"); answers exit_usage, for `return usage_error(…)`.
int usage_error(std::string_view command, std::string_view text);

/// Columns padded to their widest cell, two blanks between; numbers to the right.
class TextTable {
 public:
  struct Column {
    std::string title;
    bool right = false;
    bool may_shrink = false;  // shortened in the middle where the table is wider than allowed
    int drop = 0;             // above 0: left out where the table is too wide, the largest first
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Cells are made printable_word(): names from files stand in them.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// `columns`: the widest that it may be; 0: as wide as it is.
  std::string text(std::size_t columns) const;

 private:
  /// The columns that fit; without those that may be left out and are empty.
  std::vector<std::size_t> shown(std::size_t columns) const;
  std::size_t widest(std::size_t column) const;
  std::size_t min_width(std::size_t column) const;
  std::vector<std::size_t> widths(std::span<const std::size_t> shown, std::size_t columns) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "12.34 s", "3 min 5 s".
std::string duration(double seconds);
/// In capitals.
std::string upper(std::string_view word);
/// "1 shape", "2 shapes".
std::string counted(std::size_t count, std::string_view thing);

}  // namespace gemmtune::cli
