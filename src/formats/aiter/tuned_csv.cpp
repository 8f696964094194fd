#include "formats/aiter/tuned_csv.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/aiter/problem_cells.h"
#include "formats/aiter/tuned_row.h"
#include "formats/all_formats.h"

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

/// A fused MoE's tag, shared experts, biases and routing only where a row has them; gemmtune's columns behind AITER's.
std::vector<SchemaColumn> columns_of_new_file(OperationForm operation, const std::vector<TunedEntry>& entries,
                                              CsvSchema schema) {
  const auto any = [&](const auto& has) { return std::ranges::any_of(entries, has); };
  const bool tagged =
      any([](const TunedEntry& entry) { return entry.stages != nullptr && !entry.stages->tag.empty(); });
  const bool routed = any([](const TunedEntry& entry) { return !entry.routing.empty(); });
  const Problem without = default_problem(operation);
  const auto unneeded = [&](Column column) {
    return !needs_column(without, column) &&
           !any([&](const TunedEntry& entry) { return needs_column(entry.problem, column); });
  };
  std::vector<SchemaColumn> columns;
  for (const SchemaColumn& column : schema_of(operation).columns) {
    const bool left_out = (column.column == Column::tag && !tagged) || unneeded(column.column) ||
                          (column.column == Column::routing && !routed) ||
                          (column.column == Column::gfx && schema == CsvSchema::seed);
    if (!left_out) columns.push_back(column);
  }
  const bool marked = any([](const TunedEntry& entry) { return !entry.bits.empty(); });
  for (const SchemaColumn& column : own_columns()) {
    if (marked || !is_rare(column.column)) columns.push_back(column);
  }
  return columns;
}

/// The columns of carried cells that are none of `columns`, in the order in which they come up.
std::vector<std::string> carried_columns(const std::vector<SchemaColumn>& columns,
                                         const std::vector<TunedEntry>& entries) {
  std::unordered_set<std::string_view> known;
  for (const SchemaColumn& column : columns) known.insert(column.name);
  std::vector<std::string> carried;
  for (const TunedEntry& entry : entries) {
    if (entry.carried == nullptr) continue;
    for (const CarriedCell& cell : *entry.carried) {
      if (known.insert(cell.column).second) carried.push_back(cell.column);
    }
  }
  return carried;
}

}  // namespace

std::vector<UnreadRow> unread_rows(const TunedFile& file) {
  std::unordered_map<std::size_t, std::string_view> reasons;
  for (const std::string& text : file.diagnostics) {
    const auto [line, why] = split_diagnostic(text, file.path);
    if (line != 0) reasons.try_emplace(line, why);
  }
  std::vector<UnreadRow> rows;
  CsvCells cells;
  std::size_t entry = 0;
  for (std::size_t index = file.header + 1; index < file.document.lines.size(); ++index) {
    const CsvLine& line = file.document.lines[index];
    if (entry < file.entries.size() && file.entries[entry].line == line.number) {
      ++entry;
    } else if (!is_blank_row(line.text, cells)) {
      const auto why = reasons.find(line.number);
      rows.push_back({line.number, why == reasons.end() ? "cannot be read" : std::string(why->second)});
    }
  }
  return rows;
}

Result<TunedFile> parse_tuned_csv(std::string source, std::string content, const TunedReadOptions& options) {
  GEMMTUNE_TRY(auto parsed, parse_csv(std::move(source), std::move(content)));
  TunedFile file;
  file.document = std::move(parsed);
  const CsvDocument& document = file.document;
  file.path = document.source;
  GEMMTUNE_TRY(auto header, read_tuned_header(document, options.operation));
  file.header = header.index;
  file.columns = std::move(header.columns);
  if (file.header == document.lines.size()) return file;
  file.has_gfx = file.columns.has(Column::gfx);
  Diagnostics diagnostics(document.source);
  if (!file.columns.has(Column::cu_num) && file.schema().in_key(Column::cu_num)) {
    diagnostics.row(document.lines[file.header].number, "no column cu_num: the rows answer no device");
  }
  if (!header.disagreement.empty()) {
    diagnostics.row(document.lines[file.header].number, header.disagreement);
  }
  EntryReader reader(file.columns, options.keeps_cells);
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
  GEMMTUNE_TRY(auto content, read_file(path));
  std::string source = path == "-" ? "standard input" : path;
  GEMMTUNE_RETURN_IF_ERROR(require_tuned_format(source, content));
  return parse_tuned_csv(std::move(source), std::move(content), options);
}

Status no_gfx_column(const std::string& path, std::string_view gfx) {
  return Status::invalid(
      "{}: has no column gfx, so a row of {} would pass for one of an AMD device; write to another file, or "
      "to a copy with gfx: gemmtune convert {} --to aiter -o NEW.csv",
      path, gfx, path);
}

Status check_without_gfx(std::span<const TunedEntry* const> rows) {
  std::unordered_map<int, const TunedEntry*> first_of;
  for (const TunedEntry* row : rows) {
    const TunedEntry& entry = *row;
    if (entry.gfx.empty()) continue;
    const std::string_view meant = gfx_of_cu_num(entry.cu_num);
    const TunedEntry& first = *first_of.try_emplace(entry.cu_num, &entry).first->second;
    if (first.gfx != entry.gfx) {
      return Status::invalid(
          "line {} is of {} and line {} of {}, both with {} compute units; a table without gfx cannot hold "
          "them apart: write one file for each",
          first.line, first.gfx, entry.line, entry.gfx, entry.cu_num);
    }
    if (meant.empty() || entry.gfx == meant) continue;
    return Status::invalid("line {} is of {}, but {} compute units without gfx mean {}; keep the column gfx",
                           entry.line, entry.gfx, entry.cu_num, meant);
  }
  return {};
}

std::string write_tuned_csv(OperationForm operation, const std::vector<TunedEntry>& entries,
                            CsvSchema schema) {
  const std::vector<SchemaColumn> columns = columns_of_new_file(operation, entries, schema);
  const std::vector<std::string> carried = carried_columns(columns, entries);
  std::string text;
  for (const SchemaColumn& column : columns) {
    if (!text.empty()) text += ',';
    text += column.name;
  }
  for (const std::string& column : carried) text += ',' + csv_cell(column);
  text += '\n';
  for (const TunedEntry& entry : entries) {
    bool first = true;
    for (const SchemaColumn& column : columns) {
      if (!first) text += ',';
      first = false;
      const std::string* raw = find_carried(entry, column.name);
      text += csv_cell(raw != nullptr ? *raw : cell_text(entry, column.column).value_or(std::string()));
    }
    for (const std::string& column : carried) {
      const std::string* raw = find_carried(entry, column);
      text += ',';
      if (raw != nullptr) text += csv_cell(*raw);
    }
    text += '\n';
  }
  return text;
}

}  // namespace gemmtune
