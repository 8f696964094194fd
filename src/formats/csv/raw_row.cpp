#include "formats/csv/raw_row.h"

#include "formats/csv/csv.h"

namespace gemmtune {

/// Cells as CsvCells::split() finds them: a quote within a cell that does not begin with one is a letter.
RawRow::RawRow(std::string_view line) {
  bool quoted = false;
  bool begins = true;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char letter = line[at];
    if (letter == ',' && !quoted) {
      cells_.emplace_back(line.substr(begin, at - begin));
      begin = at + 1;
      begins = true;
      continue;
    }
    if (letter == '"' && (begins || quoted)) {
      quoted = !quoted;
      begins = !quoted && at + 1 < line.size() && line[at + 1] == '"';  // a doubled one goes on
    } else if (letter != ' ' && letter != '\t') {
      begins = false;
    }
  }
  cells_.emplace_back(line.substr(begin));
}

void RawRow::set(std::size_t index, std::string_view text) {
  if (index >= cells_.size()) cells_.resize(index + 1);
  cells_[index] = csv_cell(text);
}

std::string RawRow::text() const {
  std::string text;
  for (std::size_t index = 0; index < cells_.size(); ++index) {
    if (index != 0) text += ',';
    text += cells_[index];
  }
  return text;
}

}  // namespace gemmtune
