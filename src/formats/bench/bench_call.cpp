#include "formats/bench/bench_call.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.h"
#include "formats/conversion.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"
#include "formats/shapes/shape_collector.h"
#include "formats/yaml_guard.h"

namespace gemmtune {
namespace {

/// The words of both programs, and the letters of rocblas-bench.
std::optional<DataType> bench_type(std::string_view word) {
  constexpr std::array<std::pair<std::string_view, DataType>, 10> words{
      {{"f32_r", DataType::f32},
       {"s", DataType::f32},
       {"f16_r", DataType::f16},
       {"h", DataType::f16},
       {"bf16_r", DataType::bf16},
       {"f8_r", DataType::f8_e4m3fn},
       {"f8_e4m3_r", DataType::f8_e4m3fn},
       {"f8_fnuz_r", DataType::f8_e4m3fnuz},
       {"f8_e4m3_fnuz_r", DataType::f8_e4m3fnuz},
       {"f8_fnuz", DataType::f8_e4m3fnuz}}};
  for (const auto& [known, type] : words)
    if (known == word) return type;
  return std::nullopt;
}

/// What both programs call a size, a stride or a count.
std::int64_t* number_of_word(BenchCall& call, std::string_view word) {
  if (word == "m" || word == "M") return &call.m;
  if (word == "n" || word == "N") return &call.n;
  if (word == "k" || word == "K") return &call.k;
  if (word == "lda") return &call.lda;
  if (word == "ldb") return &call.ldb;
  if (word == "ldc") return &call.ldc;
  if (word == "batch_count") return &call.batch;
  if (word == "scaleA") return &call.scale_a;
  if (word == "scaleB") return &call.scale_b;
  return nullptr;
}

std::string_view without_quotes(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  return text;
}

bool is_true(std::string_view value) { return value.empty() || parse_bool(value).value_or(false); }

Status take_operation(std::string_view word, std::string_view value, char& target) {
  if (value != "T" && value != "N" && value != "C")
    return Status::invalid("{}: value '{}', expected T or N", word, value);
  target = value == "N" ? 'N' : 'T';
  return {};
}

}  // namespace

Status set_bench_word(BenchCall& call, std::string_view word, std::string_view value) {
  value = without_quotes(value);
  if (word == "transA" || word == "transposeA") return take_operation(word, value, call.trans_a);
  if (word == "transB" || word == "transposeB") return take_operation(word, value, call.trans_b);
  if (std::int64_t* const number = number_of_word(call, word)) {
    const auto given = parse_integer(value);
    if (!given || *given < 0)
      return Status::invalid("{}: value '{}', expected a whole number of at least 0", word, value);
    *number = *given;
    return {};
  }
  if (word == "a_type") call.a_type = value;
  if (word == "b_type") call.b_type = value;
  if (word == "c_type") call.c_type = value;
  if (word == "d_type") call.d_type = value;
  if (word == "r" || word == "precision") call.a_type = call.b_type = call.c_type = call.d_type = value;
  if (word == "bias_vector") call.bias = is_true(value);
  return {};
}

Result<Problem> problem_of_bench_call(const BenchCall& call, std::string& strides) {
  const std::string& d_type = call.d_type.empty() ? call.c_type : call.d_type;
  const auto w_type = bench_type(call.a_type);
  const auto x_type = bench_type(call.b_type);
  const auto y_type = bench_type(d_type);
  if (!w_type) return Status::unsupported("a_type {}: no type known here", call.a_type);
  if (!x_type) return Status::unsupported("b_type {}: no type known here", call.b_type);
  if (!y_type) return Status::unsupported("d_type {}: no type known here", d_type);
  if (call.batch > 1) return Status::unsupported("batch_count {}: expected one matrix each", call.batch);
  if (call.scale_a > 1 || call.scale_b > 1)
    return Status::unsupported("scaleA {}, scaleB {}: a scale for each row, which is a8w8's", call.scale_a,
                               call.scale_b);
  const bool w_rows = call.trans_a == 'T';
  const bool x_rows = call.trans_b == 'N';
  Problem problem;
  problem.m = call.n;
  problem.n = call.m;
  problem.k = call.k;
  problem.w_type = *w_type;
  problem.x_type = *x_type;
  problem.y_type = *y_type;
  problem.bias = call.bias;
  problem.scale_ab = traits(*x_type).fp8;
  problem.w_order = w_rows ? Order::row_major : Order::column_major;
  problem.x_order = x_rows ? Order::row_major : Order::column_major;
  const std::array<std::pair<std::int64_t, std::int64_t>, 3> given{
      {{call.lda, w_rows ? call.k : call.m}, {call.ldb, x_rows ? call.k : call.n}, {call.ldc, call.m}}};
  for (std::size_t index = 0; index < given.size(); ++index) {
    const auto& [stride, dense] = given[index];
    if (stride == 0 || stride == dense) continue;
    strides += fmt::format("{}ld{} = {}", strides.empty() ? "" : ", ", "abc"[index], stride);
  }
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  return problem;
}

std::optional<Result<ShapeRow>> bench_call_of_line(std::string_view line) {
  constexpr std::string_view programs[] = {"hipblaslt-bench", "rocblas-bench"};
  std::size_t begin = std::string_view::npos;
  for (const std::string_view program : programs) begin = std::min(begin, line.find(program));
  if (begin == std::string_view::npos) return std::nullopt;
  std::vector<std::string_view> words;
  for (const std::string_view word : split(line.substr(begin), ' '))
    if (!trim(word).empty()) words.push_back(trim(word));
  BenchCall call;
  for (std::size_t at = 1; at < words.size(); ++at) {
    if (!words[at].starts_with('-')) continue;
    const std::string_view word = words[at].substr(words[at].starts_with("--") ? 2 : 1);
    const bool has_value =
        at + 1 < words.size() && (!words[at + 1].starts_with('-') || parse_number(words[at + 1]).has_value());
    const Status status = set_bench_word(call, word, has_value ? words[at + 1] : std::string_view());
    if (!status.ok()) return Result<ShapeRow>(status);
  }
  if (call.m == 0 && call.n == 0 && call.k == 0) return std::nullopt;
  ShapeRow row;
  std::string strides;
  auto problem = problem_of_bench_call(call, strides);
  if (!problem.ok()) return Result<ShapeRow>(problem.status());
  row.problem = *problem;
  return Result<ShapeRow>(std::move(row));
}

bool is_bench_yaml(std::string_view content) {
  constexpr std::string_view signs[] = {
      "function", "rocblas_function", "transA", "transposeA", "a_type", "lda", "ldb"};
  constexpr std::size_t looked_at = 4096;
  const std::string_view first = first_row(content);
  if (!trim(first).starts_with('-') && !trim(first).starts_with('[')) return false;
  const std::string_view text = content.substr(0, looked_at);
  const auto is_letter = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
  };
  for (const std::string_view sign : signs) {
    for (std::size_t at = text.find(sign); at != std::string_view::npos; at = text.find(sign, at + 1)) {
      std::size_t end = at + sign.size();
      if (at > 0 && is_letter(text[at - 1])) continue;
      while (end < text.size() && (text[end] == ' ' || text[end] == '\'' || text[end] == '"')) ++end;
      if (end < text.size() && text[end] == ':') return true;
    }
  }
  return false;
}

namespace {

Status check_dense_list(const std::string& source, const ShapeListOptions& options, std::string_view what) {
  if (options.operation.value_or(OperationForm()) == Operation::a16w16) return {};
  return Status::invalid("{}: {} are of {}, expected sizes of {}", source, what, to_string(Operation::a16w16),
                         to_string(*options.operation));
}

void use_types(const ShapeListOptions& options, Problem& problem) {
  if (options.x_type) set_types(problem, *options.x_type);
  if (options.y_type) problem.y_type = *options.y_type;
}

/// Operands that are not dense are tuned as dense ones: their count is said.
void name_strided(std::size_t strided, ShapeList& list) {
  if (strided == 0) return;
  list.ignored.push_back({LeftOutKind::column, "lda, ldb, ldc", 0, strided,
                          "a list of sizes has no place for operands that are not dense"});
}

}  // namespace

Result<ShapeList> parse_bench_yaml(const std::string& source, const std::string& content,
                                   const ShapeListOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_dense_list(source, options, "calls of rocblas-bench"));
  GEMMTUNE_TRY(const auto root, load_yaml_list(source, content));
  ShapeList list;
  list.source = source;
  ShapeCollector shapes(true);
  Diagnostics diagnostics(source);
  std::size_t strided = 0;
  for (const YAML::Node& node : root) {
    const std::size_t line = yaml_line(node);
    BenchCall call;
    Status status = node.IsMap() ? Status() : Status::invalid("no map, expected a call with M, N and K");
    for (auto member = node.begin(); status.ok() && member != node.end(); ++member) {
      if (!member->first.IsScalar() || !member->second.IsScalar()) continue;
      status = set_bench_word(call, member->first.Scalar(), member->second.Scalar());
    }
    std::string strides;
    const auto problem = status.ok() ? problem_of_bench_call(call, strides) : Result<Problem>(status);
    if (!problem.ok()) {
      diagnostics.row(line, problem.message());
      continue;
    }
    strided += strides.empty() ? 0 : 1;
    ShapeRow row{*problem, 1, {}, line};
    use_types(options, row.problem);
    shapes.add(std::move(row));
  }
  list.rows = shapes.take();
  list.diagnostics = diagnostics.take();
  name_strided(strided, list);
  return list;
}

namespace {

/// "f16:column" of CUTLASS.
struct CutlassOperand {
  std::optional<DataType> type;
  bool rows = false;
  std::string text;
};

CutlassOperand cutlass_operand(std::string_view cell) {
  constexpr std::array<std::pair<std::string_view, DataType>, 4> words{{{"f32", DataType::f32},
                                                                        {"f16", DataType::f16},
                                                                        {"bf16", DataType::bf16},
                                                                        {"e4m3", DataType::f8_e4m3fn}}};
  CutlassOperand operand;
  operand.text = cell;
  const std::size_t colon = cell.find(':');
  const std::string_view layout =
      colon == std::string_view::npos ? std::string_view() : cell.substr(colon + 1);
  if (layout != "row" && layout != "column") return operand;
  operand.rows = layout == "row";
  for (const auto& [known, type] : words)
    if (known == cell.substr(0, colon)) operand.type = type;
  return operand;
}

/// D = A · B. A D of columns is the transposed product: B takes x's place.
Result<Problem> problem_of_cutlass_row(const CsvCells& row, const NamedCells& cells) {
  const std::string_view kind = cells.of(row, "OperationKind");
  if (kind != "gemm") return Status::unsupported("operation '{}', expected gemm", kind);
  std::array<std::int64_t, 3> sizes{};
  constexpr std::array<const char*, 3> names{"m", "n", "k"};
  for (std::size_t index = 0; index < names.size(); ++index) {
    const auto value = parse_integer(cells.of(row, names[index]));
    if (!value || *value < 1 || *value > max_dimension)
      return Status::invalid("column {}: value '{}', expected a whole number from 1 to {}", names[index],
                             cells.of(row, names[index]), max_dimension);
    sizes[index] = *value;
  }
  const std::string_view batch = cells.of(row, "batch_count");
  if (!batch.empty() && parse_integer(batch).value_or(0) != 1)
    return Status::unsupported("batch_count {}: expected one matrix each", batch);
  const CutlassOperand a = cutlass_operand(cells.of(row, "A"));
  const CutlassOperand b = cutlass_operand(cells.of(row, "B"));
  const CutlassOperand d = cutlass_operand(cells.of(row, cells.has("D") ? "D" : "C"));
  for (const CutlassOperand* operand : {&a, &b, &d})
    if (!operand->type)
      return Status::unsupported("operand '{}': no type and layout known here", operand->text);
  const CutlassOperand& x = d.rows ? a : b;
  const CutlassOperand& w = d.rows ? b : a;
  Problem problem;
  problem.m = d.rows ? sizes[0] : sizes[1];
  problem.n = d.rows ? sizes[1] : sizes[0];
  problem.k = sizes[2];
  problem.x_type = *x.type;
  problem.w_type = *w.type;
  problem.y_type = *d.type;
  problem.scale_ab = traits(*x.type).fp8;
  // x is A [M, K], or the transpose of B [K, N]; w the other way round.
  problem.x_order = x.rows == d.rows ? Order::row_major : Order::column_major;
  problem.w_order = w.rows != d.rows ? Order::row_major : Order::column_major;
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  return problem;
}

}  // namespace

bool is_cutlass_header(std::string_view first_line) {
  CsvCells header;
  if (!header.split(first_line)) return false;
  const NamedCells names(header);
  return names.has("Provider") && names.has("OperationKind") && names.has("Operation") &&
         names.has("Disposition");
}

Result<ShapeList> parse_cutlass_csv(const std::string& source, std::string content,
                                    const ShapeListOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_dense_list(source, options, "the GEMMs of CUTLASS's profiler"));
  GEMMTUNE_TRY(const auto document, parse_csv(source, std::move(content)));
  const std::size_t header_index = header_line(document);
  CsvCells header;
  if (header_index == document.lines.size() || !header.split(without_mark(document.lines[header_index].text)))
    return Status::invalid("{}: no header of CUTLASS's profiler", source);
  const NamedCells names(header);
  ShapeCollector shapes(false);
  Diagnostics diagnostics(source);
  CsvCells cells;
  for (std::size_t index = header_index + 1; index < document.lines.size(); ++index) {
    const CsvLine& line = document.lines[index];
    if (is_blank_row(line.text, cells)) continue;
    if (!cells.split(line.text)) {
      diagnostics.row(line.number, unclosed_quote);
      continue;
    }
    auto problem = problem_of_cutlass_row(cells, names);
    if (!problem.ok()) {
      diagnostics.row(line.number, problem.message());
      continue;
    }
    use_types(options, *problem);
    shapes.add({*problem, 1, {}, line.number});
  }
  ShapeList list;
  list.source = source;
  list.rows = shapes.take();
  list.diagnostics = diagnostics.take();
  return list;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as every format's
Result<ConversionRows> read_bench_rows(const std::string& source, std::string content,
                                       const ConversionOptions& options) {
  return rows_of_list(parse_bench_yaml(source, content, list_options_of(options)), "rocblas_yaml");
}

Result<ConversionRows> read_cutlass_rows(const std::string& source, std::string content,
                                         const ConversionOptions& options) {
  return rows_of_list(parse_cutlass_csv(source, std::move(content), list_options_of(options)), "cutlass_csv");
}

}  // namespace gemmtune
