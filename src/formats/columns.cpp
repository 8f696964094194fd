#include "formats/columns.h"

#include <optional>

#include "base/text.h"

namespace gemmtune {
namespace {

struct Row {
  Column column;
  std::string_view name;
  std::string_view older_name;
};

// One row a column, in the order of the enumeration.
constexpr std::array<Row, column_count> rows{{
    {Column::gfx, "gfx", {}},
    {Column::cu_num, "cu_num", {}},
    {Column::m, "M", {}},
    {Column::n, "N", {}},
    {Column::k, "K", {}},
    {Column::bias, "bias", {}},
    {Column::dtype, "dtype", {}},
    {Column::outdtype, "outdtype", {}},
    {Column::scale_ab, "scaleAB", {}},
    {Column::bpreshuffle, "bpreshuffle", {}},
    {Column::libtype, "libtype", {}},
    {Column::solidx, "solidx", {}},
    {Column::split_k, "splitK", {}},
    {Column::us, "us", "soltimes"},
    {Column::kernel_name, "kernelName", {}},
    {Column::err_ratio, "err_ratio", "errRatio"},
    {Column::tflops, "tflops", {}},
    {Column::bw, "bw", {}},
    {Column::spread, "spread", {}},
    {Column::default_us, "default_us", {}},
    {Column::default_kernel, "default_kernel", {}},
    {Column::speedup, "speedup", {}},
    {Column::verdict, "verdict", {}},
    {Column::m_from, "m_from", {}},
    {Column::regret, "regret", {}},
    {Column::pdl_kernel_name, "pdl_kernelName", {}},
    {Column::pdl_us, "pdl_us", {}},
    {Column::env, "env", {}},
    {Column::calls, "calls", {}},
    {Column::layer, "layer", {}},
}};

constexpr auto all_columns = [] {
  std::array<Column, column_count> columns{};
  for (std::size_t index = 0; index < column_count; ++index) columns[index] = rows[index].column;
  return columns;
}();

std::optional<Column> column_of(std::string_view name) {
  const std::string lowered = to_lower(name);
  for (const Row& row : rows) {
    if (lowered == to_lower(row.name)) return row.column;
    if (!row.older_name.empty() && lowered == to_lower(row.older_name)) return row.column;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Column column) { return rows[static_cast<std::size_t>(column)].name; }

std::span<const Column> aiter_columns() { return std::span(all_columns).subspan(0, 18); }
std::span<const Column> own_columns() { return std::span(all_columns).subspan(18, 10); }

Columns::Columns(const CsvCells& header) {
  position_.fill(absent);
  for (std::size_t index = 0; index < header.size(); ++index) {
    const auto column = column_of(header[index]);
    if (column && !has(*column)) {
      append(*column);
    } else {
      at_position_.push_back({});
    }
  }
}

const Column* Columns::known_at(std::size_t position) const {
  const Place& place = at_position_[position];
  return place.known ? &place.column : nullptr;
}

void Columns::append(Column column) {
  position_[static_cast<std::size_t>(column)] = static_cast<int>(at_position_.size());
  at_position_.push_back({true, column});
}

}  // namespace gemmtune
