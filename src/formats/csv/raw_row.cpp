#include "formats/csv/raw_row.h"

#include "formats/csv/csv.h"

namespace gemmtune {

RawRow::RawRow(std::string_view line) {
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"') quoted = !quoted;
    if (line[at] != ',' || quoted) continue;
    cells_.emplace_back(line.substr(begin, at - begin));
    begin = at + 1;
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
