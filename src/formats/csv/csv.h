// A small CSV splitter that keeps the raw lines, so that a file can be rewritten without touching a byte of
// the rows that stay.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gemmtune {

inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// One line as it stands in the file.
struct CsvLine {
  std::size_t number = 0;  // 1-based
  std::string_view text;   // without its end
  std::string_view end;    // "\n", "\r\n", a lone "\r" or, for an unfinished last line, empty
};

/// A file and its lines. The views stay good while the document lives, moved or not.
struct CsvDocument {
  std::string source;
  std::unique_ptr<const std::string> content;
  std::vector<CsvLine> lines;
};

/// NUL bytes (UTF-16, binary files) and lines above max_line_bytes are errors that name source:line.
Result<CsvDocument> parse_csv(std::string source, std::string content);

/// The message for a line whose quotes do not match.
inline constexpr std::string_view unclosed_quote = "a quote without its end, expected comma-separated cells";

/// The cells of one line, blanks around them and quotes removed. Reused from line to line.
class CsvCells {
 public:
  /// False where a quote is not closed on its line or has text behind it; the cells are then useless.
  bool split(std::string_view line);
  std::size_t size() const { return cells_.size(); }
  /// An empty text for a cell that a short row does not have.
  std::string_view operator[](std::size_t index) const {
    return index < cells_.size() ? cells_[index] : std::string_view();
  }

 private:
  std::vector<std::string_view> cells_;
  std::deque<std::string> unescaped_;  // cells with doubled quotes
};

/// Blank, or a comment that begins with '#'.
bool is_blank_or_comment(std::string_view line);
/// Blank, a comment, or cells that are all empty (",,,"); `cells` is scratch.
bool is_blank_row(std::string_view line, CsvCells& cells);
/// The first line that is neither blank nor a comment, without a byte-order mark; empty where there is none.
std::string_view first_row(std::string_view content);
/// Index of the first line that is neither; lines.size() where there is none.
std::size_t header_line(const CsvDocument& document);
/// Without a byte-order mark.
std::string_view without_mark(std::string_view line);
/// `text` as a cell: quoted where it holds a comma, a quote, blanks at its ends, or begins like a comment; line
/// ends become blanks.
std::string csv_cell(std::string_view text);

/// One line of a CSV as its raw cells, so that single cells can be changed and the others keep every byte.
class RawRow {
 public:
  /// The line without its end; must outlive the row. Its quotes are matched (CsvCells::split was happy).
  explicit RawRow(std::string_view line);
  std::size_t size() const { return cells_.size(); }
  /// Blanks and quotes included; an empty text behind the last cell.
  std::string_view operator[](std::size_t index) const {
    return index < cells_.size() ? std::string_view(cells_[index]) : std::string_view();
  }
  /// Cells that a short row lacks are made empty.
  void set(std::size_t index, std::string_view text);
  std::string text() const;

 private:
  std::vector<std::string> cells_;
};

/// The cells of a CSV of another program by the names of its header, as they are spelled there.
class NamedCells {
 public:
  /// Of equal names the first counts.
  explicit NamedCells(const CsvCells& header) {
    for (std::size_t index = 0; index < header.size(); ++index)
      at_.try_emplace(std::string(header[index]), index);
  }
  bool has(std::string_view name) const { return at_.find(name) != at_.end(); }
  /// An empty text where the header or the row lacks it.
  std::string_view of(const CsvCells& row, std::string_view name) const {
    const auto at = at_.find(name);
    return at == at_.end() ? std::string_view() : row[at->second];
  }

 private:
  std::map<std::string, std::size_t, std::less<>> at_;
};

}  // namespace gemmtune
