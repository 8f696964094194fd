#include "formats/shapes/shape_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/path_list.h"
#include "base/text.h"
#include "formats/aiter/operation_header.h"
#include "formats/aiter/problem_cells.h"
#include "formats/all_formats.h"
#include "formats/bench/bench_call.h"
#include "formats/csv/columns.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"
#include "formats/shapes/shape_collector.h"
#include "formats/tunableop/tunableop_csv.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "formats/tune_gemm/gemm_size_yaml.h"

namespace gemmtune {
namespace {

/// Names the missing key columns, if any: those without which no problem can be read.
Status check_key_columns(const std::string& source, std::size_t line, const Columns& columns) {
  static constexpr std::array size_columns{Column::m, Column::n, Column::k};
  static constexpr std::array batched{Column::batch, Column::m, Column::n, Column::k};
  static constexpr std::array moe{Column::m,    Column::k,     Column::n,         Column::experts,
                                  Column::topk, Column::dtype, Column::q_dtype_a, Column::q_dtype_w};
  const Schema& schema = columns.schema();
  const std::span<const Column> needed = traits(schema.operation.operation).mixture
                                             ? std::span<const Column>(moe)
                                         : schema.has(Column::batch) ? std::span<const Column>(batched)
                                                                     : std::span<const Column>(size_columns);
  std::string missing;
  for (const Column column : needed) {
    if (columns.has(column)) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(schema.column_name(column));
  }
  if (missing.empty()) return {};
  return Status::invalid("{}:{}: the header has no column {}", source, line, missing);
}

/// "u.csv: read as a16w16 of bf16: …; --op and --indtype say otherwise".
std::string assumption_text(const ShapeList& list, bool is_operation_assumed, bool is_type_assumed) {
  const std::string operation(to_string(list.operation));
  const std::string type(to_string(default_problem(list.operation).x_type));
  return fmt::format("{}: read as {}{}: nothing states the {}; {} says otherwise", list.source, operation,
                     is_type_assumed ? " of " + type : "",
                     !is_type_assumed        ? "operation"
                     : !is_operation_assumed ? "type"
                                             : "operation and the type",
                     !is_type_assumed        ? "--op"
                     : !is_operation_assumed ? "--indtype"
                                             : "--op or --indtype");
}

bool read_calls(const CsvCells& cells, const Columns& columns, ShapeRow& row, Diagnostics& diagnostics) {
  const std::string_view cell = columns.cell(cells, Column::calls);
  if (is_missing(cell)) return true;
  const auto calls = parse_integer(cell);
  if (calls && *calls >= 0) {
    row.calls = *calls;
    return true;
  }
  diagnostics.cell(row.line, "calls", cell, "a whole number of at least 0");
  return false;
}

void read_shape(const CsvLine& line, const Columns& columns, ProblemReader& reader, ShapeCollector& shapes,
                Diagnostics& diagnostics) {
  CsvCells cells;
  if (!split_row(line, columns, cells, diagnostics)) return;
  ShapeRow row;
  row.line = line.number;
  row.layer = columns.cell(cells, Column::layer);
  if (!reader.read(cells, line.number, row.problem, &diagnostics)) return;
  if (!read_calls(cells, columns, row, diagnostics)) return;
  if (const Status status = check(row.problem); !status.ok()) {
    diagnostics.row(line.number, status.message());
    return;
  }
  shapes.add(std::move(row));
}

/// Counts the cells of columns that no list of the operation has.
class IgnoredColumns {
 public:
  IgnoredColumns(const Columns& columns, std::size_t line) : columns_(columns.unknown()) {
    // The winners of a tuned file are no part of a list: nobody expects them there.
    if (columns.has(Column::us)) columns_.clear();
    for (const Columns::Unknown& column : columns_) {
      items_.push_back({LeftOutKind::column, column.name, line, 0, "no column of this operation's list"});
    }
  }
  void count(std::string_view line) {
    if (columns_.empty() || is_blank_or_comment(line) || !cells_.split(line)) return;
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      if (!cells_[columns_[index].position].empty()) ++items_[index].count;
    }
  }
  std::vector<LeftOut> take() {
    std::erase_if(items_, [](const LeftOut& item) { return item.count == 0; });
    return std::move(items_);
  }

 private:
  std::vector<Columns::Unknown> columns_;
  std::vector<LeftOut> items_;
  CsvCells cells_;
};

Result<ShapeList> parse_shape_csv(const std::string& source, std::string content,
                                  const ShapeListOptions& options) {
  GEMMTUNE_TRY(const auto document, parse_csv(source, std::move(content)));
  const std::size_t header_index = header_line(document);
  if (header_index == document.lines.size()) {
    return Status::invalid("{}: empty, expected a header such as M, N, K and dtype", source);
  }
  const CsvLine& header_text = document.lines[header_index];
  CsvCells header;
  if (!header.split(without_mark(header_text.text))) {
    return Status::invalid("{}:{}: {}", source, header_text.number, unclosed_quote);
  }
  GEMMTUNE_TRY(const auto detected, detect_table(document, header_index, header,
                                                 {options.operation, options.output, OperationForm()}));
  const Schema& schema = *detected.schema;
  const Columns columns(header, schema);
  GEMMTUNE_RETURN_IF_ERROR(check_key_columns(source, header_text.number, columns));

  Diagnostics diagnostics(source);
  const bool lacks_type =
      schema.operation == Operation::a16w16 && !columns.has(Column::dtype) && !options.x_type;
  const auto x_type = lacks_type ? std::optional(default_problem(schema.operation).x_type) : options.x_type;
  ProblemReader reader(columns, {x_type, options.y_type, options.architecture});
  IgnoredColumns ignored(columns, header_text.number);
  // The rows of a tuned file are devices, not calls.
  ShapeCollector shapes(columns.has(Column::calls) || !columns.has(Column::us));
  for (std::size_t index = header_index + 1; index < document.lines.size(); ++index) {
    read_shape(document.lines[index], columns, reader, shapes, diagnostics);
    ignored.count(document.lines[index].text);
  }
  ShapeList list;
  list.source = source;
  list.operation = columns.schema().operation;
  list.rows = shapes.take();
  list.ignored = ignored.take();
  list.diagnostics = diagnostics.take();
  if (detected.is_assumed || lacks_type)
    list.notes.push_back(assumption_text(list, detected.is_assumed, lacks_type));
  const std::string disagreement = options.operation ? "" : name_disagreement(source, schema);
  if (!disagreement.empty()) {
    list.diagnostics.insert(list.diagnostics.begin(),
                            fmt::format("{}:{}: {}", source, header_text.number, disagreement));
  }
  return list;
}

Result<ShapeList> parse_shape_yaml(const std::string& source, const std::string& content,
                                   const ShapeListOptions& options) {
  if (trim(content).empty())
    return Status::invalid("{}: empty, expected a list of maps with M, N and K", source);
  ShapeList list;
  list.source = source;
  GEMMTUNE_RETURN_IF_ERROR(read_gemm_size_yaml(source, content, options, list));
  ShapeCollector shapes(true);
  for (ShapeRow& row : list.rows) shapes.add(std::move(row));
  list.rows = shapes.take();
  return list;
}

/// An error for a file that holds no list of sizes: Triton's buckets have none, and hipBLASLt's m, n and k mean
/// something else.
Status require_sizes(const std::string& source, std::string_view content) {
  const Format& format = detect_format(source, content);
  if (format.read != read_triton_rows && format.read != read_hipblaslt_rows &&
      format.read != read_flashinfer_rows && format.read != read_aic_rows)
    return {};
  return refuse_format(source, content, "a list of sizes", "convert --to untuned");
}

/// The problems of PyTorch TunableOp's results and of its calls that wait.
Result<ShapeList> parse_tunableop_shapes(const std::string& source, std::string content,
                                         const ShapeListOptions& options) {
  if (options.operation.value_or(OperationForm()) != Operation::a16w16) {
    return Status::invalid("{}: sizes of {}, expected those of {}", source, to_string(Operation::a16w16),
                           to_string(*options.operation));
  }
  GEMMTUNE_TRY(auto file, parse_tunableop_csv(source, std::move(content)));
  ShapeList list;
  list.source = source;
  list.diagnostics = std::move(file.diagnostics);
  ShapeCollector shapes(false);
  for (const TunableopRow& row : file.rows) shapes.add({row.problem, 1, "", row.line});
  list.rows = shapes.take();
  return list;
}

bool is_yaml(const std::string& path, std::string_view content) {
  if (is_yaml_path(path)) return true;
  if (ends_in(path, ".csv")) return false;
  const std::string_view first = trim(first_row(content));
  return first.starts_with('-') || first.starts_with('[') || first.starts_with('{');
}

}  // namespace

void ShapeCollector::add(ShapeRow row) {
  const auto [at, made] = index_.try_emplace(print(row.problem), rows_.size());
  if (made) {
    rows_.push_back(std::move(row));
    return;
  }
  if (!add_calls_) return;
  std::int64_t& calls = rows_[at->second].calls;
  const std::int64_t room = std::numeric_limits<std::int64_t>::max() - calls;
  calls += std::min(room, row.calls);
}

Result<ShapeList> parse_shape_list(const std::string& source, std::string content,
                                   const ShapeListOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(require_sizes(source, content));
  const Format& format = detect_format(source, content);
  GEMMTUNE_TRY(auto list,
               is_tunableop(first_row(content)) ? parse_tunableop_shapes(source, std::move(content), options)
               : format.read == read_bench_rows ? parse_bench_yaml(source, content, options)
               : format.read == read_cutlass_rows ? parse_cutlass_csv(source, std::move(content), options)
               : is_yaml(source, content)         ? parse_shape_yaml(source, content, options)
                                                  : parse_shape_csv(source, std::move(content), options));
  if (options.strict && !list.diagnostics.empty()) {
    return Status::invalid("{}", list.diagnostics.front());
  }
  if (list.rows.empty() && !list.diagnostics.empty()) {
    return Status::invalid("{}: no row is usable; the first diagnostic: {}", source,
                           list.diagnostics.front());
  }
  return list;
}

namespace {

Result<ShapeList> read_one_list(const std::string& path, const ShapeListOptions& options) {
  GEMMTUNE_TRY(auto content, read_file(path));
  return parse_shape_list(path == "-" ? "standard input" : path, std::move(content), options);
}

/// Appends `more` to `list`, each with the file that it is of.
Status append_list(ShapeList& list, ShapeList more) {
  if (more.operation != list.operation) {
    return Status::invalid("{}: sizes of {}, but {} has those of {}; expected one operation", more.source,
                           to_string(more.operation), list.source, to_string(list.operation));
  }
  std::move(more.rows.begin(), more.rows.end(), std::back_inserter(list.rows));
  std::move(more.diagnostics.begin(), more.diagnostics.end(), std::back_inserter(list.diagnostics));
  std::move(more.notes.begin(), more.notes.end(), std::back_inserter(list.notes));
  std::move(more.ignored.begin(), more.ignored.end(), std::back_inserter(list.ignored));
  list.source += ":" + more.source;
  return {};
}

}  // namespace

Result<ShapeList> read_shape_list(const std::string& paths, const ShapeListOptions& options) {
  const std::vector<std::string> each = path_list(paths);
  if (each.size() <= 1) return read_one_list(each.empty() ? paths : each.front(), options);
  GEMMTUNE_TRY(auto list, read_one_list(each.front(), options));
  for (std::size_t index = 1; index < each.size(); ++index) {
    GEMMTUNE_TRY(auto more, read_one_list(each[index], options));
    GEMMTUNE_RETURN_IF_ERROR(append_list(list, std::move(more)));
  }
  ShapeCollector shapes(true);
  for (ShapeRow& row : list.rows) shapes.add(std::move(row));
  list.rows = shapes.take();
  return list;
}

namespace {

std::string shape_list_text(OperationForm operation, const std::vector<ShapeRow>& rows) {
  const bool layers = std::ranges::any_of(rows, [](const ShapeRow& row) { return !row.layer.empty(); });
  const Schema& schema = schema_of(operation);
  std::vector<SchemaColumn> columns;
  for (const SchemaColumn& column : schema.key()) {
    if (column.column != Column::gfx && column.column != Column::cu_num) columns.push_back(column);
  }
  for (const Column option : mixture_options) {
    const bool needed =
        std::ranges::any_of(rows, [&](const ShapeRow& row) { return needs_column(row.problem, option); });
    if (traits(operation.operation).mixture && needed)
      columns.push_back({option, schema.column_name(option), {}});
  }
  std::string text;
  for (const SchemaColumn& column : columns) text += std::string(column.name) + ",";
  text += layers ? "calls,layer\n" : "calls\n";
  for (const ShapeRow& row : rows) {
    for (const SchemaColumn& column : columns) {
      text += problem_cell(row.problem, column.column).value_or(std::string()) + ",";
    }
    text += std::to_string(row.calls);
    if (layers) text += "," + csv_cell(row.layer);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string write_shape_list(const std::vector<ShapeRow>& rows) {
  return shape_list_text(rows.empty() ? OperationForm() : form_of(rows.front().problem), rows);
}

std::vector<std::string> notes_of(const ShapeList& list) {
  std::vector<std::string> notes = list.notes;
  if (std::string ignored = describe_ignored(list); !ignored.empty()) notes.push_back(std::move(ignored));
  return notes;
}

std::string describe_ignored(const ShapeList& list) {
  std::string names;
  std::size_t rows = 0;
  for (const LeftOut& item : list.ignored) {
    names += (names.empty() ? "" : ", ") + item.name;
    rows = std::max(rows, item.count);
  }
  if (names.empty()) return {};
  return fmt::format("{}: a list of sizes; not used: {} ({} row{})", list.source, names, rows,
                     rows == 1 ? "" : "s");
}

std::string empty_shape_list(OperationForm operation) { return shape_list_text(operation, {}); }

}  // namespace gemmtune
