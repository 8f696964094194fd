#include <utility>

#include "formats/aiter/merge_tables.h"
#include "formats/aiter/tuned_row.h"
#include "formats/csv/csv.h"
#include "tuned/compress.h"

namespace gemmtune {
namespace {

/// The header with columns for what a range has beside a plain row.
struct RangeColumns {
  std::string header;
  std::size_t m_from = 0;
  std::size_t regret = 0;
};

RangeColumns range_columns(const TunedFile& file) {
  RangeColumns range;
  range.header = file.document.lines[file.header].text;
  std::size_t width = file.columns.width();
  const auto place_of = [&](Column column) {
    for (std::size_t position = 0; position < file.columns.width(); ++position) {
      const Column* known = file.columns.known_at(position);
      if (known != nullptr && *known == column) return position;
    }
    range.header += "," + std::string(file.schema().column_name(column));
    return width++;
  };
  range.m_from = place_of(Column::m_from);
  range.regret = place_of(Column::regret);
  return range;
}

std::string row_with_range(std::string_view line, const RangeColumns& columns, std::int64_t m_from) {
  RawRow row(line);
  row.set(columns.m_from, std::to_string(m_from));
  row.set(columns.regret, "0.0");  // one winner for all of it: nothing is lost at a tuned M
  return row.text();
}

}  // namespace

Result<CompressedTable> compress_table(const TunedFile& file) {
  CompressedTable compressed;
  compressed.rows_before = file.entries.size();
  if (file.header == file.document.lines.size()) return compressed;
  const RangeColumns columns = range_columns(file);
  const std::string end(file.document.lines[file.header].end.empty() ? "\n"
                                                                     : file.document.lines[file.header].end);
  compressed.text = columns.header + end;
  for (const RangeRow& range : compress(file.entries)) {
    const std::string_view line = file.document.lines[file.entries[range.entry].line - 1].text;
    compressed.text += range.m_from == 0 ? std::string(line) : row_with_range(line, columns, range.m_from);
    compressed.text += end;
    ++compressed.rows_after;
    if (range.m_from == 0) continue;
    compressed.ranges.push_back(
        {file.entries[range.entry], range.m_from, range.merged, compressed.rows_after + 1});
  }
  auto again = parse_tuned_csv(file.path, compressed.text, {.operation = file.schema().operation});
  if (!again.ok()) return Status::internal("the compressed table cannot be read: {}", again.message());
  const Status same = check_same_winners(file.entries, std::move(again->entries));
  if (!same.ok())
    return Status::internal("{}: the compressed table is not written: {}", file.path, same.message());
  return compressed;
}

}  // namespace gemmtune
