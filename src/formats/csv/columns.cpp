#include "formats/csv/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/text.h"

namespace gemmtune {

Columns::Columns(const CsvCells& header, const Schema& schema) : schema_(&schema) {
  position_.fill(absent);
  // Of columns whose names differ in case or age only, the one that has today's name counts, else the first.
  for (const bool exact : {true, false}) {
    for (std::size_t index = 0; index < header.size(); ++index) {
      const auto column = schema.column_of(header[index]);
      if (!column || has(*column) || (exact && header[index] != schema.column_name(*column))) continue;
      position_[static_cast<std::size_t>(*column)] = static_cast<int>(index);
    }
  }
  for (std::size_t index = 0; index < header.size(); ++index) {
    const auto column = schema.column_of(header[index]);
    if (column && position_[static_cast<std::size_t>(*column)] == static_cast<int>(index)) {
      at_position_.push_back({true, *column, std::string(header[index])});
      continue;
    }
    at_position_.push_back({false, Column::gfx, std::string(header[index])});
    unknown_.push_back({index, std::string(header[index])});
    const bool further = std::ranges::any_of(
        schema.further_keys, [&](std::string_view key) { return key == to_lower(header[index]); });
    if (further) further_keys_.push_back(index);
  }
  std::unordered_map<std::string, int> seen;
  for (const Place& place : at_position_) {
    if (place.known) ++seen[place.name];
  }
  for (Unknown& column : unknown_) {
    if (column.name.empty()) column.name = fmt::format("Unnamed: {}", column.position);
    const int before = seen[column.name]++;
    if (before != 0) column.name += fmt::format(".{}", before);
  }
}

std::string_view Columns::name(Column column) const {
  const int at = position_[static_cast<std::size_t>(column)];
  return at == absent ? schema_->column_name(column) : at_position_[static_cast<std::size_t>(at)].name;
}

const Column* Columns::known_at(std::size_t position) const {
  const Place& place = at_position_[position];
  return place.known ? &place.column : nullptr;
}

void Columns::append(Column column) {
  position_[static_cast<std::size_t>(column)] = static_cast<int>(at_position_.size());
  at_position_.push_back({true, column, std::string(schema_->column_name(column))});
}

std::string Columns::further_key(const CsvCells& row) const {
  std::string text;
  for (const std::size_t position : further_keys_) {
    if (!text.empty()) text += ' ';
    text += at_position_[position].name;
    text += '=';
    text += row[position];
  }
  return text;
}

}  // namespace gemmtune
