// What is wrong with single rows: file:line, column, value, and what was expected. What a conversion could not carry.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gemmtune {

/// "file:line: column M: value '-3', expected a whole number of at least 1"
std::string diagnostic(const std::string& source, std::size_t line, std::string_view column,
                       std::string_view value, std::string_view expected);

/// "file:12: text" as its line and text; line 0 (and all of the text) where it begins otherwise.
std::pair<std::size_t, std::string_view> split_diagnostic(std::string_view diagnostic,
                                                          std::string_view source);

class Diagnostics {
 public:
  /// More than this are counted, not kept: a file that is no table at all would fill the memory.
  static constexpr std::size_t kept_at_most = 1000;

  explicit Diagnostics(std::string source) : source_(std::move(source)) {}
  /// As diagnostic().
  void cell(std::size_t line, std::string_view column, std::string_view value, std::string_view expected);
  /// "file:line: text"
  void row(std::size_t line, std::string_view text);
  std::size_t count() const { return count_; }
  /// All of them, with a last one that counts how many were not kept.
  std::vector<std::string> take();

 private:
  void add(std::string text);

  std::string source_;
  std::vector<std::string> texts_;
  std::size_t count_ = 0;
};

enum class LeftOutKind { row, column, key };
std::string_view to_string(LeftOutKind kind);

/// What no writer takes: a row, the cells of one column in `count` rows, or a key of a file that has no rows.
struct LeftOut {
  LeftOutKind kind = LeftOutKind::row;
  std::string name;       // of a column or key
  std::size_t line = 0;   // 1-based; 0: of the whole file
  std::size_t count = 1;  // rows whose cell is left out; 1 for rows and keys
  std::string why;
  std::string source = {};  // of which file, where several were read
};

/// "source:12: why", "source: column us: 3 rows: why", "source:4: key any: why"
std::string describe(const std::string& source, const LeftOut& item);

/// "2 rows, 1 column left out"; empty where there is nothing.
std::string summary_of(const std::vector<LeftOut>& items);

}  // namespace gemmtune
