// One line of a CSV as its raw cells, so that single cells can be changed and the others keep every byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune {

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

}  // namespace gemmtune
