#include "formats/aiter/lookup_requests.h"

#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/aiter/tuned_row.h"

namespace gemmtune {
namespace {

struct Positions {
  std::size_t family = 0;
  std::size_t file = 0;
  std::size_t request = 0;
};

Result<Positions> find_columns(const CsvDocument& document, const CsvLine& line) {
  CsvCells header;
  if (!header.split(without_mark(line.text))) {
    return Status::invalid("{}:{}: {}", document.source, line.number, unclosed_quote);
  }
  Positions positions;
  const std::pair<std::string_view, std::size_t*> wanted[] = {
      {"family", &positions.family}, {"file", &positions.file}, {"request", &positions.request}};
  for (const auto& [name, position] : wanted) {
    std::size_t at = 0;
    while (at < header.size() && header[at] != name) ++at;
    if (at == header.size()) {
      return Status::invalid("{}:{}: no column {}; a list of look-ups has family, file and request",
                             document.source, line.number, name);
    }
    *position = at;
  }
  return positions;
}

Result<TableRequest> read_request(const CsvCells& cells, const Positions& positions) {
  const auto operation = parse_operation(cells[positions.family]);
  if (!operation) return Status::invalid("column family: '{}' is no operation", cells[positions.family]);
  auto key = parse_table_request(*operation, cells[positions.request]);
  if (!key.ok()) return Status::invalid("column request: {}", key.message());
  TableRequest request;
  request.key = std::move(key).value();
  request.file = cells[positions.file];
  return request;
}

}  // namespace

Result<LookupKey> parse_table_request(OperationForm operation, std::string_view text) {
  const Schema& schema = schema_of(operation);
  std::string header;
  std::string row;
  for (const std::string_view pair : split(text, ';')) {
    if (trim(pair).empty()) continue;
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos) return Status::invalid("'{}', expected key=value", pair);
    const std::string_view name = trim(pair.substr(0, equals));
    const auto column = schema.column_of(name);
    if (!column || !schema.in_key(*column)) {
      return Status::invalid("'{}' is no key of a table of {}", name, schema.name);
    }
    header += std::string(header.empty() ? "" : ",") + csv_cell(name);
    row += std::string(row.empty() ? "" : ",") + csv_cell(trim(pair.substr(equals + 1)));
  }
  CsvCells cells;
  cells.split(header);
  const Columns columns(cells, schema);
  for (const Column needed : {Column::gfx, Column::cu_num}) {
    if (!columns.has(needed)) return Status::invalid("'{}' has no {}", text, schema.column_name(needed));
  }
  EntryReader reader(columns);
  Diagnostics diagnostics("request");
  TunedEntry entry;
  if (!cells.split(row) || !reader.read_key(cells, 1, entry, &diagnostics)) {
    const auto texts = diagnostics.take();
    return Status::invalid("'{}': {}", text, texts.empty() ? "means no problem" : texts.front());
  }
  return LookupKey{std::move(entry.gfx), entry.cu_num, entry.problem, std::move(entry.unknown_types)};
}

Result<TableRequests> read_table_requests(const std::string& path) {
  GEMMTUNE_TRY(auto content, read_file(path));
  GEMMTUNE_TRY(const auto document, parse_csv(path == "-" ? "standard input" : path, std::move(content)));
  const std::size_t header = header_line(document);
  if (header == document.lines.size()) {
    return Status::invalid("{}: empty, expected a header with family, file and request", document.source);
  }
  GEMMTUNE_TRY(const auto positions, find_columns(document, document.lines[header]));
  TableRequests requests;
  CsvCells cells;
  for (std::size_t index = header + 1; index < document.lines.size(); ++index) {
    const CsvLine& line = document.lines[index];
    if (is_blank_or_comment(line.text)) continue;
    if (cells.split(line.text) && !parse_operation(cells[positions.family])) {
      return Status::invalid("{}:{}: column family: '{}' is no operation", document.source, line.number,
                             cells[positions.family]);
    }
    auto request = cells.split(line.text) ? read_request(cells, positions)
                                          : Result<TableRequest>(Status::invalid("{}", unclosed_quote));
    TableRequest row;
    if (request.ok()) {
      row = std::move(*request);
    } else {
      row.state = Status::invalid("{}:{}: {}", document.source, line.number, request.message());
    }
    row.line = line.number;
    requests.rows.push_back(std::move(row));
  }
  return requests;
}

}  // namespace gemmtune
