// Where the header of one file has the columns of its table.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "formats/aiter/schema.h"
#include "formats/csv/csv.h"

namespace gemmtune {

/// Any order, any case, older names included; the first of two equal ones counts, unknown ones are kept
/// apart.
class Columns {
 public:
  static constexpr int absent = -1;

  Columns() { position_.fill(absent); }
  Columns(const CsvCells& header, const Schema& schema);

  const Schema& schema() const { return *schema_; }
  bool has(Column column) const { return position_[static_cast<std::size_t>(column)] != absent; }
  /// The cell of a row; an empty text where the header or the row lacks it.
  std::string_view cell(const CsvCells& row, Column column) const {
    const int at = position_[static_cast<std::size_t>(column)];
    return at == absent ? std::string_view() : row[static_cast<std::size_t>(at)];
  }
  /// As the header spells it, else as the table does.
  std::string_view name(Column column) const;
  /// The known column at a position, nullptr where the header's name there is not known.
  const Column* known_at(std::size_t position) const;
  /// The header's text at a position.
  const std::string& name_at(std::size_t position) const { return at_position_[position].name; }
  /// Cells in the header.
  std::size_t width() const { return at_position_.size(); }
  void append(Column column);
  /// A column that the table does not know. Its name is the header's; a name that is there already gets ".1",
  /// an empty one is "Unnamed: 3" (its position), as pandas does.
  struct Unknown {
    std::size_t position = 0;
    std::string name;
  };
  const std::vector<Unknown>& unknown() const { return unknown_; }
  /// "shared_expert_id=384 gate_mode=…": the cells of the table's further keys; empty where it has none.
  std::string further_key(const CsvCells& row) const;

 private:
  struct Place {
    bool known = false;
    Column column = Column::gfx;
    std::string name;
  };
  const Schema* schema_ = &schema_of(TableKind::bf16);
  std::array<int, column_count> position_{};
  std::vector<Place> at_position_;
  std::vector<std::size_t> further_keys_;  // positions
  std::vector<Unknown> unknown_;
};

}  // namespace gemmtune
