#include "formats/hipblaslt/hipblaslt_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/text.h"
#include "formats/conversion.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_hipblaslt_bytes = std::size_t{1} << 28;
constexpr std::array<std::string_view, 20> column_names{
    "preshuffle",  "use_rowwise", "trans_a",      "trans_b",     "m",          "n",          "k",
    "A_data_type", "lda",         "stride_a",     "B_data_type", "ldb",        "stride_b",   "C_data_type",
    "ldc",         "stride_c",    "compute_type", "batch_count", "algo_index", "kernel_name"};

/// hipBLASLt's names as AITER prints them.
constexpr std::array<std::pair<DataType, std::string_view>, 4> type_names{
    {{DataType::f32, "f32_r"},
     {DataType::f16, "f16_r"},
     {DataType::bf16, "bf16_r"},
     {DataType::f8_e4m3fnuz, "f8_e4m3_fnuz_r"}}};

std::string_view type_name(DataType type) {
  for (const auto& [known, name] : type_names)
    if (known == type) return name;
  return "<?>";
}

std::optional<DataType> parse_type_name(std::string_view text) {
  for (const auto& [type, name] : type_names)
    if (name == text) return type;
  return std::nullopt;
}

bool is_header(std::string_view line) {
  const std::string_view text = trim(without_mark(line));
  return text.starts_with("preshuffle") || text.starts_with("bpreshuffle");
}

/// The fields of one line, read in their order; remembers the first that is wrong.
class FieldReader {
 public:
  explicit FieldReader(const std::vector<std::string_view>& fields) : fields_(fields) {}

  void read(bool& target) {
    const std::string_view text = next();
    if (text != "true" && text != "false") return wrong("true or false");
    target = text == "true";
  }
  void read(char& target) {
    const std::string_view text = next();
    if (text != "T" && text != "N") return wrong("T or N");
    target = text.front();
  }
  void read(std::int64_t& target) {
    const std::string_view text = next();
    const auto value = parse_integer(text);
    // AITER compares texts: 016 and 16.0 are other keys than 16.
    if (!value || fmt::format("{}", *value) != text) return wrong("a whole number");
    target = *value;
  }
  void read(std::string& target) {
    const std::string_view text = next();
    if (text.empty()) return wrong("a name");
    target = text;
  }

  bool ok() const { return expected_.empty(); }
  std::size_t wrong_field() const { return wrong_field_; }
  std::string_view expected() const { return expected_; }

 private:
  std::string_view next() { return fields_[at_++]; }
  void wrong(std::string_view expected) {
    if (!ok()) return;
    wrong_field_ = at_ - 1;
    expected_ = expected;
  }

  const std::vector<std::string_view>& fields_;
  std::size_t at_ = 0;
  std::size_t wrong_field_ = 0;
  std::string_view expected_;
};

/// In the file's order.
template <typename Row>
auto fields_of(Row& row) {
  return std::tie(row.preshuffle, row.use_rowwise, row.trans_a, row.trans_b, row.m, row.n, row.k, row.a_type,
                  row.lda, row.stride_a, row.b_type, row.ldb, row.stride_b, row.c_type, row.ldc, row.stride_c,
                  row.compute_type, row.batch_count, row.algo_index, row.kernel_name);
}

bool read_hipblaslt_row(const CsvLine& line, HipblasltRow& row, Diagnostics& diagnostics) {
  row.line = line.number;
  const std::vector<std::string_view> fields = split(line.text, ',');
  if (fields.size() != column_names.size()) {
    diagnostics.row(line.number, fmt::format("{} fields, expected {}", fields.size(), column_names.size()));
    return false;
  }
  for (std::size_t index = 0; index < fields.size(); ++index) {
    if (trim(fields[index]) == fields[index]) continue;
    diagnostics.cell(line.number, column_names[index], fields[index],
                     "no blanks around it: AITER finds no such row");
    return false;
  }
  FieldReader reader(fields);
  std::apply([&](auto&... field) { (reader.read(field), ...); }, fields_of(row));
  if (reader.ok()) return true;
  const std::size_t wrong = reader.wrong_field();
  diagnostics.cell(line.number, column_names[wrong], fields[wrong], reader.expected());
  return false;
}

std::string field_text(bool value) { return value ? "true" : "false"; }
std::string field_text(char value) { return {value}; }
std::string field_text(std::int64_t value) { return fmt::format("{}", value); }
std::string field_text(const std::string& value) { return value; }

std::string row_line(const HipblasltRow& row) {
  return std::apply([](const auto&... field) { return joined(std::array{field_text(field)...}, ",") + "\n"; },
                    fields_of(row));
}

std::string header() { return joined(column_names, ", ") + "\n"; }

Status check_names(const HipblasltRow& row) {
  for (const std::string* name :
       {&row.a_type, &row.b_type, &row.c_type, &row.compute_type, &row.kernel_name}) {
    const bool blank_around = trim(*name) != *name;
    if (name->empty() || blank_around ||
        name->find_first_of(std::string_view(",\r\n\0", 4)) != std::string::npos) {
      return Status::invalid("'{}', expected a name without commas, line ends and blanks around it", *name);
    }
  }
  return {};
}

/// The same key: all but the last two fields.
bool same_key(const HipblasltRow& a, const HipblasltRow& b) {
  HipblasltRow other = b;
  other.algo_index = a.algo_index;
  other.kernel_name = a.kernel_name;
  other.line = a.line;
  return a == other;
}

}  // namespace

Result<HipblasltFile> parse_hipblaslt_csv(const std::string& source, std::string content) {
  GEMMTUNE_TRY(const auto document, parse_csv(source, std::move(content)));
  HipblasltFile file;
  file.path = source;
  Diagnostics diagnostics(source);
  bool first = true;
  for (const CsvLine& line : document.lines) {
    if (is_blank_or_comment(line.text)) continue;
    const bool skip = std::exchange(first, false) && is_header(line.text);
    HipblasltRow row;
    if (!skip && read_hipblaslt_row(line, row, diagnostics)) file.rows.push_back(std::move(row));
  }
  file.diagnostics = diagnostics.take();
  return file;
}

Result<HipblasltFile> read_hipblaslt_csv(const std::string& path) {
  GEMMTUNE_TRY(auto content, read_file(path, max_hipblaslt_bytes));
  return parse_hipblaslt_csv(path, std::move(content));
}

std::string write_hipblaslt_csv(const std::vector<HipblasltRow>& rows) {
  std::string text = header();
  for (const HipblasltRow& row : rows) text += row_line(row);
  return text;
}

Status append_hipblaslt_row(const std::string& path, const HipblasltRow& row) {
  GEMMTUNE_RETURN_IF_ERROR(check_names(row));
  GEMMTUNE_TRY(const auto lock, FileLock::acquire(resolve_links(path) + ".lock"));
  const auto old = read_file(path, max_hipblaslt_bytes);
  if (!old.ok() && old.code() != StatusCode::not_found) return old.status();
  std::string text = old.ok() ? *old : std::string();
  if (text.empty()) text = header();
  if (!text.ends_with('\n')) text += '\n';
  return write_file_atomically(path, text + row_line(row));
}

Result<HipblasltRow> to_hipblaslt_row(const Problem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (problem.batch != 1) return Status::unsupported("batch = {}, expected 1 for hipBLASLt", problem.batch);
  // yᵀ [N, M] = w · xᵀ, all column-major: a row-major w [N, K] is Aᵀ, a row-major x [M, K] is B as it is.
  const bool w_rows = problem.w_order == Order::row_major;
  const bool x_rows = problem.x_order == Order::row_major;
  HipblasltRow row;
  row.preshuffle = is_packed(problem);
  row.trans_a = w_rows ? 'T' : 'N';
  row.trans_b = x_rows ? 'N' : 'T';
  row.m = problem.n;
  row.n = problem.m;
  row.k = problem.k;
  row.a_type = type_name(problem.w_type);
  row.b_type = type_name(problem.x_type);
  row.c_type = type_name(problem.y_type);
  row.lda = w_rows ? problem.k : problem.n;
  row.ldb = x_rows ? problem.k : problem.m;
  row.ldc = problem.n;
  return row;
}

Result<Problem> to_problem(const HipblasltRow& row) {
  const auto w_type = parse_type_name(row.a_type);
  const auto x_type = parse_type_name(row.b_type);
  const auto y_type = parse_type_name(row.c_type);
  if (!w_type) return Status::unsupported("A_data_type is {}, which names no type", row.a_type);
  if (!x_type) return Status::unsupported("B_data_type is {}, which names no type", row.b_type);
  if (!y_type) return Status::unsupported("C_data_type is {}, which names no type", row.c_type);
  Problem problem;
  problem.m = row.n;
  problem.n = row.m;
  problem.k = row.k;
  problem.w_type = *w_type;
  problem.x_type = *x_type;
  problem.y_type = *y_type;
  problem.scale_ab = *x_type == DataType::f8_e4m3fnuz;
  problem.weight_layout = row.preshuffle ? WeightLayout::any : WeightLayout::plain;
  problem.w_order = row.trans_a == 'T' ? Order::row_major : Order::column_major;
  problem.x_order = row.trans_b == 'N' ? Order::row_major : Order::column_major;
  GEMMTUNE_TRY(const auto back, to_hipblaslt_row(problem));
  if (!same_key(row, back)) {
    return Status::unsupported(
        "use_rowwise, lda, ldb, ldc, a stride, compute_type or batch_count is not that "
        "of one product of dense matrices with a scale for each tensor");
  }
  return problem;
}

Result<ConversionRows> read_hipblaslt_rows(const std::string& source, std::string content,
                                           const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_hipblaslt_csv(source, std::move(content)));
  ConversionRows rows;
  rows.source = source;
  rows.leave_out_lines(file.diagnostics);
  for (const HipblasltRow& row : file.rows) {
    TunedEntry entry;
    entry.line = row.line;
    auto problem = to_problem(row);
    if (!problem.ok()) {
      rows.leave_out_line(row.line, problem.message());
      continue;
    }
    entry.problem = *problem;
    entry.gfx = options.gfx;
    entry.cu_num = options.cu_num;
    entry.libtype = "hipblaslt";
    entry.solidx = row.algo_index;
    entry.kernel_name = row.kernel_name;
    entry.us = std::numeric_limits<double>::quiet_NaN();
    entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
    rows.entries.push_back(std::move(entry));
  }
  return rows;
}

Result<std::string> write_hipblaslt_rows(ConversionRows& rows, const ConversionOptions&) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::vector<HipblasltRow> lines;
  rows.take_each([&](std::size_t, const TunedEntry& entry) -> std::string {
    if (entry.libtype != "hipblaslt") return fmt::format("libtype '{}', expected hipblaslt", entry.libtype);
    if (entry.kernel_name.starts_with("Gemm_") && entry.solidx == 0)
      return fmt::format("kernel '{}': a solution without its index", entry.kernel_name);
    if (entry.problem.bias) return "a bias, for which the table has no field";
    auto line = to_hipblaslt_row(entry.problem);
    if (!line.ok()) return line.message();
    line->algo_index = entry.solidx;
    line->kernel_name = entry.kernel_name;
    lines.push_back(std::move(*line));
    return {};
  });
  return write_hipblaslt_csv(lines);
}

}  // namespace gemmtune
