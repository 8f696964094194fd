#include "formats/aiter/tuned_csv.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/aiter/tuned_row.h"
#include "formats/csv/csv.h"

namespace gemmtune {
namespace {

void read_tuned_row(const CsvLine& line, const Columns& columns, EntryReader& reader, CsvCells& cells,
                    TunedFile& file, Diagnostics& diagnostics) {
  if (!split_row(line, columns, cells, diagnostics)) return;
  TunedEntry entry;
  if (!reader.read_key(cells, line.number, entry, &diagnostics)) return;
  if (!reader.read_values(cells, line.number, entry, &diagnostics)) return;
  file.entries.push_back(std::move(entry));
}

}  // namespace

Result<TunedFile> parse_tuned_csv(std::string source, std::string content, const TunedReadOptions& options) {
  auto parsed = parse_csv(std::move(source), std::move(content));
  if (!parsed.ok()) return parsed.status();
  TunedFile file;
  file.document = std::move(*parsed);
  const CsvDocument& document = file.document;
  file.path = document.source;
  auto header = read_tuned_header(document, options.operation);
  if (!header.ok()) return header.status();
  file.header = header->index;
  file.columns = std::move(header->columns);
  if (file.header == document.lines.size()) return file;
  file.has_gfx = file.columns.has(Column::gfx);
  Diagnostics diagnostics(document.source);
  if (!file.columns.has(Column::cu_num) && file.schema().in_key(Column::cu_num)) {
    diagnostics.row(document.lines[file.header].number, "no column cu_num: the rows answer no device");
  }
  EntryReader reader(file.columns);
  CsvCells cells;
  file.entries.reserve(document.lines.size());
  for (std::size_t index = file.header + 1; index < document.lines.size(); ++index) {
    read_tuned_row(document.lines[index], file.columns, reader, cells, file, diagnostics);
  }
  file.diagnostics = diagnostics.take();
  if (options.strict && !file.diagnostics.empty()) return Status::invalid("{}", file.diagnostics.front());
  return file;
}

Result<TunedFile> read_tuned_csv(const std::string& path, const TunedReadOptions& options) {
  auto content = read_file(path);
  if (!content.ok()) return content.status();
  return parse_tuned_csv(path == "-" ? "standard input" : path, std::move(*content), options);
}

std::string write_tuned_csv(Operation operation, const std::vector<TunedEntry>& entries, CsvSchema schema) {
  std::vector<SchemaColumn> columns;
  for (const SchemaColumn& column : schema_of(operation).columns) {
    const bool left_out =
        column.column == Column::tag || (column.column == Column::gfx && schema == CsvSchema::seed);
    if (!left_out) columns.push_back(column);
  }
  columns.insert(columns.end(), own_columns().begin(), own_columns().end());
  std::string text;
  for (const SchemaColumn& column : columns) {
    if (!text.empty()) text += ',';
    text += column.name;
  }
  text += '\n';
  for (const TunedEntry& entry : entries) {
    bool first = true;
    for (const SchemaColumn& column : columns) {
      if (!first) text += ',';
      first = false;
      text += csv_cell(cell_text(entry, column.column).value_or(std::string()));
    }
    text += '\n';
  }
  return text;
}

}  // namespace gemmtune
