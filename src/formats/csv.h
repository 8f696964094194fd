// A small CSV splitter that keeps the raw lines: other programs' rows must leave a file byte for byte as they
// came.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gemmtune {

inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

struct CsvLine {
  std::size_t number = 0;          // 1-based line of the file
  std::string raw;                 // without its line ending
  std::string ending;              // "\n", "\r\n" or nothing at the end of the file
  std::vector<std::string> cells;  // trimmed, quotes removed; empty for a blank line
  bool blank() const { return cells.empty(); }
};

/// A file as lines. content() gives back the bytes that were split, edits of `raw` included.
struct CsvFile {
  std::string path;
  bool byte_order_mark = false;
  std::string line_ending = "\n";  // of the first line: what added lines get
  std::vector<CsvLine> lines;      // blank ones included

  /// Index into `lines` of the first line that is not blank (the header); nullopt for an empty file.
  std::optional<std::size_t> header() const;
  std::string content() const;
};

/// Splits the text of `path` (named in errors only). NUL bytes, lines above 1 MiB and an unclosed quote are
/// errors with file:line.
Result<CsvFile> split_csv(const std::string& path, std::string_view text);
/// Cells of one line: separated by commas, blanks and tabs around them dropped, "…" with doubled quotes
/// inside.
std::vector<std::string> split_cells(std::string_view line);
/// The cell as it must stand in a line: quoted where it holds a comma, a quote or an end of line.
std::string csv_cell(std::string_view value);

/// The columns of a header by name; unknown names are kept for errors. Names are compared without case.
class CsvHeader {
 public:
  explicit CsvHeader(const std::vector<std::string>& names);
  /// The first of the given names that is there.
  std::optional<std::size_t> find(std::initializer_list<std::string_view> names) const;
  std::size_t size() const { return names_.size(); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;  // lower case
};

/// "file:line: column M: value 'x', expected a whole number of at least 1".
std::string complaint(const std::string& path, std::size_t line, std::string_view column,
                      std::string_view value, std::string_view expected);

}  // namespace gemmtune
