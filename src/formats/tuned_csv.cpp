#include "formats/tuned_csv.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/csv.h"
#include "formats/tuned_row.h"

namespace gemmtune {
namespace {

/// Python's round(value, 2).
double rounded(double value) { return *parse_number(python_float(value, 2)); }

void read_row(const CsvLine& line, const Columns& columns, EntryReader& reader, CsvCells& cells,
              TunedFile& file, Complaints& complaints) {
  if (!split_row(line, columns, cells, complaints)) return;
  TunedEntry entry;
  if (!reader.read_key(cells, line.number, entry, &complaints)) return;
  if (!reader.read_values(cells, line.number, entry, &complaints)) return;
  file.entries.push_back(std::move(entry));
}

}  // namespace

Result<TunedFile> read_tuned_csv(const std::string& path, bool strict) {
  auto content = read_file(path);
  if (!content.ok()) return content.status();
  const auto parsed = parse_csv(path == "-" ? "standard input" : path, std::move(*content));
  if (!parsed.ok()) return parsed.status();
  const CsvDocument& document = *parsed;
  const auto header = read_tuned_header(document);
  if (!header.ok()) return header.status();

  TunedFile file;
  file.path = path;
  if (header->index == document.lines.size()) return file;
  file.has_gfx = header->columns.has(Column::gfx);
  Complaints complaints(document.source);
  if (!header->columns.has(Column::cu_num)) {
    complaints.row(document.lines[header->index].number, "no column cu_num: the rows answer no device");
  }
  EntryReader reader(header->columns);
  CsvCells cells;
  file.entries.reserve(document.lines.size());
  for (std::size_t index = header->index + 1; index < document.lines.size(); ++index) {
    read_row(document.lines[index], header->columns, reader, cells, file, complaints);
  }
  file.complaints = complaints.take();
  if (strict && !file.complaints.empty()) return Status::invalid("{}", file.complaints.front());
  return file;
}

std::string write_tuned_csv(const std::vector<TunedEntry>& entries, CsvSchema schema) {
  std::vector<Column> columns;
  for (const Column column : aiter_columns()) {
    if (column != Column::gfx || schema == CsvSchema::aiter) columns.push_back(column);
  }
  columns.insert(columns.end(), own_columns().begin(), own_columns().end());
  std::string text;
  for (const Column column : columns) {
    if (!text.empty()) text += ',';
    text += to_string(column);
  }
  text += '\n';
  for (const TunedEntry& entry : entries) {
    bool first = true;
    for (const Column column : columns) {
      if (!first) text += ',';
      first = false;
      text += csv_cell(*cell_text(entry, column));
    }
    text += '\n';
  }
  return text;
}

double tflops_column(const Problem& problem, double us) {
  return valid_time(us) ? rounded(flops(problem) / (us * 1e6)) : 0;
}

double bandwidth_column(const Problem& problem, double us) {
  if (!valid_time(us)) return 0;
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const auto k = static_cast<double>(problem.k);
  constexpr double element_bytes = 2;
  return rounded((m * k + n * k + m * n) * element_bytes / (us * 1e-6) / 1e9);
}

}  // namespace gemmtune
